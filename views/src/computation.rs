//! The row of a view by the values of its unit, and where it comes from.
//!
//! Nothing is read or written here: the values come from what [`Statements`] reads.

use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::names::NameScope;
use helenus_query::schema::catalog::Catalog;

use crate::condition::BoundCondition;
use crate::definition::{Condition, Definition, Source};
use crate::statements::Statements;

/// Values as a statement takes or returns them; `None`: null.
pub type Values = Vec<Option<Vec<u8>>>;

/// A view, ready to compute its rows.
#[derive(Debug, Clone)]
pub struct Computation {
    pub definition: Definition,
    pub statements: Statements,
    /// For each column of the view.
    outputs: Vec<At>,
    conditions: Vec<(At, BoundCondition)>,
    /// The columns of the view's key that are not of the unit.
    origin: Vec<usize>,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In the row of the unit.
    Unit(usize),
    /// In the joined row.
    Joined(usize),
}

impl Computation {
    /// Refuses conditions that cannot be checked.
    pub fn new(definition: Definition, catalog: &Catalog) -> Result<Self> {
        let statements = Statements::of(&definition);
        let mut expression = statements.places.base.len();
        let mut at = |source: &Source| -> Result<At> {
            let missing = || RequestError::Server("a value of a view is not read".to_owned());
            Ok(match source {
                Source::Base(index) => At::Unit(
                    statements.places.base.iter().position(|read| read == index).ok_or_else(missing)?,
                ),
                Source::Joined(index) => At::Joined(
                    statements.places.joined.iter().position(|read| read == index).ok_or_else(missing)?,
                ),
                Source::Expression(_) => {
                    expression += 1;
                    At::Unit(expression - 1)
                }
            })
        };
        let outputs = definition.outputs.iter().map(|output| at(&output.source)).collect::<Result<_>>()?;
        let scope =
            NameScope { catalog, keyspace: Some(&definition.base.keyspace), table: Some(&definition.base) };
        let of_rows = definition.conditions_of_rows.iter().filter(|_| !definition.is_aggregate);
        let conditions = definition.conditions_of_units.iter().chain(of_rows).map(|condition| {
            let column_type = type_of(&definition, condition)?;
            Ok((at(&condition.column)?, BoundCondition::new(&condition.relation, column_type, &scope)?))
        });
        let conditions = conditions.collect::<Result<_>>()?;
        Ok(Self { outputs, conditions, origin: definition.origin_outputs(), statements, definition })
    }

    /// The key of the joined row by the row of the unit. `None`: a part of it is null, so there is none.
    pub fn joined_key(&self, unit: &Values) -> Option<Values> {
        let joined = self.definition.joined.as_ref()?;
        let key = joined.on.iter().map(|column| {
            let place = self.statements.places.base.iter().position(|read| read == column)?;
            unit.get(place)?.clone().map(Some)
        });
        key.collect()
    }

    /// The row of the view, by its columns. `unit`: the row that was read, if there is one; `joined`: the joined row, if there is one.
    pub fn row(&self, unit: Option<&Values>, joined: Option<&Values>) -> Result<Option<Values>> {
        let Some(unit) = unit else { return Ok(None) };
        if self.definition.joined.is_some() && joined.is_none() {
            return Ok(None);
        }
        if self.statements.places.ends_with_count && is_zero(unit.last().and_then(Option::as_deref)) {
            return Ok(None);
        }
        let value = |at: At| -> Result<&Option<Vec<u8>>> {
            let found = match at {
                At::Unit(place) => unit.get(place),
                At::Joined(place) => joined.and_then(|joined| joined.get(place)),
            };
            found.ok_or_else(|| RequestError::Server("a row for a view has too few values".to_owned()))
        };
        for (at, condition) in &self.conditions {
            if !condition.holds(value(*at)?.as_deref())? {
                return Ok(None);
            }
        }
        let row = self.outputs.iter().map(|at| value(*at).cloned()).collect::<Result<Values>>()?;
        let view = &self.definition.view;
        let (partition_key, clustering_key) = row.split_at(view.partition_key_count);
        let has_key =
            partition_key.iter().chain(&clustering_key[..view.clustering_key_count]).all(Option::is_some);
        // A partition key of one empty value cannot be stored.
        let is_empty = matches!(partition_key, [Some(only)] if only.is_empty());
        Ok((has_key && !is_empty).then_some(row))
    }

    /// What the table of origins has of a row of the view, beside the unit.
    pub fn origin_of(&self, row: &Values) -> Values {
        self.origin.iter().map(|&index| row[index].clone()).collect()
    }

    /// The key of the row of the view that comes from a unit, by what the table of origins has of it.
    pub fn key_of(&self, unit: &Values, origin: &Values) -> Result<Values> {
        let damaged = || RequestError::Server("an origin of a view's row has too few values".to_owned());
        let key_columns = self.definition.view_key().count();
        let mut of_origin = origin.iter();
        let key = self.definition.outputs[..key_columns].iter().map(|output| match output.source {
            Source::Base(index) if index < self.definition.unit_columns => {
                unit.get(index).cloned().ok_or_else(damaged)
            }
            _ => of_origin.next().cloned().ok_or_else(damaged),
        });
        key.collect()
    }

    /// The unit that a row of the view comes from, by its key: all columns of a unit are in it.
    pub fn unit_of(&self, key: &Values) -> Result<Values> {
        let of_column = |column: usize| {
            let place =
                self.definition.outputs.iter().position(|output| output.source == Source::Base(column));
            place.and_then(|place| key.get(place)).cloned().ok_or_else(|| {
                let view = self.definition.view.full_name();
                RequestError::Server(format!("the key of {view} does not name what its rows come from"))
            })
        };
        (0..self.definition.unit_columns).map(of_column).collect()
    }

    /// The key of the view in a row of it.
    pub fn key_in(&self, row: &Values) -> Values {
        row[..self.definition.view_key().count()].to_vec()
    }

    /// Whether a row of the view has the same key whatever the values of its unit are.
    pub fn has_fixed_key(&self) -> bool {
        self.origin.is_empty()
    }
}

fn is_zero(count: Option<&[u8]>) -> bool {
    count.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
}

fn type_of<'d>(definition: &'d Definition, condition: &Condition) -> Result<&'d CqlType> {
    let column = match (&condition.column, &definition.joined) {
        (Source::Base(index), _) => definition.base.columns.get(*index),
        (Source::Joined(index), Some(joined)) => joined.table.columns.get(*index),
        (Source::Joined(_), None) | (Source::Expression(_), _) => None,
    };
    column.map(|column| &column.column_type).ok_or_else(|| {
        RequestError::invalid(format!("The condition {} is not on a column", condition.relation))
    })
}
