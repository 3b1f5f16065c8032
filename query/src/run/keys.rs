//! Computes addresses from restrictions and bind values: partition keys with their tokens, positions and slices.
//!
//! Invariants: partitions are in the order of their key values, without repetitions. Slices are half open, disjoint
//! and ascending (`helenus_engine::key` explains positions).

use std::borrow::Cow;

use cql_lite::types::{CqlType, compare, ordered};
use helenus_engine::key::{PREFIX_OVERHEAD_BYTES, REGULAR_TAG, put_partition_prefix};
use smallvec::{SmallVec, smallvec};

use crate::error::{RequestError, Result};
use crate::plan::restrictions::{
    ClusteringRestriction, PartitionRestriction, Restrictions, SliceBound, TupleTerm, TupleValues, Values,
    list_elements, no_null, null_value, split_tuple, tuple_components, unset_value,
};
use crate::plan::term::{Bindings, Bound, Term};
use crate::schema::catalog::{Column, Table};
use crate::stored_key::{MAX_KEY_BYTES, PartitionKey, check_key, composite_key, key_too_long};

/// Inline buffer size for the clustering bytes of a row: most are shorter.
const CLUSTERING_BYTES: usize = 32;
/// Most partitions or positions that one statement may name by IN.
const MAX_COMBINATIONS: usize = 65_535;
/// Most bytes of all keys together that one statement may name by IN: combinations of long values.
const MAX_COMBINED_BYTES: usize = 64 << 20;

/// A half-open range of positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

impl Slice {
    /// All rows of a partition.
    pub fn all_rows() -> Self {
        whole(&[REGULAR_TAG])
    }
}

/// The value of a term that must not be null or unset.
pub fn required<'a>(term: &'a Term, column: &str, bindings: &Bindings<'a>) -> Result<Cow<'a, [u8]>> {
    match term.evaluate(bindings)? {
        Bound::Bytes(bytes) => Ok(bytes),
        Bound::Null => Err(null_value(column)),
        Bound::Unset => Err(unset_value(column)),
    }
}

/// The permitted values of a column.
pub fn column_values<'a>(
    values: &'a Values,
    column: &Column,
    bindings: &Bindings<'a>,
) -> Result<Vec<Cow<'a, [u8]>>> {
    match values {
        Values::List(term) => {
            let list = match term.evaluate(bindings)? {
                Bound::Null => return Err(no_null(&column.name)),
                _ => required(term, &column.name, bindings)?,
            };
            list_elements(&list, &column.name)
        }
        values => values.terms().iter().map(|term| required(term, &column.name, bindings)).collect(),
    }
}

/// The partitions that a statement names, mostly one.
pub type PartitionKeys = SmallVec<[PartitionKey; 1]>;

/// The partitions that a statement names.
pub fn partition_keys(keys: &[Values], table: &Table, bindings: &Bindings<'_>) -> Result<PartitionKeys> {
    if let Some(key) = only_partition_key(keys, table, bindings)? {
        return Ok(smallvec![PartitionKey::of(table.partitioner(), key.into_owned())]);
    }
    let mut combinations: Vec<Vec<Cow<'_, [u8]>>> = vec![Vec::new()];
    for (values, column) in keys.iter().zip(table.partition_key()) {
        let mut values = column_values(values, column, bindings)?;
        values.sort_by(|a, b| compare::compare(&column.column_type, a, b));
        values.dedup();
        if combinations.len() * values.len() > MAX_COMBINATIONS {
            return Err(RequestError::invalid(format!(
                "An IN restriction names more than {MAX_COMBINATIONS} partitions"
            )));
        }
        let bytes_of = |values: &[Cow<'_, [u8]>]| values.iter().map(|value| value.len()).sum::<usize>();
        let bytes = combinations.iter().map(|prefix| bytes_of(prefix)).sum::<usize>() * values.len()
            + bytes_of(&values) * combinations.len();
        check_combined_bytes(bytes)?;
        combinations = combinations
            .iter()
            .flat_map(|prefix| {
                values.iter().map(move |value| {
                    let mut combination = prefix.clone();
                    combination.push(value.clone());
                    combination
                })
            })
            .collect();
    }
    let mut result = SmallVec::with_capacity(combinations.len());
    for combination in combinations {
        let bytes = match &combination[..] {
            [single] => single.to_vec(),
            components => composite_key(components)?,
        };
        check_key(&bytes)?;
        result.push(PartitionKey::of(table.partitioner(), bytes));
    }
    Ok(result)
}

/// A term for each column of a key.
type Terms<'a> = SmallVec<[&'a Term; 4]>;

