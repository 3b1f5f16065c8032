//! Sorts the relations of a WHERE clause into restrictions of partitions, restrictions of clustering columns, and
//! filters.
//!
//! Invariant: no relation is lost or counted twice; combinations that Cassandra refuses are refused.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::Comparison;

use super::resolved::{Resolved, ResolvedSubject};
use super::{
    ClusteringRestriction, Filter, FilterSubject, FilterTest, PartitionRestriction, Restrictions, SliceBound,
    TokenBound, TokenRange, TupleTerm, TupleValues, Values,
};
use crate::error::{RequestError, Result};
use crate::plan::names::list_names;
use crate::schema::catalog::Table;

pub(super) fn check_repetitions(resolved: &[Resolved], table: &Table) -> Result<()> {
    let subject_columns = |relation: &Resolved| -> Vec<usize> {
        match &relation.subject {
            ResolvedSubject::Column(column) => vec![*column],
            ResolvedSubject::Columns(columns) => columns.clone(),
            ResolvedSubject::Element { .. } | ResolvedSubject::Token { .. } => Vec::new(),
        }
    };
    // Cassandra joins these names with " ,".
    let name_of = |columns: &[usize]| {
        columns.iter().map(|&index| table.columns[index].name.as_str()).collect::<Vec<_>>().join(" ,")
    };
    for (position, relation) in resolved.iter().enumerate() {
        let columns = subject_columns(relation);
        for other in &resolved[position + 1..] {
            let other_columns = subject_columns(other);
            let common: Vec<usize> =
                columns.iter().copied().filter(|column| other_columns.contains(column)).collect();
            if common.is_empty() {
                continue;
            }
            let contains =
                |r: &Resolved| matches!(r.test, FilterTest::Contains(_) | FilterTest::ContainsKey(_));
            if contains(relation) && contains(other) {
                continue;
            }
            let is_equal = |r: &Resolved| {
                matches!(
                    r.test,
                    FilterTest::Compare(Comparison::Equal, _)
                        | FilterTest::CompareTuple(Comparison::Equal, _)
                )
            };
            let is_in = |r: &Resolved| matches!(r.test, FilterTest::In(_) | FilterTest::InTuples(_));
            let is_like = |r: &Resolved| matches!(r.test, FilterTest::Like { .. });
            // The first of the two says what is wrong.
            let shown = name_of(&common);
            if is_equal(relation) {
                return Err(RequestError::invalid(format!(
                    "{shown} cannot be restricted by more than one relation if it includes an Equal"
                )));
            }
            if is_in(relation) {
                return Err(RequestError::invalid(format!(
                    "{shown} cannot be restricted by more than one relation if it includes a IN"
                )));
            }
            if is_like(relation) {
                return Err(RequestError::invalid(format!(
                    "{shown} cannot be restricted by more than one relation if it includes a LIKE"
                )));
            }
            if is_equal(other) || is_in(other) || is_like(other) {
                return Err(RequestError::invalid(format!(
                    "Column \"{shown}\" cannot be restricted by both an equality and an inequality relation"
                )));
            }
            if columns[0] != other_columns[0] {
                return Err(RequestError::invalid(format!(
                    "Column \"{}\" cannot be restricted by two inequalities not starting with the same column",
                    table.columns[common[0]].name
                )));
            }
            let side = |r: &Resolved| match &r.test {
                FilterTest::Compare(operator, _) | FilterTest::CompareTuple(operator, _) => {
                    Some(matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual))
                }
                _ => None,
            };
            if let (Some(lower), Some(other_lower)) = (side(relation), side(other))
                && lower == other_lower
            {
                return Err(RequestError::invalid(format!(
                    "More than one restriction was found for the {} bound on {}",
                    if lower { "start" } else { "end" },
                    name_of(&common)
                )));
            }
        }
    }
    Ok(())
}

/// The restrictions of partitions, and the remaining relations.
pub(super) struct PartitionPart {
    pub(super) partition: PartitionRestriction,
    pub(super) key_tokens: Option<TokenRange>,
    pub(super) rest: Vec<Resolved>,
}

