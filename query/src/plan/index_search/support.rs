//! Which restrictions an index supports, as in Cassandra 5.0: whether a statement needs ALLOW FILTERING depends on it.

use cql_lite::syntax::ast::Comparison;
use cql_lite::types::CqlType;

use crate::plan::restrictions::{
    ClusteringRestriction, Filter, FilterSubject, FilterTest, PartitionRestriction, Restrictions,
    TupleValues, Values,
};
use crate::schema::catalog::{Column, Table};
use crate::schema::index::{Index, IndexKind, IndexedPart};

/// What a restriction asks of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Equal,
    In,
    /// Of several columns as tuples.
    InTuples,
    Range,
    /// Of several columns as one tuple.
    TupleRange,
    Contains,
    ContainsKey,
    /// The value at a key of a map.
    EntryEqual,
    Like,
}

impl Operation {
    pub(super) fn of(filter: &Filter) -> Self {
        let is_element = matches!(filter.subject, FilterSubject::Element { .. });
        match &filter.test {
            FilterTest::Compare(Comparison::Equal, _) if is_element => Self::EntryEqual,
            FilterTest::Compare(Comparison::Equal, _) | FilterTest::CompareTuple(Comparison::Equal, _) => {
                Self::Equal
            }
            FilterTest::Compare(..) => Self::Range,
            FilterTest::CompareTuple(..) => Self::TupleRange,
            FilterTest::In(_) => Self::In,
            FilterTest::InTuples(_) => Self::InTuples,
            FilterTest::Contains(_) => Self::Contains,
            FilterTest::ContainsKey(_) => Self::ContainsKey,
            FilterTest::Like { .. } => Self::Like,
        }
    }

    /// Whether the operation is on the elements of a collection. Cassandra counts all of one column as one restriction.
    fn is_on_elements(self) -> bool {
        matches!(self, Self::Contains | Self::ContainsKey | Self::EntryEqual)
    }
}

/// Whether an index decides restrictions of this kind of a column.
pub(super) fn supports(index: &Index, column: &Column, operation: Operation) -> bool {
    if index.column_id != column.id || matches!(column.column_type, CqlType::Vector { .. }) {
        return false;
    }
    match operation {
        Operation::Equal => match index.part {
            IndexedPart::Value | IndexedPart::Full => !index.finds_parts_of_texts(),
            IndexedPart::Values | IndexedPart::Keys | IndexedPart::Entries => false,
        },
        Operation::Range => index.part == IndexedPart::Value && supports_ranges(index, &column.column_type),
        Operation::Contains => index.part == IndexedPart::Values,
        Operation::ContainsKey => index.part == IndexedPart::Keys,
        Operation::EntryEqual => index.part == IndexedPart::Entries,
        Operation::Like => index.decides_like(&column.column_type),
        Operation::In | Operation::InTuples | Operation::TupleRange => false,
    }
}

/// Whether an index finds the rows of a restriction, even if statements must say ALLOW FILTERING for it.
pub(super) fn narrows(index: &Index, column: &Column, operation: Operation) -> bool {
    let asked = if operation == Operation::In { Operation::Equal } else { operation };
    supports(index, column, asked)
}

fn supports_ranges(index: &Index, column_type: &CqlType) -> bool {
    let is_text = matches!(column_type, CqlType::Text | CqlType::Ascii);
    match index.kind {
        IndexKind::Legacy => false,
        IndexKind::Sasi => !is_text && !index.finds_parts_of_texts(),
        IndexKind::StorageAttached => {
            !is_text
                && !matches!(
                    column_type,
                    CqlType::Boolean
                        | CqlType::Uuid
                        | CqlType::List { .. }
                        | CqlType::Set { .. }
                        | CqlType::Map { .. }
                        | CqlType::Tuple(_)
                        | CqlType::UserType { .. }
                )
        }
    }
}

/// A restriction that the key does not decide, or several on the elements of one collection.
pub(super) struct Demand {
    columns: Vec<usize>,
    operations: Vec<Operation>,
}