/// The wire bytes of the partition key that a statement names, if each of its columns has one value.
#[inline]
pub fn only_partition_key<'a>(
    keys: &'a [Values],
    table: &Table,
    bindings: &Bindings<'a>,
) -> Result<Option<Cow<'a, [u8]>>> {
    let columns = table.partition_key();
    let Some(terms) = keys.iter().map(Values::only).collect::<Option<Terms<'_>>>() else { return Ok(None) };
    let key = if let ([term], [column]) = (&terms[..], columns) {
        required(term, &column.name, bindings)?
    } else {
        let mut components: SmallVec<[Cow<'_, [u8]>; 4]> = SmallVec::new();
        for (term, column) in terms.iter().zip(columns) {
            components.push(required(term, &column.name, bindings)?);
        }
        Cow::Owned(composite_key(&components)?)
    };
    check_key(&key)?;
    Ok(Some(key))
}

/// The slices of a partition that satisfy the clustering restrictions, ascending and disjoint.
pub fn clustering_slices(
    restrictions: &[ClusteringRestriction],
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<Vec<Slice>> {
    let mut prefixes: Vec<Vec<u8>> = vec![vec![REGULAR_TAG]];
    let mut slices: Option<Vec<Slice>> = None;
    for restriction in restrictions {
        match restriction {
            ClusteringRestriction::Values { first, values } => {
                let column = &table.clustering_key()[*first];
                let values = column_values(values, column, bindings)?;
                prefixes = extend_prefixes(&prefixes, &values, |value, out| encode(column, value, out))?;
            }
            ClusteringRestriction::Tuples { first, count, values } => {
                let columns = &table.clustering_key()[*first..first + count];
                let tuples = tuple_values(values, columns, bindings)?;
                prefixes = extend_prefixes(&prefixes, &tuples, |tuple, out| {
                    columns.iter().zip(tuple).try_for_each(|(column, value)| encode(column, value, out))
                })?;
            }
            ClusteringRestriction::Slice { first, bounds } => {
                let columns = &table.clustering_key()[*first..];
                let mut found = Vec::new();
                for prefix in &prefixes {
                    let mut ranges = vec![whole(prefix)];
                    for bound in bounds {
                        ranges = intersect(&ranges, &bound_ranges(prefix, bound, columns, bindings)?);
                    }
                    found.extend(ranges);
                }
                slices = Some(found);
            }
        }
    }
    let mut slices = slices.unwrap_or_else(|| prefixes.iter().map(|prefix| whole(prefix)).collect());
    slices.sort_by(|a, b| a.start.cmp(&b.start));
    slices.dedup();
    Ok(slices)
}

/// The full key of the only row that a statement names, if each column of its primary key has one value.
pub fn only_row_key(
    restrictions: &Restrictions,
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<Option<(i64, Vec<u8>)>> {
    let PartitionRestriction::Keys(keys) = &restrictions.partition else { return Ok(None) };
    let Some(clustering) = only_clustering_terms(&restrictions.clustering, table) else { return Ok(None) };
    let Some(partition_key) = only_partition_key(keys, table, bindings)? else { return Ok(None) };
    let token = table.partitioner().token(&partition_key);
    let mut key = Vec::with_capacity(PREFIX_OVERHEAD_BYTES + partition_key.len() + CLUSTERING_BYTES);
    put_partition_prefix(&mut key, token, &partition_key).map_err(|_| key_too_long(partition_key.len()))?;
    put_position(&clustering, table, bindings, &mut key)?;
    Ok(Some((token, key)))
}

/// The terms of the clustering columns, if each has one value.
fn only_clustering_terms<'a>(restrictions: &'a [ClusteringRestriction], table: &Table) -> Option<Terms<'a>> {
    let only = |restriction: &'a ClusteringRestriction| match restriction {
        ClusteringRestriction::Values { values, .. } => values.only(),
        ClusteringRestriction::Tuples { .. } | ClusteringRestriction::Slice { .. } => None,
    };
    if restrictions.len() == table.clustering_key_count {
        restrictions.iter().map(only).collect()
    } else {
        None
    }
}