pub(super) fn partition_restriction(resolved: Vec<Resolved>, table: &Table) -> Result<PartitionPart> {
    let is_key = |relation: &Resolved| matches!(relation.subject, ResolvedSubject::Column(column) if table.columns[column].is_partition_key());
    let (tokens, rest): (Vec<_>, Vec<_>) =
        resolved.into_iter().partition(|relation| matches!(relation.subject, ResolvedSubject::Token { .. }));
    let has_tokens = !tokens.is_empty();
    let tokens = token_range(tokens, table)?;
    let complete = (0..table.partition_key_count).all(|column| {
        rest.iter().any(|relation| {
            matches!(relation.subject, ResolvedSubject::Column(index) if index == column)
                && matches!(relation.test, FilterTest::Compare(Comparison::Equal, _) | FilterTest::In(_))
        })
    });
    if !complete {
        return Ok(PartitionPart { partition: PartitionRestriction::Range(tokens), key_tokens: None, rest });
    }
    let (mut keys, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_key);
    keys.sort_by_key(|relation| match relation.subject {
        ResolvedSubject::Column(column) => column,
        _ => usize::MAX,
    });
    let values = keys.into_iter().filter_map(|relation| match relation.test {
        FilterTest::Compare(_, term) => Some(Values::One(term)),
        FilterTest::In(values) => Some(values),
        _ => None,
    });
    Ok(PartitionPart {
        partition: PartitionRestriction::Keys(values.collect()),
        key_tokens: has_tokens.then_some(tokens),
        rest,
    })
}

fn token_range(tokens: Vec<Resolved>, table: &Table) -> Result<TokenRange> {
    let (mut lower, mut upper) = (None, None);
    for relation in tokens {
        let (
            ResolvedSubject::Token { lower: is_lower, upper: is_upper, inclusive },
            FilterTest::Compare(_, term),
        ) = (relation.subject, relation.test)
        else {
            continue;
        };
        let repeated = |side: &str| {
            RequestError::invalid(format!(
                "More than one restriction was found for the {side} bound on {}",
                list_names(table.partition_key())
            ))
        };
        if is_lower && lower.replace(TokenBound { token: term.clone(), inclusive }).is_some() {
            return Err(repeated("start"));
        }
        if is_upper && upper.replace(TokenBound { token: term, inclusive }).is_some() {
            return Err(repeated("end"));
        }
    }
    Ok(TokenRange { lower, upper })
}

/// Takes the relations that form a prefix of the clustering key; the others remain as filters.
pub(super) fn clustering_restrictions(
    mut rest: Vec<Resolved>,
    table: &Table,
) -> (Vec<ClusteringRestriction>, Vec<Resolved>) {
    let offset = table.partition_key_count;
    let mut restrictions = Vec::new();
    let mut next = 0;
    while next < table.clustering_key_count {
        let starts_here = |relation: &Resolved| match &relation.subject {
            ResolvedSubject::Column(column) => *column == offset + next,
            ResolvedSubject::Columns(columns) => columns[0] == offset + next,
            _ => false,
        };
        let only_filters = |relation: &Resolved| {
            matches!(
                relation.test,
                FilterTest::Contains(_) | FilterTest::ContainsKey(_) | FilterTest::Like { .. }
            )
        };
        let (here, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|relation| starts_here(relation) && !only_filters(relation));
        rest = others;
        let is_slice = here.iter().any(|relation| relation.is_slice);
        if is_slice {
            let bounds = here.into_iter().filter_map(slice_bound).collect();
            restrictions.push(ClusteringRestriction::Slice { first: next, bounds });
            break;
        }
        let Some(relation) = here.into_iter().next() else { break };
        match relation.test {
            FilterTest::Compare(_, term) => {
                restrictions.push(ClusteringRestriction::Values { first: next, values: Values::One(term) });
                next += 1;
            }
            FilterTest::In(values) => {
                restrictions.push(ClusteringRestriction::Values { first: next, values });
                next += 1;
            }
            FilterTest::CompareTuple(_, tuple) => {
                let count = subject_width(&relation.subject);
                restrictions.push(ClusteringRestriction::Tuples {
                    first: next,
                    count,
                    values: TupleValues::One(tuple),
                });
                next += count;
            }
            FilterTest::InTuples(values) => {
                let count = subject_width(&relation.subject);
                restrictions.push(ClusteringRestriction::Tuples { first: next, count, values });
                next += count;
            }
            FilterTest::Contains(_) | FilterTest::ContainsKey(_) | FilterTest::Like { .. } => break,
        }
    }
    (restrictions, rest)
}

fn subject_width(subject: &ResolvedSubject) -> usize {
    match subject {
        ResolvedSubject::Columns(columns) => columns.len(),
        _ => 1,
    }
}

