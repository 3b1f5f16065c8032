//! `ORDER BY column ANN OF vector`: the rows whose vectors are nearest.
//!
//! Invariant: which statements are allowed is as in Cassandra 5.0. Indexes decide all restrictions that the key does not.

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;
use helenus_engine::secondary_index::{IndexId, IndexSearch, NearestSearch, VectorIndex};
use helenus_vectors::{Target, floats};

use super::index_search::{BoundSearch, IndexPlan, IndexUse};
use super::names::{NameScope, column_of};
use super::restrictions::Restrictions;
use super::selection::Fetched;
use super::term::{Bindings, Bound, Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;
use crate::schema::index_terms::id_of;

/// The most rows that a statement may ask for.
pub const ROWS_MAX: u64 = 1_000;

const LIMIT_NEEDED: &str =
    "Top-K queries must have a limit specified and the limit must be less than the query page size";

/// How a SELECT finds the nearest rows.
#[derive(Debug)]
pub struct NearestPlan {
    /// The slot of the vectors among the fetched columns.
    pub slot: usize,
    index: IndexId,
    vectors: VectorIndex,
    column: usize,
    target: Term,
    /// The restrictions that other indexes decide.
    restrictions: Option<IndexPlan>,
}

/// The search of a request: the plan with its values.
#[derive(Debug)]
pub struct BoundNearest {
    index: IndexId,
    target: Vec<u8>,
    restrictions: Option<BoundSearch>,
}

impl BoundNearest {
    /// The restrictions that other indexes decide, if there are any.
    pub fn restrictions(&self) -> Option<&BoundSearch> {
        self.restrictions.as_ref()
    }

    /// The search by all restrictions: for a replica that answers alone.
    pub fn by_all(&self, wanted: usize) -> NearestSearch {
        self.by(self.restrictions.as_ref().map(BoundSearch::by_all), wanted)
    }

    /// The search by those on the key, which is with the vector. A row's restricted columns may be at other replicas than its vector: whoever reads
    /// the rows decides those.
    pub fn by_keys(&self, wanted: usize) -> NearestSearch {
        self.by(self.restrictions.as_ref().map(BoundSearch::by_keys), wanted)
    }

    fn by(&self, search: Option<IndexSearch>, wanted: usize) -> NearestSearch {
        let restrictions = search.map(|search| search.restrictions).unwrap_or_default();
        NearestSearch { index: self.index, target: self.target.clone(), restrictions, wanted }
    }
}

/// The index and the target of an ordering, before the restrictions are known.
pub(super) struct NearestOrder {
    index: IndexId,
    vectors: VectorIndex,
    column: usize,
    target: Term,
}

/// Resolves the ordering of a SELECT, if it is one by distance.
pub(super) fn resolve_nearest(
    statement: &ast::Select,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Option<NearestOrder>> {
    let orders = &statement.order_by;
    let mut nearest = orders.iter().filter_map(|item| Some((item, item.nearest_to.as_ref()?)));
    let Some((item, expression)) = nearest.next() else { return Ok(None) };
    if nearest.next().is_some() {
        return Err(RequestError::invalid("Cannot specify more than one ANN ordering"));
    }
    if orders.len() > 1 {
        return Err(RequestError::invalid("ANN ordering does not support any other ordering"));
    }
    if item.direction == ast::Direction::Descending {
        return Err(RequestError::invalid("Descending ANN ordering is not supported"));
    }
    let number = column_of(table, &item.column)?;
    let column = &table.columns[number];
    if !matches!(&column.column_type, CqlType::Vector { element, .. } if **element == CqlType::Float) {
        return Err(RequestError::invalid("ANN ordering is only supported on float vector indexes"));
    }
    let mut of_column = table.indexes.iter().filter(|index| index.column_id == column.id);
    let found = of_column.find_map(|index| Some((id_of(table, index)?, index.vectors(&column.column_type)?)));
    let Some((index, vectors)) = found else {
        return Err(RequestError::invalid("ANN ordering by vector requires the column to be indexed"));
    };
    let receiver = Receiver::new(column.name.clone(), column.column_type.clone());
    let target = resolve(expression, &receiver, scope, markers)?;
    Ok(Some(NearestOrder { index, vectors, column: number, target }))
}

impl NearestOrder {
    /// Refuses restrictions that do not go together with the ordering. Before indexes are found for them.
    pub fn check_column(&self, table: &Table, restrictions: &Restrictions) -> Result<()> {
        let mut restricted = restrictions.filters.iter().flat_map(|filter| filter.subject.columns());
        if restricted.any(|column| *column == self.column) {
            return Err(RequestError::invalid(format!(
                "{} cannot be restricted by more than one relation in an ANN ordering",
                table.columns[self.column].name
            )));
        }
        Ok(())
    }

    /// The plan of a statement with these restrictions. `is_grouped`: its rows are collected into groups.
    pub fn plan(
        self,
        statement: &ast::Select,
        fetched: &mut Fetched,
        index_use: &mut IndexUse,
        is_grouped: bool,
    ) -> Result<NearestPlan> {
        if !index_use.attached_decide_all {
            return Err(RequestError::invalid(
                "ANN ordering by vector requires all restricted column(s) to be indexed",
            ));
        }
        if is_grouped {
            return Err(RequestError::invalid("Top-K queries can not be run with aggregation"));
        }
        if statement.distinct {
            return Err(RequestError::invalid(
                "SELECT DISTINCT is not supported with ANN ordering by Helenus",
            ));
        }
        if statement.limit.is_none() {
            return Err(RequestError::invalid(LIMIT_NEEDED));
        }
        if statement.per_partition_limit.is_some() {
            return Err(RequestError::invalid("Top-K queries do not support per-partition limits"));
        }
        let Self { index, vectors, column, target } = self;
        let restrictions = index_use.plan.take();
        Ok(NearestPlan { slot: fetched.slot(column), index, vectors, column, target, restrictions })
    }
}

impl NearestPlan {
    /// The number of rows that a request wants, by the value of its LIMIT.
    pub fn wanted(limit: Option<u64>) -> Result<usize> {
        match limit {
            None => Err(RequestError::invalid(LIMIT_NEEDED)),
            Some(limit) if limit > ROWS_MAX => Err(RequestError::invalid(format!(
                "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than {ROWS_MAX}. LIMIT was {limit}"
            ))),
            Some(limit) => Ok(limit as usize),
        }
    }

    fn target_bytes<'a>(
        &'a self,
        table: &Table,
        bindings: &Bindings<'a>,
    ) -> Result<std::borrow::Cow<'a, [u8]>> {
        let refuse = |what: &str| {
            let name = &table.columns[self.column].name;
            Err(RequestError::invalid(format!("Unsupported {what} value for column {name}")))
        };
        match self.target.evaluate(bindings)? {
            Bound::Bytes(bytes) => Ok(bytes),
            Bound::Null => refuse("null"),
            Bound::Unset => refuse("unset"),
        }
    }

    /// The vector that a request looks for.
    pub fn target(&self, table: &Table, bindings: &Bindings<'_>) -> Result<Target> {
        let vector: Vec<f32> = floats(&self.target_bytes(table, bindings)?).collect();
        let similarity = self.vectors.similarity;
        similarity.check(&vector).map_err(|error| RequestError::invalid(error.to_string()))?;
        Ok(Target::new(similarity, vector))
    }

    /// The search of a request. `None`: no row can be found.
    pub fn bind(&self, table: &Table, bindings: &Bindings<'_>) -> Result<Option<BoundNearest>> {
        let restrictions = match &self.restrictions {
            None => None,
            Some(plan) => match plan.bind(table, bindings)? {
                None => return Ok(None),
                restrictions => restrictions,
            },
        };
        let target = self.target_bytes(table, bindings)?.into_owned();
        Ok(Some(BoundNearest { index: self.index, target, restrictions }))
    }
}
