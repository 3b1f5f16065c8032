//! What a SELECT wants of its table: the columns that it compares, orders by and reads.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::{self, Comparison, Expression, InValues, Literal, Relation, Subject};
use helenus_query::error::Result;
use helenus_query::plan::Plan;
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::{Column, Table};

use crate::schema::Schema;

/// The wishes of a SELECT. Columns are indexes in [`Table::columns`].
#[derive(Debug)]
pub struct Need {
    /// Compared with one value or with several, in the order of the statement.
    pub equal: Vec<usize>,
    /// Bounded from one side or both.
    pub ranged: Vec<usize>,
    /// With `true` for descending.
    pub ordered: Vec<(usize, bool)>,
    /// Neither the key nor an index decides those that the plan filters by.
    pub filtered: Vec<usize>,
    /// All that the result depends on.
    pub read: BTreeSet<usize>,
    /// What no key can decide: CONTAINS, LIKE, tokens, elements of maps, unequal values.
    pub has_other: bool,
    pub limit: Option<u64>,
}

impl Need {
    /// Of a SELECT, with its plan by which it runs, if need be, with filtering and without its order.
    pub fn of(schema: &Schema, select: &ast::Select) -> Result<(Self, SelectPlan)> {
        let unordered = ast::Select { order_by: Vec::new(), allow_filtering: true, ..select.clone() };
        let plan = match schema.plan(ast::Statement::Select(select.clone())) {
            Ok(Plan::Select(plan)) => plan,
            _ => match schema.plan(ast::Statement::Select(unordered))? {
                Plan::Select(plan) => plan,
                _ => unreachable!("the plan of a SELECT is one of a SELECT"),
            },
        };
        let table = plan.table.clone();
        let mut need = Self {
            equal: Vec::new(),
            ranged: Vec::new(),
            ordered: Vec::new(),
            filtered: Vec::new(),
            read: plan.read_columns.clone(),
            has_other: false,
            limit: limit_of(select),
        };
        for relation in &select.relations {
            need.add(&table, relation);
        }
        for order in &select.order_by {
            match table.column_index(order.column.as_str()) {
                Some(column) if order.nearest_to.is_none() => {
                    need.ordered.push((column, order.direction == ast::Direction::Descending));
                    need.read.insert(column);
                }
                _ => need.has_other = true,
            }
        }
        for filter in &plan.restrictions.filters {
            for column in filter.subject.columns() {
                if !need.filtered.contains(column) {
                    need.filtered.push(*column);
                }
            }
        }
        Ok((need, plan))
    }

    fn add(&mut self, table: &Table, relation: &Relation) {
        let list = match relation {
            Relation::Compare { subject: Subject::Column(_), operator: Comparison::Equal, .. }
            | Relation::In { subject: Subject::Column(_), negated: false, .. } => &mut self.equal,
            Relation::Compare {
                subject: Subject::Column(_),
                operator:
                    Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual,
                ..
            }
            | Relation::Between { subject: Subject::Column(_), .. } => &mut self.ranged,
            _ => {
                self.has_other = true;
                return;
            }
        };
        for column in relation.columns() {
            if let Some(index) = table.column_index(column.as_str())
                && !list.contains(&index)
            {
                list.push(index);
            }
        }
    }
}

/// A LIMIT that is written as a number.
fn limit_of(select: &ast::Select) -> Option<u64> {
    match select.limit.as_ref()? {
        Expression::Literal(Literal::Integer(text)) => text.parse().ok(),
        _ => None,
    }
}

/// The partitions that a SELECT names by IN and =: the product of the values. A marker for a whole list counts as one.
pub fn keys_named(select: &ast::Select, table: &Table) -> u64 {
    let is_key = |name: &ast::Identifier| table.column(name.as_str()).is_some_and(Column::is_partition_key);
    let counts = select.relations.iter().map(|relation| match relation {
        Relation::In {
            subject: Subject::Column(column),
            negated: false,
            values: InValues::Values(values),
        } if is_key(column) => values.len() as u64,
        _ => 1,
    });
    counts.fold(1, u64::saturating_mul)
}
