//! The canonical form of sets and maps: ascending in the order of the type, without duplicate elements or keys.
//!
//! Clients send sets and maps in any order. Values are compared, stored and used as keys by their bytes, so equal values
//! must have equal bytes: every value from a client is converted here once, including the sets and maps that are elements of
//! collections. As in Cassandra, those inside tuples, user types and vectors keep their bytes as they came.

use std::borrow::Cow;

use super::codec::{self, CodecError};
use super::compare::compare;
use super::cql_type::CqlType;

/// Maximum number of elements that are sorted. Sorting takes more memory per element than the wire does; empty elements
/// could otherwise make a small message large.
const ELEMENTS_MAX: usize = 4 << 20;

/// Sorts the elements of a set. Of equal elements the first is kept.
pub fn sort_elements<T: AsRef<[u8]>>(element: &CqlType, elements: &mut Vec<T>) {
    elements.sort_by(|a, b| compare(element, a.as_ref(), b.as_ref()));
    elements.dedup_by(|later, earlier| compare(element, later.as_ref(), earlier.as_ref()).is_eq());
}

/// Sorts the entries of a map. Of entries with equal keys the first key is kept, with the last value, as in a Java map.
pub fn sort_entries<K: AsRef<[u8]>, V>(key: &CqlType, entries: &mut Vec<(K, V)>) {
    entries.sort_by(|a, b| compare(key, a.0.as_ref(), b.0.as_ref()));
    entries.dedup_by(|later, earlier| {
        let same = compare(key, later.0.as_ref(), earlier.0.as_ref()).is_eq();
        if same {
            std::mem::swap(&mut later.1, &mut earlier.1);
        }
        same
    });
}

/// The canonical form of a [valid](super::validate::validate) value; borrowed if the value is already canonical.
pub fn canonical<'a>(ty: &CqlType, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
    if bytes.is_empty() || !holds_sorted(ty) {
        return Ok(Cow::Borrowed(bytes));
    }
    let rewritten: Option<Vec<u8>> = match ty {
        CqlType::Set { element, .. } => {
            if are_ascending(element, codec::elements(bytes)?)? && !holds_sorted(element) {
                return Ok(Cow::Borrowed(bytes));
            }
            let elements = codec::elements(bytes)?;
            check_count(elements.remaining())?;
            let mut elements = all_canonical(element, elements)?;
            sort_elements(element, &mut elements);
            Some(codec::encode_elements(elements.iter().map(AsRef::as_ref)))
        }
        CqlType::Map { key, value, .. } => {
            let keys = codec::entries(bytes)?.map(|entry| entry.map(|(key, _)| key));
            if are_ascending(key, keys)? && !holds_sorted(key) && !holds_sorted(value) {
                return Ok(Cow::Borrowed(bytes));
            }
            let entries = codec::entries(bytes)?;
            check_count(entries.remaining())?;
            let mut entries = entries
                .map(|entry| {
                    let (key_bytes, value_bytes) = entry?;
                    Ok((canonical(key, key_bytes)?, canonical(value, value_bytes)?))
                })
                .collect::<Result<Vec<_>, CodecError>>()?;
            sort_entries(key, &mut entries);
            Some(codec::encode_entries(entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))))
        }
        CqlType::List { element, .. } => {
            let elements = codec::elements(bytes)?;
            check_count(elements.remaining())?;
            let elements = all_canonical(element, elements)?;
            (!all_borrowed(&elements)).then(|| codec::encode_elements(elements.iter().map(AsRef::as_ref)))
        }
        _ => None,
    };
    Ok(rewritten.filter(|rewritten| rewritten != bytes).map_or(Cow::Borrowed(bytes), Cow::Owned))
}

fn check_count(count: usize) -> Result<(), CodecError> {
    if count > ELEMENTS_MAX {
        return Err(CodecError::TooManyElements { count, limit: ELEMENTS_MAX });
    }
    Ok(())
}

/// Whether each is greater than the one before.
fn are_ascending<'a>(
    element: &CqlType,
    elements: impl Iterator<Item = Result<&'a [u8], CodecError>>,
) -> Result<bool, CodecError> {
    let mut last: Option<&[u8]> = None;
    for item in elements {
        let item = item?;
        if last.is_some_and(|last| compare(element, last, item).is_ge()) {
            return Ok(false);
        }
        last = Some(item);
    }
    Ok(true)
}