impl Demand {
    /// Whether there is an index for it, or for one of its columns.
    pub(super) fn has_index(&self, table: &Table) -> bool {
        let indexes: Vec<&Index> = table.indexes.iter().map(AsRef::as_ref).collect();
        self.columns.iter().any(|&column| self.supporting(&indexes, &table.columns[column]).is_some())
    }

    /// Whether a group of indexes decides it without filtering.
    pub(super) fn is_met(&self, group: &[&Index], table: &Table) -> bool {
        let is_several = self.operations.len() > 1;
        self.columns.iter().all(|&column| {
            // Only storage-attached indexes are combined.
            let found = self.supporting(group, &table.columns[column]);
            found.is_some_and(|index| !is_several || index.kind == IndexKind::StorageAttached)
        })
    }

    fn supporting<'i>(&self, indexes: &[&'i Index], column: &Column) -> Option<&'i Index> {
        let supports_one =
            |index: &&&Index| self.operations.iter().any(|operation| supports(index, column, *operation));
        indexes.iter().find(supports_one).copied()
    }
}

/// The restrictions that indexes or filtering decide. Those of clustering columns are among them all together.
pub(super) fn demands(restrictions: &Restrictions, table: &Table) -> Vec<Demand> {
    let mut demands: Vec<Demand> = Vec::new();
    for filter in &restrictions.filters {
        let (columns, operation) = (filter.subject.columns(), Operation::of(filter));
        let same_collection = demands.iter_mut().find(|demand| {
            operation.is_on_elements()
                && demand.columns == columns
                && demand.operations.iter().all(|other| other.is_on_elements())
        });
        match same_collection {
            Some(demand) => demand.operations.push(operation),
            None => demands.push(Demand { columns: columns.to_vec(), operations: vec![operation] }),
        }
    }
    let filters_clustering = restrictions
        .filters
        .iter()
        .flat_map(|filter| filter.subject.columns())
        .any(|&column| table.columns[column].is_clustering());
    if filters_clustering && matches!(restrictions.partition, PartitionRestriction::Keys(_)) {
        demands.extend(restrictions.clustering.iter().map(|restriction| of_clustering(restriction, table)));
    }
    demands
}

/// The restrictions that the key decides. If some are left to indexes or filtering, an index for one of these makes the statement one that
/// reads by an index, as in Cassandra.
pub(super) fn demands_of_keys(restrictions: &Restrictions, table: &Table) -> Vec<Demand> {
    let operation =
        |values: &Values| if matches!(values, Values::One(_)) { Operation::Equal } else { Operation::In };
    let keys: &[Values] = match &restrictions.partition {
        PartitionRestriction::Keys(keys) => keys,
        PartitionRestriction::Range(_) => &[],
    };
    let of_keys = keys.iter().enumerate();
    let of_partition =
        of_keys.map(|(column, values)| Demand { columns: vec![column], operations: vec![operation(values)] });
    of_partition.chain(restrictions.clustering.iter().map(|one| of_clustering(one, table))).collect()
}

fn of_clustering(restriction: &ClusteringRestriction, table: &Table) -> Demand {
    let (first, count, operation) = match restriction {
        ClusteringRestriction::Values { first, values: Values::One(_) } => (*first, 1, Operation::Equal),
        ClusteringRestriction::Values { first, .. } => (*first, 1, Operation::In),
        ClusteringRestriction::Tuples { first, count, values: TupleValues::One(_) } => {
            (*first, *count, Operation::Equal)
        }
        ClusteringRestriction::Tuples { first, count, .. } => (*first, *count, Operation::InTuples),
        ClusteringRestriction::Slice { first, bounds } => {
            let count = bounds.iter().map(|bound| bound.count).max().unwrap_or(1);
            (*first, count, if count == 1 { Operation::Range } else { Operation::TupleRange })
        }
    };
    let first = table.partition_key_count + first;
    Demand { columns: (first..first + count).collect(), operations: vec![operation] }
}
