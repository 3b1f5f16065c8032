//! The WHERE clause: the partitions and positions that a statement addresses, and the filters.

mod bound_values;
mod relation;
mod resolved;
mod restriction;
mod sorting;

use cql_lite::syntax::ast::{self, Comparison};

pub use self::bound_values::{list_elements, no_null, split_tuple, tuple_components};
use self::relation::resolve_relation;
pub use self::relation::{not_like, resolve_values};
use self::resolved::ResolvedSubject;
pub use self::restriction::{
    ClusteringRestriction, Filter, FilterSubject, FilterTest, PartitionRestriction, REQUIRES_ALLOW_FILTERING,
    Restrictions, SliceBound, TokenBound, TokenRange, TupleTerm, TupleValues, Values, null_value,
    unset_value,
};
use self::sorting::{
    PartitionPart, check_repetitions, clustering_restrictions, into_filter, partition_restriction,
};
pub use self::sorting::{check_clustering, check_tuple_slices};
use super::names::NameScope;
use super::term::Markers;
use crate::error::Result;
use crate::schema::catalog::Table;

/// Resolves and sorts the relations of a WHERE clause. `allow_filtering`: relations that filter are permitted.
pub fn resolve_relations(
    relations: &[ast::Relation],
    scope: &NameScope<'_>,
    table: &Table,
    markers: &mut Markers,
) -> Result<Restrictions> {
    let mut resolved = Vec::with_capacity(relations.len());
    for relation in relations {
        resolve_relation(relation, scope, table, markers, &mut resolved)?;
    }
    check_repetitions(&resolved, table)?;
    let equal_columns = resolved
        .iter()
        .filter_map(|relation| match (&relation.subject, &relation.test) {
            (ResolvedSubject::Column(column), FilterTest::Compare(Comparison::Equal, _)) => {
                Some(vec![*column])
            }
            (ResolvedSubject::Columns(columns), FilterTest::CompareTuple(Comparison::Equal, _)) => {
                Some(columns.clone())
            }
            _ => None,
        })
        .flatten()
        .collect();
    let PartitionPart { partition, key_tokens, rest } = partition_restriction(resolved, table)?;
    let (clustering, rest) = if matches!(partition, PartitionRestriction::Keys(_)) {
        clustering_restrictions(rest, table)
    } else {
        (Vec::new(), rest)
    };
    let filters = rest.into_iter().map(into_filter).collect::<Result<_>>()?;
    Ok(Restrictions { partition, key_tokens, clustering, filters, equal_columns })
}