/// Appends the position of the row with these clustering values. Returns the total size of the values.
fn put_position(terms: &[&Term], table: &Table, bindings: &Bindings<'_>, out: &mut Vec<u8>) -> Result<usize> {
    out.push(REGULAR_TAG);
    let mut value_bytes = 0;
    for (term, column) in terms.iter().zip(table.clustering_key()) {
        let value = required(term, &column.name, bindings)?;
        value_bytes += value.len();
        encode(column, &value, out)?;
    }
    Ok(value_bytes)
}

/// The positions of rows that are named by their clustering values: one for each combination of values.
pub fn positions(
    restrictions: &[ClusteringRestriction],
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<SmallVec<[Vec<u8>; 1]>> {
    check_clustering_values(restrictions, table, bindings)?;
    if let Some(terms) = only_clustering_terms(restrictions, table) {
        let mut position = Vec::with_capacity(CLUSTERING_BYTES);
        check_clustering_length(put_position(&terms, table, bindings, &mut position)?)?;
        return Ok(smallvec![position]);
    }
    check_restricted_length(restrictions, table, bindings)?;
    Ok(clustering_slices(restrictions, table, bindings)?.into_iter().map(|slice| slice.start).collect())
}

/// Refuses values of clustering columns that the table cannot have.
#[inline]
pub fn check_clustering_values(
    restrictions: &[ClusteringRestriction],
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<()> {
    if table.refuses_empty_clustering() { refuse_empty(restrictions, table, bindings) } else { Ok(()) }
}

#[cold]
fn refuse_empty(
    restrictions: &[ClusteringRestriction],
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<()> {
    let columns = table.clustering_key();
    for restriction in restrictions {
        let has_empty = match restriction {
            ClusteringRestriction::Values { first, values } => {
                column_values(values, &columns[*first], bindings)?.iter().any(|value| value.is_empty())
            }
            ClusteringRestriction::Tuples { first, count, values } => {
                let tuples = tuple_values(values, &columns[*first..first + count], bindings)?;
                tuples.iter().flatten().any(|value| value.is_empty())
            }
            ClusteringRestriction::Slice { .. } => false,
        };
        if has_empty {
            return Err(RequestError::invalid(format!(
                "Invalid empty or null value for column {}",
                columns[0].name
            )));
        }
    }
    Ok(())
}

/// Refuses restrictions of clustering columns that no row could satisfy, because its key would be too long. The bounds of a deletion are
/// stored as keys are.
pub fn check_restricted_length(
    restrictions: &[ClusteringRestriction],
    table: &Table,
    bindings: &Bindings<'_>,
) -> Result<()> {
    let mut longest = 0;
    for restriction in restrictions {
        longest += match restriction {
            ClusteringRestriction::Values { first, values } => {
                let values = column_values(values, &table.clustering_key()[*first], bindings)?;
                values.iter().map(|value| value.len()).max().unwrap_or(0)
            }
            ClusteringRestriction::Tuples { first, count, values } => {
                let columns = &table.clustering_key()[*first..first + count];
                let tuples = tuple_values(values, columns, bindings)?;
                tuples.iter().map(|tuple| tuple.iter().map(|value| value.len()).sum()).max().unwrap_or(0)
            }
            ClusteringRestriction::Slice { first, bounds } => {
                let mut longest = 0;
                for bound in bounds {
                    let columns = &table.clustering_key()[*first..first + bound.count];
                    let values = tuple_components(&bound.value, columns, bindings, null_value)?;
                    longest = longest.max(values.iter().map(|value| value.len()).sum());
                }
                longest
            }
        };
    }
    check_clustering_length(longest)
}

fn check_combined_bytes(bytes: usize) -> Result<()> {
    if bytes > MAX_COMBINED_BYTES {
        return Err(RequestError::invalid(format!(
            "The keys that the IN restrictions name take {bytes} bytes together, more than {MAX_COMBINED_BYTES}"
        )));
    }
    Ok(())
}

fn check_clustering_length(value_bytes: usize) -> Result<()> {
    if value_bytes > MAX_KEY_BYTES {
        return Err(RequestError::invalid(format!(
            "The sum of all clustering columns is too long ({value_bytes} > {MAX_KEY_BYTES})"
        )));
    }
    Ok(())
}

/// Appends a clustering component.
pub fn encode(column: &Column, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    ordered::encode(&column.column_type, value, column.is_descending(), out)
        .map_err(|error| RequestError::invalid(error.to_string()))
}

fn extend_prefixes<V>(
    prefixes: &[Vec<u8>],
    values: &[V],
    mut append: impl FnMut(&V, &mut Vec<u8>) -> Result<()>,
) -> Result<Vec<Vec<u8>>> {
    if prefixes.len() * values.len() > MAX_COMBINATIONS {
        return Err(RequestError::invalid(format!(
            "An IN restriction names more than {MAX_COMBINATIONS} rows"
        )));
    }
    let mut extended = Vec::with_capacity(prefixes.len() * values.len());
    let mut bytes = 0;
    for prefix in prefixes {
        for value in values {
            let mut longer = prefix.clone();
            append(value, &mut longer)?;
            bytes += longer.len();
            check_combined_bytes(bytes)?;
            extended.push(longer);
        }
    }
    extended.sort();
    extended.dedup();
    Ok(extended)
}

/// All rows whose position starts with the prefix.
fn whole(prefix: &[u8]) -> Slice {
    Slice { start: prefix.to_vec(), end: after(prefix) }
}

/// The first position after every row that starts with the prefix.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(prefix.len() + 1);
    end.extend_from_slice(prefix);
    end.push(0xFF);
    end
}

fn tuple_values<'a>(
    values: &'a TupleValues,
    columns: &[Column],
    bindings: &Bindings<'a>,
) -> Result<Vec<Vec<Cow<'a, [u8]>>>> {
    match values {
        TupleValues::List(term) => {
            let list = match term.evaluate(bindings)? {
                Bound::Null => return Err(RequestError::invalid("Invalid null value for IN restriction")),
                _ => required(term, &columns[0].name, bindings)?,
            };
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let null = |_: &str| {
                let names = names.join(", ");
                RequestError::invalid(format!("Invalid null value in condition for columns: [{names}]"))
            };
            list_elements(&list, &columns[0].name)?
                .into_iter()
                .map(|tuple| split_tuple(&tuple, columns, &null))
                .collect()
        }
        values => {
            let tuples = values.tuples().iter();
            tuples.map(|tuple| tuple_components(tuple, columns, bindings, no_null)).collect()
        }
    }
}