fn slice_bound(relation: Resolved) -> Option<SliceBound> {
    let count = subject_width(&relation.subject);
    let (operator, value) = match relation.test {
        FilterTest::Compare(operator, term) => (operator, TupleTerm::Terms(vec![term])),
        FilterTest::CompareTuple(operator, tuple) => (operator, tuple),
        _ => return None,
    };
    Some(SliceBound {
        count,
        value,
        is_lower: matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual),
        inclusive: matches!(operator, Comparison::GreaterOrEqual | Comparison::LessOrEqual),
    })
}

pub(super) fn into_filter(relation: Resolved) -> Result<Filter> {
    let subject = match relation.subject {
        ResolvedSubject::Column(column) => FilterSubject::Column(column),
        ResolvedSubject::Columns(columns) => FilterSubject::Columns(columns),
        ResolvedSubject::Element { column, key } => FilterSubject::Element { column, key },
        ResolvedSubject::Token { .. } => {
            return Err(RequestError::invalid("A token relation cannot be used as a filter"));
        }
    };
    Ok(Filter { subject, test: relation.test, analysis: None })
}

/// Refuses slices of several clustering columns that only a filter could apply, as Cassandra does: those behind a column that is not restricted, or behind
/// another slice.
pub fn check_tuple_slices(restrictions: &Restrictions, table: &Table) -> Result<()> {
    let offset = table.partition_key_count;
    let is_slice = |filter: &Filter| matches!(&filter.test, FilterTest::Compare(operator, _) | FilterTest::CompareTuple(operator, _) if *operator != Comparison::Equal);
    let mut filters: Vec<(usize, &Filter)> = restrictions
        .filters
        .iter()
        .filter_map(|filter| Some((*filter.subject.columns().first()?, filter)))
        .filter(|(first, _)| table.columns[*first].is_clustering())
        .map(|(first, filter)| (first - offset, filter))
        .collect();
    filters.sort_by_key(|(first, _)| *first);
    // Within a partition the filters are those that the key does not apply. Elsewhere they are all.
    let names_partitions = matches!(restrictions.partition, PartitionRestriction::Keys(_));
    let mut next = 0;
    for (first, filter) in filters {
        if !names_partitions && first == next {
            next += if is_slice(filter) { 0 } else { filter.subject.columns().len() };
        } else if is_slice(filter) && matches!(filter.test, FilterTest::CompareTuple(..)) {
            return Err(RequestError::invalid(
                "Multi-column slice restrictions cannot be used for filtering.",
            ));
        }
    }
    Ok(())
}

/// Refuses relations on clustering columns that do not form a prefix, and CONTAINS on them: they would need
/// filtering, and Cassandra has these error texts for it.
pub fn check_clustering(restrictions: &Restrictions, table: &Table) -> Result<()> {
    let offset = table.partition_key_count;
    let name = |position: usize| table.clustering_key()[position].name.as_str();
    // First columns of the relations by index in the clustering key, and all restricted columns.
    let (mut slices, mut starts, mut restricted) = (Vec::new(), Vec::new(), BTreeSet::new());
    for restriction in &restrictions.clustering {
        let (first, count) = match restriction {
            ClusteringRestriction::Values { first, .. } => (*first, 1),
            ClusteringRestriction::Tuples { first, count, .. } => (*first, *count),
            ClusteringRestriction::Slice { first, bounds } => {
                slices.push(*first);
                (*first, bounds.iter().map(|bound| bound.count).max().unwrap_or(1))
            }
        };
        starts.push(first);
        restricted.extend(first..first + count);
    }
    let mut has_contains = false;
    for filter in &restrictions.filters {
        let columns = filter.subject.columns();
        let Some(&first) = columns.first().filter(|&&index| table.columns[index].is_clustering()) else {
            continue;
        };
        if let FilterTest::Compare(operator, _) | FilterTest::CompareTuple(operator, _) = &filter.test
            && *operator != Comparison::Equal
        {
            slices.push(first - offset);
        }
        has_contains |= matches!(filter.test, FilterTest::Contains(_) | FilterTest::ContainsKey(_));
        starts.push(first - offset);
        restricted.extend(columns.iter().map(|index| index - offset));
    }
    starts.sort_unstable();
    if let Some(&slice) = slices.iter().min()
        && let Some(&later) = starts.iter().find(|start| **start > slice)
    {
        return Err(RequestError::invalid(format!(
            "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ relation)",
            name(later),
            name(slice)
        )));
    }
    if has_contains {
        return Err(RequestError::invalid(
            "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
        ));
    }
    for (expected, &actual) in restricted.iter().enumerate() {
        if expected != actual {
            return Err(RequestError::invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                name(actual),
                name(expected)
            )));
        }
    }
    Ok(())
}