/// Whether none of the values had to be rewritten.
fn all_borrowed(values: &[Cow<'_, [u8]>]) -> bool {
    values.iter().all(|value| matches!(value, Cow::Borrowed(_)))
}

fn all_canonical<'a>(
    element: &CqlType,
    elements: impl Iterator<Item = Result<&'a [u8], CodecError>>,
) -> Result<Vec<Cow<'a, [u8]>>, CodecError> {
    elements.map(|item| canonical(element, item?)).collect()
}

/// Whether the type is a set or a map, or a list that holds some. Values of other types are always canonical.
#[inline]
pub fn holds_sorted(ty: &CqlType) -> bool {
    let mut part = ty;
    while let CqlType::List { element, .. } = part {
        part = element;
    }
    matches!(part, CqlType::Set { .. } | CqlType::Map { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(ty: &CqlType, text: &[u8]) -> Vec<u8> {
        canonical(ty, text).unwrap().into_owned()
    }

    fn texts(items: &[&str]) -> Vec<u8> {
        codec::encode_elements(items.iter().map(|item| item.as_bytes()))
    }

    fn parsed(name: &str) -> CqlType {
        CqlType::parse(name, &|_| None).unwrap()
    }

    #[test]
    fn a_set_is_sorted_and_holds_nothing_twice() {
        let ty = parsed("frozen<set<text>>");
        assert_eq!(value(&ty, &texts(&["b", "a", "b"])), texts(&["a", "b"]));
        assert!(matches!(canonical(&ty, &texts(&["a", "b"])).unwrap(), Cow::Borrowed(_)));
        assert_eq!(value(&ty, &texts(&[])), texts(&[]));
    }

    #[test]
    fn equal_elements_of_different_bytes_are_one() {
        let ty = parsed("set<decimal>");
        // 1.0 and 1.00: scale, then the unscaled number.
        let (short, long) = ([0, 0, 0, 1, 10], [0, 0, 0, 2, 100]);
        let set = codec::encode_elements([&short[..], &long[..]].into_iter());
        assert_eq!(value(&ty, &set), codec::encode_elements([&short[..]].into_iter()));
    }

    #[test]
    fn more_elements_than_are_ever_sorted_are_refused() {
        let mut set = ((ELEMENTS_MAX + 1) as i32).to_be_bytes().to_vec();
        set.resize(4 + 4 * (ELEMENTS_MAX + 1), 0);
        let ty = parsed("set<text>");
        let refused = CodecError::TooManyElements { count: ELEMENTS_MAX + 1, limit: ELEMENTS_MAX };
        assert_eq!(canonical(&ty, &set), Err(refused));
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let ty = parsed("map<text, text>");
        let map = |entries: &[(&str, &str)]| {
            codec::encode_entries(entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
        };
        let sent = map(&[("b", "1"), ("a", "2"), ("b", "3"), ("b", "4")]);
        assert_eq!(value(&ty, &sent), map(&[("a", "2"), ("b", "4")]));
    }

    #[test]
    fn sets_inside_collections_are_sorted() {
        let (sent, sorted) = (texts(&["b", "a"]), texts(&["a", "b"]));
        let list = |set: &[u8]| codec::encode_elements([set].into_iter());
        assert_eq!(value(&parsed("list<frozen<set<text>>>"), &list(&sent)), list(&sorted));
        // Two spellings of one set are one element.
        let both = codec::encode_elements([&sent[..], &sorted[..]].into_iter());
        assert_eq!(value(&parsed("set<frozen<set<text>>>"), &both), list(&sorted));
        let map = |set: &[u8]| codec::encode_entries([(set, &b"v"[..])].into_iter());
        assert_eq!(value(&parsed("map<frozen<set<text>>, text>"), &map(&sent)), map(&sorted));
    }

    #[test]
    fn sets_inside_tuples_and_vectors_stay_as_they_came() {
        let sent = texts(&["b", "a", "b"]);
        let tuple = codec::encode_fields([None, Some(&sent[..])].into_iter());
        assert_eq!(value(&parsed("frozen<tuple<int, set<text>>>"), &tuple), tuple);
        let mut vector = Vec::new();
        codec::write_vector_element(&parsed("frozen<set<text>>"), &sent, &mut vector);
        assert_eq!(value(&parsed("vector<frozen<set<text>>, 1>"), &vector), vector);
        // Also if they are elements of a set.
        let set = codec::encode_elements([&tuple[..]].into_iter());
        assert_eq!(value(&parsed("set<frozen<tuple<int, set<text>>>>"), &set), set);
    }
}
