//! Functions of one collection: keys and values of a map, aggregates over the elements.

use cql_lite::types::{CqlType, codec};

use super::aggregate::{AggregateKind, NativeState};
use super::arithmetic::failed;
use super::failure::CallResult;

/// A function of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CollectionFunction {
    MapKeys,
    MapValues,
    Count,
    Aggregate(AggregateKind),
}

/// The functions by name.
pub(super) const COLLECTION_FUNCTIONS: [(&str, CollectionFunction); 7] = [
    ("map_keys", CollectionFunction::MapKeys),
    ("map_values", CollectionFunction::MapValues),
    ("collection_count", CollectionFunction::Count),
    ("collection_min", CollectionFunction::Aggregate(AggregateKind::Minimum)),
    ("collection_max", CollectionFunction::Aggregate(AggregateKind::Maximum)),
    ("collection_sum", CollectionFunction::Aggregate(AggregateKind::Sum)),
    ("collection_avg", CollectionFunction::Aggregate(AggregateKind::Average)),
];

impl CollectionFunction {
    /// The type of the result for a collection of that type. The error is the kind of argument that the function
    /// needs.
    pub(super) fn return_type(self, ty: &CqlType) -> Result<CqlType, &'static str> {
        match (self, ty) {
            (CollectionFunction::MapKeys, CqlType::Map { key, .. }) => {
                Ok(CqlType::Set { element: key.clone(), frozen: true })
            }
            (CollectionFunction::MapValues, CqlType::Map { value, .. }) => {
                Ok(CqlType::List { element: value.clone(), frozen: true })
            }
            (CollectionFunction::MapKeys | CollectionFunction::MapValues, _) => Err("map"),
            (CollectionFunction::Count, ty) if ty.is_collection() => Ok(CqlType::Int),
            (CollectionFunction::Count, _) => Err("collection"),
            (
                CollectionFunction::Aggregate(AggregateKind::Minimum | AggregateKind::Maximum),
                CqlType::List { element, .. } | CqlType::Set { element, .. },
            ) => Ok(CqlType::clone(element)),
            (CollectionFunction::Aggregate(AggregateKind::Minimum | AggregateKind::Maximum), _) => {
                Err("set or list")
            }
            (
                CollectionFunction::Aggregate(_),
                CqlType::List { element, .. } | CqlType::Set { element, .. },
            ) if element.is_numeric() => Ok(CqlType::clone(element)),
            (CollectionFunction::Aggregate(_), _) => Err("numeric set/list"),
        }
    }
}

/// The keys or the values of a map as a set or list.
fn collect_from_map(map: &[u8], wants_keys: bool) -> Result<Vec<u8>, codec::CodecError> {
    let mut out = Vec::new();
    let entries = codec::entries(map)?;
    codec::write_count(entries.remaining(), &mut out);
    for entry in entries {
        let (key, value) = entry?;
        codec::write_element(if wants_keys { key } else { value }, &mut out);
    }
    Ok(out)
}

/// Applies a function to a collection of that type.
pub(super) fn apply(function: CollectionFunction, ty: &CqlType, value: &[u8]) -> CallResult {
    match (function, ty) {
        (CollectionFunction::MapKeys | CollectionFunction::MapValues, _) => {
            let wants_keys = function == CollectionFunction::MapKeys;
            collect_from_map(value, wants_keys).map(Some).map_err(failed)
        }
        (CollectionFunction::Count, _) => {
            let elements = codec::elements(value).map_err(failed)?;
            Ok(Some((elements.remaining() as i32).to_be_bytes().to_vec()))
        }
        (
            CollectionFunction::Aggregate(kind),
            CqlType::List { element, .. } | CqlType::Set { element, .. },
        ) => {
            let mut state = NativeState::new(kind, element);
            for item in codec::elements(value).map_err(failed)? {
                state.accumulate(Some(item.map_err(failed)?))?;
            }
            state.compute()
        }
        (CollectionFunction::Aggregate(_), _) => Ok(None),
    }
}
