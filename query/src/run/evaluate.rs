//! Evaluates selectors and filters on a row.

use std::borrow::Cow;
use std::cmp::Ordering;

use cql_lite::syntax::ast::{Comparison, WriteMetadata};
use cql_lite::types::{CqlType, codec, compare};

use super::keys::encode_path;
use crate::error::{RequestError, Result};
use crate::plan::like_pattern::LikePattern;
use crate::plan::restrictions::{
    Filter, FilterTest, TupleTerm, TupleValues, list_elements, null_value, split_tuple, tuple_components,
};
use crate::plan::row_layout::RowValues;
use crate::plan::selection::{CellPart, Fetched, RowRead, Selector};
use crate::plan::term::{Bindings, Bound, Term};
use crate::schema::catalog::Table;
use crate::schema::index_terms::TextAnalysis;

/// A value, or null.
pub type Evaluated<'a> = Option<Cow<'a, [u8]>>;

/// The row or group on which selectors are evaluated.
#[derive(Clone, Copy)]
pub struct RowContext<'a, 'v> {
    pub values: &'a RowValues<'v>,
    /// The results of the aggregates, if the row represents a group.
    pub aggregates: &'a [Option<Vec<u8>>],
    pub bindings: Bindings<'a>,
    pub now_seconds: u32,
}

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn codec_error(error: codec::CodecError) -> RequestError {
    RequestError::invalid(error.to_string())
}

/// Most bytes of a result row with values that are computed. Functions make large values of small ones, and of none.
pub const COMPUTED_ROW_BYTES_MAX: usize = 256 << 20;

/// Evaluates a selector.
pub fn evaluate<'a>(selector: &'a Selector, row: &RowContext<'a, '_>) -> Result<Evaluated<'a>> {
    match selector.evaluate_on(&row.bindings, &|read| read_row(read, row))? {
        Bound::Bytes(bytes) => Ok(Some(bytes)),
        Bound::Null | Bound::Unset => Ok(None),
    }
}

/// Evaluates a selector of a row that may take `bytes_left` more bytes.
pub fn evaluate_within<'a>(
    selector: &'a Selector,
    row: &RowContext<'a, '_>,
    bytes_left: &mut usize,
) -> Result<Evaluated<'a>> {
    let value = evaluate(selector, row)?;
    let bytes = value.as_deref().map_or(0, <[u8]>::len);
    *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
        RequestError::invalid(format!("A row of the result takes more than {COMPUTED_ROW_BYTES_MAX} bytes"))
    })?;
    Ok(value)
}

fn read_row<'a>(read: &'a RowRead, row: &RowContext<'a, '_>) -> Result<Bound<'a>> {
    let value: Evaluated<'a> = match read {
        RowRead::Column(slot) => row.values.get(*slot).map(Cow::Borrowed),
        RowRead::Aggregate(index) => row.aggregates[*index].as_deref().map(Cow::Borrowed),
        RowRead::WriteMetadata { kind, slot, part } => write_metadata(*kind, *slot, part, row)?,
        RowRead::Field { selector, index } => match evaluate(selector, row)? {
            Some(value) => {
                codec::field(&value, *index).map_err(codec_error)?.map(|field| Cow::Owned(field.to_vec()))
            }
            None => None,
        },
        RowRead::Element { selector, name, collection, key } => {
            let key = element_key(key, name, row)?;
            match evaluate(selector, row)? {
                Some(value) => element(collection, &value, &key)?.map(|found| Cow::Owned(found.to_vec())),
                None => None,
            }
        }
        RowRead::Slice { selector, name, collection, from, to } => {
            let (from, to) = (slice_bound(from.as_ref(), name, row)?, slice_bound(to.as_ref(), name, row)?);
            match evaluate(selector, row)? {
                Some(value) => slice(collection, &value, from.as_deref(), to.as_deref())?.map(Cow::Owned),
                None => None,
            }
        }
    };
    Ok(value.map_or(Bound::Null, Bound::Bytes))
}

/// The key of a selected element of the collection `name`.
fn element_key<'a>(key: &'a Term, name: &str, row: &RowContext<'a, '_>) -> Result<Cow<'a, [u8]>> {
    let refuse = |what: &str| {
        Err(RequestError::invalid(format!("Invalid {what} value for element selection on {name}")))
    };
    match key.evaluate(&row.bindings)? {
        Bound::Bytes(key) => Ok(key),
        Bound::Null => refuse("null"),
        Bound::Unset => refuse("unset"),
    }
}

