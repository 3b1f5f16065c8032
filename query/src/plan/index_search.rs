//! The restrictions of a SELECT that indexes decide.
//!
//! Invariants:
//! * A restriction that an index decides stays among the filters. The search only leaves out rows that do not pass them.
//! * Which statements need ALLOW FILTERING is as in Cassandra 5.0.

mod bound_search;
mod support;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use cql_lite::syntax::ast::Comparison;
use cql_lite::types::CqlType;
use cql_lite::types::ordered::OrderedError;
use helenus_engine::secondary_index::{IndexId, IndexRestriction, TermRange};

pub use self::bound_search::{BoundSearch, RestrictedPart};
use self::support::{Operation, demands, demands_of_keys, narrows, supports};
use super::like_pattern::LikeKind;
use super::restrictions::{
    Filter, FilterSubject, FilterTest, PartitionRestriction, Restrictions, null_value, tuple_components,
};
use super::term::Bindings;
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, Table};
use crate::schema::index::{Index, IndexKind};
use crate::schema::index_terms::{TermEncoding, encoding_of, engine_id};

/// How a SELECT finds its rows by indexes.
#[derive(Debug)]
pub struct IndexPlan {
    restrictions: Vec<PlannedRestriction>,
}

/// A restriction that an index decides, or both ends of a range.
#[derive(Debug)]
struct PlannedRestriction {
    index: IndexId,
    part: RestrictedPart,
    encoding: TermEncoding,
    filter: Filter,
    /// The other ends, if the filter is an end of a range.
    other_ends: Vec<Filter>,
    /// The number of the indexed column among those of the filter.
    position: usize,
}

/// What indexes do for a SELECT.
#[derive(Debug)]
pub(super) struct IndexUse {
    pub(super) plan: Option<IndexPlan>,
    /// The statement counts as one that reads by an index, with what is then not allowed.
    pub(super) is_read_by_index: bool,
    /// Indexes decide all restrictions that the key does not.
    pub(super) decides_all: bool,
    /// Storage-attached ones do.
    pub(super) attached_decide_all: bool,
}

/// Finds the indexes for the restrictions of a SELECT. Filters that an index with a text analysis decides get that analysis.
pub(super) fn use_indexes(table: &Table, restrictions: &mut Restrictions) -> Result<IndexUse> {
    let has_none = restrictions.filters.is_empty();
    let nothing = IndexUse {
        plan: None,
        is_read_by_index: false,
        decides_all: has_none,
        attached_decide_all: has_none,
    };
    if table.indexes.is_empty() || restrictions.filters.is_empty() {
        return Ok(nothing);
    }
    refuse_vectors(table, restrictions)?;
    let demands = demands(restrictions, table);
    let of_keys = demands_of_keys(restrictions, table);
    let is_read_by_index = demands.iter().chain(&of_keys).any(|demand| demand.has_index(table));
    let decides_all =
        groups(table).iter().any(|group| demands.iter().all(|demand| demand.is_met(group, table)));
    let attached: Vec<&Index> = attached(table).collect();
    let attached_decide_all = demands.iter().all(|demand| demand.is_met(&attached, table));
    let mut planned: Vec<PlannedRestriction> = Vec::new();
    for filter in &mut restrictions.filters {
        let operation = Operation::of(filter);
        for (position, &column) in filter.subject.columns().to_vec().iter().enumerate() {
            let column = &table.columns[column];
            let Some((index, encoding)) = index_for(table, column, operation) else { continue };
            if supports(index, column, operation) && can_be_analyzed(filter) {
                filter.analysis = encoding.analysis();
            }
            let id = engine_id(table, column, index, &encoding);
            let part = RestrictedPart::of(column);
            let range = planned.iter_mut().find(|other| {
                operation == Operation::Range
                    && other.index == id
                    && Operation::of(&other.filter) == Operation::Range
            });
            if let Some(range) = range {
                range.other_ends.push(filter.clone());
            } else {
                let (filter, other_ends) = (filter.clone(), Vec::new());
                planned.push(PlannedRestriction { index: id, part, encoding, filter, other_ends, position });
            }
        }
    }
    // Rows that the statement names are read directly.
    let names_rows =
        matches!(restrictions.partition, PartitionRestriction::Keys(_)) && restrictions.names_rows(table);
    let plan = (!planned.is_empty() && !names_rows).then_some(IndexPlan { restrictions: planned });
    Ok(IndexUse { plan, is_read_by_index, decides_all, attached_decide_all })
}

/// Whether a filter compares with the analysis of an index that decides it. Tuples are compared exactly: an index only narrows them. No row is
/// missed, because the analysed term of a value is a term of every row with just this value.
fn can_be_analyzed(filter: &Filter) -> bool {
    let is_analyzed_test = matches!(
        filter.test,
        FilterTest::Compare(..)
            | FilterTest::Contains(_)
            | FilterTest::ContainsKey(_)
            | FilterTest::Like { .. }
    );
    is_analyzed_test && matches!(filter.subject, FilterSubject::Column(_))
}

/// The index that decides a restriction of a column, or at least narrows it.
fn index_for<'t>(
    table: &'t Table,
    column: &Column,
    operation: Operation,
) -> Option<(&'t Index, TermEncoding)> {
    let usable = |index: &&'t Index| narrows(index, column, operation);
    // Of several for LIKE, that for the parts of texts finds all patterns.
    let is_preferred = |index: &&Index| match operation {
        Operation::Like => index.finds_parts_of_texts(),
        _ => index.kind == IndexKind::StorageAttached,
    };
    let (preferred, others): (Vec<&Index>, Vec<&Index>) =
        table.indexes.iter().map(AsRef::as_ref).filter(usable).partition(is_preferred);
    preferred.into_iter().chain(others).find_map(|index| Some((index, encoding_of(column, index)?)))
}