/// The ranges that satisfy one bound of a slice. A tuple bound `(a, b) > (1, 2)` is `a > 1 or (a = 1 and b > 2)`: one
/// range for each column, in the order of the column.
fn bound_ranges(
    prefix: &[u8],
    bound: &SliceBound,
    columns: &[Column],
    bindings: &Bindings<'_>,
) -> Result<Vec<Slice>> {
    let columns = &columns[..bound.count];
    if let (TupleTerm::Terms(terms), [column]) = (&bound.value, columns)
        && let [term] = &terms[..]
        && term.evaluate(bindings)? == Bound::Null
    {
        // As in Cassandra, null is before all values, in the order of the table. Deletions do not get here.
        let upwards = bound.is_lower != column.is_descending();
        return Ok(if upwards { vec![whole(prefix)] } else { Vec::new() });
    }
    let values = tuple_components(&bound.value, columns, bindings, null_value)?;
    let mut ranges = Vec::with_capacity(values.len());
    let mut equal = prefix.to_vec();
    for (index, (column, value)) in columns.iter().zip(&values).enumerate() {
        let mut at = equal.clone();
        encode(column, value, &mut at)?;
        let inclusive = bound.inclusive && index + 1 == values.len();
        // In bytes, larger values of a descending column sort first.
        let upwards = bound.is_lower != column.is_descending();
        ranges.push(match (upwards, inclusive) {
            (true, true) => Slice { start: at.clone(), end: after(&equal) },
            (true, false) => Slice { start: after(&at), end: after(&equal) },
            (false, true) => Slice { start: equal.clone(), end: after(&at) },
            (false, false) => Slice { start: equal.clone(), end: at.clone() },
        });
        equal = at;
    }
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    Ok(ranges)
}

