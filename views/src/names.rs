//! Names of columns in the statement of a view: of the base table, or of the joined one.

use cql_lite::syntax::ast::{CreateView, Expression, Identifier};
use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Column, Table};

use crate::definition::Source;
use crate::expression::rewritten;
use crate::refusal::invalid;

/// The tables of a statement, each with the name that it has there.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    base: Named<'a>,
    joined: Option<Named<'a>>,
}

#[derive(Clone, Copy)]
struct Named<'a> {
    table: &'a Table,
    name: &'a Identifier,
}

impl<'a> Names<'a> {
    pub fn new(create: &'a CreateView, base: &'a Table, joined: Option<&'a Table>) -> Result<Self> {
        let base = Named { table: base, name: create.alias.as_ref().unwrap_or(&create.from.name) };
        let joined = create
            .join
            .as_ref()
            .zip(joined)
            .map(|(join, table)| Named { table, name: join.alias.as_ref().unwrap_or(&join.table.name) });
        if joined.is_some_and(|joined| joined.name == base.name) {
            return invalid(format!("Both tables have the name {}: give one of them an alias", base.name));
        }
        Ok(Self { base, joined })
    }

    pub fn base(&self) -> &'a Table {
        self.base.table
    }

    pub fn joined(&self) -> Option<&'a Table> {
        self.joined.map(|joined| joined.table)
    }

    /// The column of a source that is one.
    pub fn column(&self, source: &Source) -> Option<&'a Column> {
        match source {
            Source::Base(index) => self.base.table.columns.get(*index),
            Source::Joined(index) => self.joined?.table.columns.get(*index),
            Source::Expression(_) => None,
        }
    }

    /// The column of a name, perhaps with that of its table before it.
    pub fn source(&self, table: Option<&Identifier>, column: &Identifier) -> Result<Source> {
        let in_base = self.base.table.column_index(column.as_str());
        let in_joined = self.joined.and_then(|joined| joined.table.column_index(column.as_str()));
        let found = match table {
            Some(table) if table == self.base.name => in_base.map(Source::Base),
            Some(table) if self.joined.is_some_and(|joined| table == joined.name) => {
                in_joined.map(Source::Joined)
            }
            Some(table) => return invalid(format!("{table} is no table of the statement")),
            None if in_base.is_some() && in_joined.is_some() => {
                let tables = self.joined.map_or_else(String::new, |joined| joined.name.to_string());
                return invalid(format!(
                    "Both tables have a column {column}: write {}.{column} or {tables}.{column}",
                    self.base.name
                ));
            }
            None => in_base.map(Source::Base).or(in_joined.map(Source::Joined)),
        };
        let table = match table {
            Some(name) => self.joined.filter(|joined| name == joined.name).unwrap_or(self.base).table,
            None => self.base.table,
        };
        found.ok_or_else(|| {
            RequestError::invalid(format!("Undefined column name {column} in table {}", table.full_name()))
        })
    }

    /// The column that an expression is, if it is one: `column` or `table.column`.
    pub fn plain(&self, expression: &Expression) -> Result<Option<Source>> {
        Ok(match expression {
            Expression::Column(column) => Some(self.source(None, column)?),
            Expression::Field { operand, field } => match &**operand {
                Expression::Column(table) if self.is_table(table) => Some(self.source(Some(table), field)?),
                _ => None,
            },
            _ => None,
        })
    }

    /// An expression over columns of the base table, without names of tables.
    pub fn of_base(&self, expression: &Expression) -> Result<Expression> {
        rewritten(expression, &mut |part| match self.plain(part)? {
            None => Ok(None),
            Some(Source::Base(index)) => Ok(Some(Expression::Column(named(&self.base.table.columns[index])))),
            Some(_) => invalid(format!(
                "{part} is a column of the joined table: it can be selected as it is, and not be part of an expression"
            )),
        })
    }

    /// The same expression with the names that columns have in other versions of the tables.
    pub fn renamed(&self, expression: &Expression, new: &Names<'_>) -> Result<Expression> {
        rewritten(expression, &mut |part| {
            let Some(source) = self.plain(part)? else { return Ok(None) };
            let name = self.new_name(&source, new)?;
            Ok(Some(match part {
                Expression::Field { operand, .. } => {
                    Expression::Field { operand: operand.clone(), field: name }
                }
                _ => Expression::Column(name),
            }))
        })
    }

    /// The name of a column in other versions of the tables.
    pub fn new_name(&self, source: &Source, new: &Names<'_>) -> Result<Identifier> {
        let table = match source {
            Source::Joined(_) => new.joined().unwrap_or(new.base()),
            _ => new.base(),
        };
        let id = self.column(source).map(|column| column.id);
        let column = table.columns.iter().find(|column| Some(column.id) == id);
        column.map(named).ok_or_else(|| {
            RequestError::invalid(format!("A view needs a column that {} does not have", table.full_name()))
        })
    }

    fn is_table(&self, name: &Identifier) -> bool {
        name == self.base.name || self.joined.is_some_and(|joined| name == joined.name)
    }
}

/// The name of a column in CQL.
pub fn named(column: &Column) -> Identifier {
    Identifier::quoted(column.name.as_str())
}

/// Whether a type has user types of another keyspace in it.
pub fn is_foreign(column_type: &CqlType, keyspace: &str) -> bool {
    column_type.any(
        &|part| matches!(part, CqlType::UserType { definition, .. } if &*definition.keyspace != keyspace),
    )
}