/// An end of a selected slice of the collection `name`; an unset one is open.
fn slice_bound<'a>(bound: Option<&'a Term>, name: &str, row: &RowContext<'a, '_>) -> Result<Evaluated<'a>> {
    match bound.map(|bound| bound.evaluate(&row.bindings)).transpose()? {
        Some(Bound::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Bound::Null) => {
            Err(RequestError::invalid(format!("Invalid null value for slice selection on {name}")))
        }
        Some(Bound::Unset) | None => Ok(None),
    }
}

fn write_metadata<'a>(
    kind: WriteMetadata,
    slot: usize,
    part: &CellPart,
    row: &RowContext<'a, '_>,
) -> Result<Evaluated<'a>> {
    let times = &row.values.times[slot];
    let value_of = |time: &crate::plan::row_layout::CellTime| -> Option<Vec<u8>> {
        match kind {
            WriteMetadata::Writetime | WriteMetadata::MaxWritetime => {
                Some(time.timestamp.to_be_bytes().to_vec())
            }
            WriteMetadata::Ttl => time
                .expires_at
                .map(|expires_at| (expires_at.saturating_sub(row.now_seconds) as i32).to_be_bytes().to_vec()),
        }
    };
    let found = match part {
        CellPart::Whole if kind == WriteMetadata::MaxWritetime => {
            times.iter().max_by_key(|time| time.timestamp).and_then(value_of)
        }
        CellPart::Whole => times.first().and_then(value_of),
        CellPart::Each => {
            if times.is_empty() {
                return Ok(None);
            }
            let mut out = Vec::new();
            codec::write_count(times.len(), &mut out);
            for time in times {
                match value_of(time) {
                    Some(value) => codec::write_element(&value, &mut out),
                    None => codec::write_null(&mut out),
                }
            }
            Some(out)
        }
        CellPart::Key { key, name, collection } => {
            let key = element_key(key, name, row)?;
            match collection {
                CqlType::Map { key: key_type, frozen: false, .. }
                | CqlType::Set { element: key_type, frozen: false } => {
                    let path = encode_path(key_type, &key)?;
                    times.iter().find(|time| time.path == path).and_then(value_of)
                }
                // All elements of a frozen collection are in one cell.
                _ => match row.values.get(slot) {
                    Some(value) if element(collection, value, &key)?.is_some() => {
                        times.first().and_then(value_of)
                    }
                    _ => None,
                },
            }
        }
        CellPart::Field { field, is_multi_cell: true } => {
            times.iter().find(|time| time.path == field.to_be_bytes()).and_then(value_of)
        }
        CellPart::Field { field, is_multi_cell: false } => match row.values.get(slot) {
            Some(value) if codec::field(value, usize::from(*field)).map_err(codec_error)?.is_some() => {
                times.first().and_then(value_of)
            }
            _ => None,
        },
    };
    Ok(found.map(Cow::Owned))
}

/// The value at a key of a map, or at an index of a list, or the element itself of a set.
pub fn element<'v>(collection: &CqlType, value: &'v [u8], key: &[u8]) -> Result<Option<&'v [u8]>> {
    match collection {
        CqlType::Map { .. } => codec::entry(value, key).map_err(codec_error),
        CqlType::Set { element, .. } => {
            for item in codec::elements(value).map_err(codec_error)? {
                let item = item.map_err(codec_error)?;
                if compare::compare(element, item, key) == Ordering::Equal {
                    return Ok(Some(item));
                }
            }
            Ok(None)
        }
        CqlType::List { .. } => {
            let Some(index) = index_of(key) else { return Ok(None) };
            codec::elements(value).map_err(codec_error)?.nth(index).transpose().map_err(codec_error)
        }
        _ => Ok(None),
    }
}

fn index_of(key: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_be_bytes(key.try_into().ok()?)).ok()
}