fn attached(table: &Table) -> impl Iterator<Item = &Index> {
    table.indexes.iter().map(AsRef::as_ref).filter(|index| index.kind == IndexKind::StorageAttached)
}

/// The indexes that can be used together without filtering: all storage-attached ones, and each of the others by itself.
fn groups(table: &Table) -> Vec<Vec<&Index>> {
    let (attached, others): (Vec<&Index>, Vec<&Index>) =
        table.indexes.iter().map(AsRef::as_ref).partition(|index| index.kind == IndexKind::StorageAttached);
    let others = others.into_iter().map(|index| vec![index]);
    others.chain((!attached.is_empty()).then_some(attached)).collect()
}

/// Refuses restrictions of columns with an index for vectors.
fn refuse_vectors(table: &Table, restrictions: &Restrictions) -> Result<()> {
    let mut columns = restrictions.filters.iter().flat_map(|filter| filter.subject.columns());
    let is_refused = columns.any(|&column| {
        let column = &table.columns[column];
        matches!(column.column_type, CqlType::Vector { .. })
            && !column.is_primary_key()
            && table.indexes.iter().any(|index| index.column_id == column.id)
    });
    if is_refused {
        return Err(RequestError::invalid("Vector indexes only support ANN queries"));
    }
    Ok(())
}

impl IndexPlan {
    /// The search with the values of a request. `None`: no row can be found.
    pub fn bind(&self, table: &Table, bindings: &Bindings<'_>) -> Result<Option<BoundSearch>> {
        let mut restrictions = Vec::with_capacity(self.restrictions.len());
        let mut finds_rows = true;
        for planned in &self.restrictions {
            match planned.terms(table, bindings)? {
                Some(terms) => {
                    restrictions.push((planned.part, IndexRestriction { index: planned.index, terms }));
                }
                None => finds_rows = false,
            }
        }
        Ok(finds_rows.then_some(BoundSearch { restrictions }))
    }
}

impl PlannedRestriction {
    /// The terms that rows must have one of. `None`: no term does.
    fn terms(&self, table: &Table, bindings: &Bindings<'_>) -> Result<Option<TermRange>> {
        let filter = &self.filter;
        let one = |term: Vec<u8>| Ok(Some(TermRange::OneOf(vec![term])));
        match &filter.test {
            FilterTest::Compare(Comparison::Equal, term) => {
                let value = checked(filter.value(term, table, bindings)?)?;
                match filter.element_key(table, bindings)? {
                    Some(key) => one(self.encoding.entry_term(&key, &value).map_err(not_encoded)?),
                    None => one(self.encoding.term(&value).map_err(not_encoded)?),
                }
            }
            FilterTest::Contains(term) | FilterTest::ContainsKey(term) => {
                let value = checked(filter.value(term, table, bindings)?)?;
                one(self.encoding.term(&value).map_err(not_encoded)?)
            }
            FilterTest::CompareTuple(_, tuple) => {
                let columns = filter.subject.columns().iter().map(|&column| table.columns[column].clone());
                let values = tuple_components(tuple, &columns.collect::<Vec<_>>(), bindings, null_value)?;
                let value = checked(&values[self.position])?;
                one(self.encoding.term(value).map_err(not_encoded)?)
            }
            FilterTest::In(values) => {
                let values = filter.in_values(values, table, bindings)?;
                let terms = values.iter().map(|value| self.encoding.term(value));
                let mut terms = terms.collect::<Result<Vec<_>, _>>().map_err(not_encoded)?;
                terms.sort_unstable();
                terms.dedup();
                Ok((!terms.is_empty()).then_some(TermRange::OneOf(terms)))
            }
            FilterTest::Like { pattern, finds_parts } => {
                let pattern = filter.like_pattern(pattern, *finds_parts, table, bindings)?;
                match pattern.kind {
                    LikeKind::Whole => one(self.encoding.term(&pattern.text).map_err(not_encoded)?),
                    LikeKind::Prefix => {
                        self.encoding.terms_with_prefix(&pattern.text).map(Some).map_err(not_encoded)
                    }
                    // Terms are in the order of their starts: any may have the text further behind.
                    LikeKind::Suffix | LikeKind::Contains => {
                        Ok(Some(TermRange::Between { lower: Bound::Unbounded, upper: Bound::Unbounded }))
                    }
                }
            }
            FilterTest::Compare(..) => self.range(table, bindings),
            FilterTest::InTuples(_) => unreachable!("no index narrows IN on tuples"),
        }
    }

    fn range(&self, table: &Table, bindings: &Bindings<'_>) -> Result<Option<TermRange>> {
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        for filter in std::iter::once(&self.filter).chain(&self.other_ends) {
            let FilterTest::Compare(operator, term) = &filter.test else { continue };
            let value = checked(filter.value(term, table, bindings)?)?;
            let inclusive = matches!(operator, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
            let bound = self.encoding.bound(&value, inclusive).map_err(not_encoded)?;
            if matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual) {
                lower = bound;
            } else {
                upper = bound;
            }
        }
        let is_empty = match (&lower, &upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            _ => false,
        };
        Ok((!is_empty).then_some(TermRange::Between { lower, upper }))
    }
}

/// Refuses a value that is longer than Cassandra's indexes take.
fn checked<B: AsRef<[u8]>>(value: B) -> Result<B> {
    if value.as_ref().len() > usize::from(u16::MAX) {
        return Err(RequestError::invalid("Index expression values may not be larger than 64K"));
    }
    Ok(value)
}

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn not_encoded(error: OrderedError) -> RequestError {
    RequestError::invalid(error.to_string())
}