fn intersect(left: &[Slice], right: &[Slice]) -> Vec<Slice> {
    let mut found = Vec::new();
    for a in left {
        for b in right {
            let start = a.start.as_slice().max(&b.start);
            let end = a.end.as_slice().min(&b.end);
            if start < end {
                found.push(Slice { start: start.to_vec(), end: end.to_vec() });
            }
        }
    }
    found.sort_by(|a, b| a.start.cmp(&b.start));
    found
}

/// Encodes the key of a collection element as the path of its cell: comparable as bytes, so that cells sort like
/// values of the type.
pub fn encode_path(element_type: &CqlType, value: &[u8]) -> Result<Vec<u8>> {
    let mut path = Vec::with_capacity(value.len() + 2);
    ordered::encode(element_type, value, false, &mut path)
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::CallContext;
    use crate::schema::ddl::tests::Session;

    fn constant(value: Vec<u8>) -> Term {
        Term::Constant(Some(value))
    }

    #[test]
    fn partitions_named_by_in_appear_once_in_the_order_of_their_values() {
        let session = Session::with(&["CREATE TABLE t (k int, c text, PRIMARY KEY (k, c))"]);
        let numbers = [7_i32, -1, 3, 7];
        let terms = numbers.iter().map(|number| constant(number.to_be_bytes().to_vec())).collect();
        let call = CallContext::at(0);
        let bindings = Bindings { values: &[], call: &call };
        let keys = partition_keys(&[Values::Many(terms)], session.table("t"), &bindings).unwrap();
        let found: Vec<Vec<u8>> = keys.into_iter().map(|key| key.bytes).collect();
        assert_eq!(found, [-1_i32, 3, 7].map(|number| number.to_be_bytes().to_vec()));
    }

    #[test]
    fn clustering_values_above_the_limit_have_no_position() {
        let session = Session::with(&["CREATE TABLE t (k int, c text, d text, PRIMARY KEY (k, c, d))"]);
        let call = CallContext::at(0);
        let bindings = Bindings { values: &[], call: &call };
        let restrictions = |length: usize| {
            [0, 1].map(|first| ClusteringRestriction::Values {
                first,
                values: Values::One(constant(vec![b'x'; length])),
            })
        };
        assert_eq!(positions(&restrictions(32_767), session.table("t"), &bindings).unwrap().len(), 1);
        let refused = positions(&restrictions(32_768), session.table("t"), &bindings).unwrap_err();
        assert_eq!(refused.to_string(), "The sum of all clustering columns is too long (65536 > 65535)");
    }
}