fn slice(
    collection: &CqlType,
    value: &[u8],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<Option<Vec<u8>>> {
    let inside = |key_type: &CqlType, key: &[u8]| {
        from.is_none_or(|from| compare::compare(key_type, key, from) != Ordering::Less)
            && to.is_none_or(|to| compare::compare(key_type, key, to) != Ordering::Greater)
    };
    // Only a frozen collection can be empty without being null.
    let is_null = |count: usize| count == 0 && collection.is_multi_cell();
    match collection {
        CqlType::Map { key: key_type, .. } => {
            let mut kept = Vec::new();
            for entry in codec::entries(value).map_err(codec_error)? {
                let (key, value) = entry.map_err(codec_error)?;
                if inside(key_type, key) {
                    kept.push((key, value));
                }
            }
            Ok((!is_null(kept.len())).then(|| codec::encode_entries(kept.into_iter())))
        }
        CqlType::Set { element, .. } => {
            let mut kept = Vec::new();
            for item in codec::elements(value).map_err(codec_error)? {
                let item = item.map_err(codec_error)?;
                if inside(element, item) {
                    kept.push(item);
                }
            }
            Ok((!is_null(kept.len())).then(|| codec::encode_elements(kept.into_iter())))
        }
        _ => Err(RequestError::invalid("Slices are supported on sets and maps only")),
    }
}

/// Whether an ordering satisfies a comparison operator.
pub fn holds(operator: Comparison, ordering: Ordering) -> bool {
    match operator {
        Comparison::Equal => ordering == Ordering::Equal,
        Comparison::NotEqual => ordering != Ordering::Equal,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::LessOrEqual => ordering != Ordering::Greater,
        Comparison::Greater => ordering == Ordering::Greater,
        Comparison::GreaterOrEqual => ordering != Ordering::Less,
    }
}

/// Filters with their right sides evaluated.
pub struct BoundFilters<'a> {
    filters: Vec<BoundFilter<'a>>,
}

struct BoundFilter<'a> {
    /// The slots and types compared.
    operands: Vec<(usize, CqlType)>,
    key: Option<Cow<'a, [u8]>>,
    test: BoundTest<'a>,
    /// Done to the texts of rows; it was done to those of the test.
    analysis: Option<TextAnalysis>,
}

