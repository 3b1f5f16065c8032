//! Prints the tree as CQL that parses to the same tree.
//!
//! A chain of operators prints without parentheses: the parser keeps those that were written as tuples of one element.

mod modify;
mod result_name;
mod roles;
mod schema;
mod select;
mod term;
mod types;

use std::fmt::{self, Display, Formatter, Write};

use super::{
    ast::{Describe, DescribeTarget, FunctionName, Identifier, Modification, QualifiedName, Statement},
    keyword::{Keyword, KeywordClass},
};

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Use(keyspace) => write!(f, "USE {keyspace}"),
            Statement::Select(statement) => statement.fmt(f),
            Statement::Insert(statement) => statement.fmt(f),
            Statement::Update(statement) => statement.fmt(f),
            Statement::Delete(statement) => statement.fmt(f),
            Statement::Batch(statement) => statement.fmt(f),
            Statement::CreateKeyspace(statement) => statement.fmt(f),
            Statement::AlterKeyspace(statement) => statement.fmt(f),
            Statement::DropKeyspace(statement) => statement.fmt(f),
            Statement::CreateTable(statement) => statement.fmt(f),
            Statement::AlterTable(statement) => statement.fmt(f),
            Statement::DropTable(statement) => statement.fmt(f),
            Statement::Truncate(statement) => write!(f, "TRUNCATE TABLE {}", statement.table),
            Statement::CreateType(statement) => statement.fmt(f),
            Statement::AlterType(statement) => statement.fmt(f),
            Statement::DropType(statement) => statement.fmt(f),
            Statement::CreateIndex(statement) => statement.fmt(f),
            Statement::DropIndex(statement) => statement.fmt(f),
            Statement::CreateView(statement) => statement.fmt(f),
            Statement::AlterView(statement) => statement.fmt(f),
            Statement::DropView(statement) => statement.fmt(f),
            Statement::CreateFunction(statement) => statement.fmt(f),
            Statement::DropFunction(statement) => schema::write_drop_function(f, "FUNCTION", statement),
            Statement::CreateAggregate(statement) => statement.fmt(f),
            Statement::DropAggregate(statement) => schema::write_drop_function(f, "AGGREGATE", statement),
            Statement::CreateTrigger(statement) => statement.fmt(f),
            Statement::DropTrigger(statement) => statement.fmt(f),
            Statement::CreateRole(statement) => statement.fmt(f),
            Statement::AlterRole(statement) => statement.fmt(f),
            Statement::DropRole(statement) => statement.fmt(f),
            Statement::GrantRole(statement) => statement.fmt(f),
            Statement::RevokeRole(statement) => statement.fmt(f),
            Statement::ListRoles(statement) => statement.fmt(f),
            Statement::ListUsers => f.write_str("LIST USERS"),
            Statement::ListSuperusers => f.write_str("LIST SUPERUSERS"),
            Statement::Grant(statement) => statement.fmt(f),
            Statement::Revoke(statement) => statement.fmt(f),
            Statement::ListPermissions(statement) => statement.fmt(f),
            Statement::AddIdentity(statement) => statement.fmt(f),
            Statement::DropIdentity(statement) => statement.fmt(f),
            Statement::Describe(statement) => statement.fmt(f),
        }
    }
}

impl Display for Modification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Modification::Insert(statement) => statement.fmt(f),
            Modification::Update(statement) => statement.fmt(f),
            Modification::Delete(statement) => statement.fmt(f),
        }
    }
}

impl Display for Describe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DESCRIBE ")?;
        match &self.target {
            DescribeTarget::Cluster => f.write_str("CLUSTER")?,
            DescribeTarget::Schema { full } => write!(f, "{}SCHEMA", If(*full, "FULL "))?,
            DescribeTarget::Keyspaces => f.write_str("KEYSPACES")?,
            DescribeTarget::Keyspace { only, name } => {
                write!(f, "{}KEYSPACE", If(*only, "ONLY "))?;
                if let Some(name) = name {
                    write!(f, " {name}")?;
                }
            }
            DescribeTarget::Tables => f.write_str("TABLES")?,
            DescribeTarget::Table(name) => write!(f, "TABLE {name}")?,
            DescribeTarget::Index(name) => write!(f, "INDEX {name}")?,
            DescribeTarget::View(name) => write!(f, "MATERIALIZED VIEW {name}")?,
            DescribeTarget::Types => f.write_str("TYPES")?,
            DescribeTarget::Type(name) => write!(f, "TYPE {}", types::UserTypeName(name))?,
            DescribeTarget::Functions => f.write_str("FUNCTIONS")?,
            DescribeTarget::Function(name) => write!(f, "FUNCTION {name}")?,
            DescribeTarget::Aggregates => f.write_str("AGGREGATES")?,
            DescribeTarget::Aggregate(name) => write!(f, "AGGREGATE {name}")?,
            DescribeTarget::Name(QualifiedName { keyspace: None, name })
                if Keyword::find(name.as_str()).is_some() =>
            {
                write_quoted(f, name.as_str())?;
            }
            DescribeTarget::Name(name) => name.fmt(f)?,
        }
        f.write_str(If(self.with_internals, " WITH INTERNALS").text())
    }
}

impl Display for Identifier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(self.as_str()) } else { write_quoted(f, self.as_str()) }
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        self.name.fmt(f)
    }
}

impl Display for FunctionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        write_function_name(f, &self.name)
    }
}

/// Writes the name of a function within its keyspace: other keywords than elsewhere have to be quoted.
fn write_function_name(f: &mut Formatter<'_>, name: &Identifier) -> fmt::Result {
    let needs_quotes = match Keyword::find(name.as_str()) {
        Some(Keyword::Token | Keyword::Count) => false,
        Some(keyword) => matches!(keyword.class(), KeywordClass::Reserved | KeywordClass::NotFunction),
        None => !name.is_plain(),
    };
    if needs_quotes { write_quoted(f, name.as_str()) } else { f.write_str(name.as_str()) }
}

fn write_quoted(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "\"{}\"", name.replace('"', "\"\""))
}

/// A string as a literal in single quotes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('\'')?;
        if self.0.contains('\'') {
            f.write_str(&self.0.replace('\'', "''"))?;
        } else {
            f.write_str(self.0)?;
        }
        f.write_char('\'')
    }
}

/// A text that is printed on a condition.
struct If(bool, &'static str);

impl If {
    fn text(&self) -> &'static str {
        if self.0 { self.1 } else { "" }
    }
}

impl Display for If {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Writes items with a separator between them.
fn write_separated<T>(
    f: &mut Formatter<'_>,
    separator: &str,
    items: &[T],
    mut write_item: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        write_item(f, item)?;
    }
    Ok(())
}

/// Items with commas between them.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_separated(f, ", ", self.0, |f, item| item.fmt(f))
    }
}

const IF_EXISTS: &str = "IF EXISTS ";
const IF_NOT_EXISTS: &str = "IF NOT EXISTS ";