enum BoundTest<'a> {
    Compare(Comparison, Vec<Cow<'a, [u8]>>),
    In(Vec<Vec<Cow<'a, [u8]>>>),
    Contains(Cow<'a, [u8]>),
    ContainsKey(Cow<'a, [u8]>),
    Like(LikePattern),
}

impl<'a> BoundFilters<'a> {
    pub fn bind(
        filters: impl IntoIterator<Item = &'a Filter>,
        table: &Table,
        fetched: &Fetched,
        bindings: &Bindings<'a>,
    ) -> Result<Self> {
        let mut bound = Vec::new();
        for filter in filters {
            let columns: Vec<_> =
                filter.subject.columns().iter().map(|&index| table.columns[index].clone()).collect();
            let value = |term: &'a Term| {
                let value = filter.value(term, table, bindings)?;
                Ok::<_, RequestError>(match filter.analysis {
                    Some(analysis) => Cow::Owned(analysis.apply(&value).into_owned()),
                    None => value,
                })
            };
            let tuple = |tuple: &'a TupleTerm| tuple_components(tuple, &columns, bindings, null_value);
            let test = match &filter.test {
                FilterTest::Compare(operator, term) => BoundTest::Compare(*operator, vec![value(term)?]),
                FilterTest::CompareTuple(operator, term) => BoundTest::Compare(*operator, tuple(term)?),
                FilterTest::In(values) => {
                    let wanted = filter.in_values(values, table, bindings)?;
                    BoundTest::In(wanted.into_iter().map(|value| vec![value]).collect())
                }
                FilterTest::InTuples(TupleValues::List(term)) => {
                    let list = value(term)?;
                    let items = list_elements(&list, &columns[0].name)?;
                    let tuples = items.iter().map(|item| split_tuple(item, &columns, &null_value));
                    BoundTest::In(tuples.collect::<Result<_>>()?)
                }
                FilterTest::InTuples(values) => {
                    BoundTest::In(values.tuples().iter().map(tuple).collect::<Result<_>>()?)
                }
                FilterTest::Contains(term) => BoundTest::Contains(value(term)?),
                FilterTest::ContainsKey(term) => BoundTest::ContainsKey(value(term)?),
                FilterTest::Like { pattern, finds_parts } => {
                    let pattern = filter.like_pattern(pattern, *finds_parts, table, bindings)?;
                    BoundTest::Like(match filter.analysis {
                        Some(analysis) => pattern.analyzed(analysis),
                        None => pattern,
                    })
                }
            };
            let key = filter.element_key(table, bindings)?;
            let operands = filter
                .subject
                .columns()
                .iter()
                .map(|&index| {
                    let slot = fetched.slot_of(index).ok_or_else(|| {
                        RequestError::Server(format!(
                            "column {} is filtered but not read",
                            table.columns[index].name
                        ))
                    })?;
                    Ok((slot, table.columns[index].column_type.clone()))
                })
                .collect::<Result<_>>()?;
            bound.push(BoundFilter { operands, key, test, analysis: filter.analysis });
        }
        Ok(Self { filters: bound })
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Whether a row passes all filters.
    pub fn accept(&self, row: &RowValues<'_>) -> Result<bool> {
        for filter in &self.filters {
            if !filter.accepts(row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl BoundFilter<'_> {
    fn accepts(&self, row: &RowValues<'_>) -> Result<bool> {
        let (first_slot, first_type) = &self.operands[0];
        if let Some(analysis) = self.analysis {
            let Some(actual) = row.get(*first_slot) else { return Ok(false) };
            return self.accepts_analyzed(first_type, actual, analysis);
        }
        match &self.test {
            BoundTest::Contains(value) => {
                row.get(*first_slot).map_or(Ok(false), |collection| contains(first_type, collection, value))
            }
            BoundTest::ContainsKey(key) => {
                row.get(*first_slot).map_or(Ok(false), |collection| contains_key(first_type, collection, key))
            }
            BoundTest::Like(pattern) => Ok(row.get(*first_slot).is_some_and(|text| pattern.matches(text))),
            BoundTest::Compare(operator, values) => {
                if let Some(key) = &self.key {
                    let CqlType::Map { value: value_type, .. } = first_type else { return Ok(false) };
                    let Some(map) = row.get(*first_slot) else { return Ok(false) };
                    let Some(actual) = element(first_type, map, key)? else { return Ok(false) };
                    return Ok(holds(*operator, compare::compare(value_type, actual, &values[0])));
                }
                Ok(self.compare(row, values).is_some_and(|ordering| holds(*operator, ordering)))
            }
            BoundTest::In(tuples) => {
                Ok(tuples.iter().any(|values| self.compare(row, values) == Some(Ordering::Equal)))
            }
        }
    }

    /// Whether a value, or one in a collection, equals that of the test after the analysis, or is like it.
    fn accepts_analyzed(&self, value_type: &CqlType, actual: &[u8], analysis: TextAnalysis) -> Result<bool> {
        let (wanted, in_keys) = match &self.test {
            BoundTest::Compare(Comparison::Equal, values) => return Ok(analysis.apply(actual) == values[0]),
            BoundTest::Like(pattern) => return Ok(pattern.matches(&analysis.apply(actual))),
            BoundTest::Contains(value) => (value, false),
            BoundTest::ContainsKey(key) => (key, true),
            BoundTest::Compare(..) | BoundTest::In(_) => {
                return Err(RequestError::Server("an analyzed filter is no equality".to_owned()));
            }
        };
        if let CqlType::Map { .. } = value_type {
            for entry in codec::entries(actual).map_err(codec_error)? {
                let (key, value) = entry.map_err(codec_error)?;
                if analysis.apply(if in_keys { key } else { value }) == *wanted {
                    return Ok(true);
                }
            }
        } else {
            for item in codec::elements(actual).map_err(codec_error)? {
                if analysis.apply(item.map_err(codec_error)?) == *wanted {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The order of the row's values relative to others, column by column; `None` if the row has a null.
    fn compare(&self, row: &RowValues<'_>, values: &[Cow<'_, [u8]>]) -> Option<Ordering> {
        for ((slot, value_type), value) in self.operands.iter().zip(values) {
            match compare::compare(value_type, row.get(*slot)?, value) {
                Ordering::Equal => {}
                unequal => return Some(unequal),
            }
        }
        Some(Ordering::Equal)
    }
}

/// Whether a list, set or map contains a value.
pub fn contains(collection_type: &CqlType, collection: &[u8], value: &[u8]) -> Result<bool> {
    match collection_type {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            for item in codec::elements(collection).map_err(codec_error)? {
                if compare::compare(element, item.map_err(codec_error)?, value) == Ordering::Equal {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        CqlType::Map { value: value_type, .. } => {
            for entry in codec::entries(collection).map_err(codec_error)? {
                if compare::compare(value_type, entry.map_err(codec_error)?.1, value) == Ordering::Equal {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Whether a map contains a key.
pub fn contains_key(collection_type: &CqlType, collection: &[u8], key: &[u8]) -> Result<bool> {
    let CqlType::Map { key: key_type, .. } = collection_type else { return Ok(false) };
    for entry in codec::entries(collection).map_err(codec_error)? {
        if compare::compare(key_type, entry.map_err(codec_error)?.0, key) == Ordering::Equal {
            return Ok(true);
        }
    }
    Ok(false)
}
