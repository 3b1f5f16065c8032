//! From values to terms and ranges of terms.

use std::borrow::Cow;
use std::ops::Bound;

use cql_lite::types::CqlType;
use cql_lite::types::literal;
use cql_lite::types::ordered::{self, OrderedError};
use helenus_engine::secondary_index::{TERM_BYTES_MAX, TermRange};

use super::text::TextAnalysis;
use crate::schema::catalog::Column;
use crate::schema::index::{Index, IndexedPart};

/// The bytes that end a text in its encoding.
const TEXT_END_BYTES: usize = 2;

/// How the values of an index are encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct TermEncoding {
    value_type: CqlType,
    analysis: Option<TextAnalysis>,
    /// The type of the keys, if the terms are of pairs of a map: the key and then the value. Both are encoded so that none is the start of
    /// another.
    key_type: Option<CqlType>,
}

/// How an index encodes the terms of its column. `None`: the column has no such part.
pub fn encoding_of(column: &Column, index: &Index) -> Option<TermEncoding> {
    let value_type = match (&column.column_type, index.part) {
        (value_type, IndexedPart::Value | IndexedPart::Full) if !value_type.is_multi_cell() => value_type,
        (
            CqlType::List { element, frozen: false } | CqlType::Set { element, frozen: false },
            IndexedPart::Values,
        ) => element,
        (CqlType::Map { value, frozen: false, .. }, IndexedPart::Values) => value,
        (CqlType::Map { key, frozen: false, .. }, IndexedPart::Keys) => key,
        (CqlType::Map { key, value, frozen: false }, IndexedPart::Entries) => {
            return Some(TermEncoding::entry((**key).clone(), (**value).clone()));
        }
        _ => return None,
    };
    Some(TermEncoding::value(value_type.clone(), TextAnalysis::of(index, value_type)))
}

impl TermEncoding {
    pub(super) fn value(value_type: CqlType, analysis: Option<TextAnalysis>) -> Self {
        Self { value_type, analysis, key_type: None }
    }

    fn entry(key_type: CqlType, value_type: CqlType) -> Self {
        Self { value_type, analysis: None, key_type: Some(key_type) }
    }

    /// What is done to texts before they are encoded.
    pub fn analysis(&self) -> Option<TextAnalysis> {
        self.analysis
    }

    /// Appends the term of a value and cuts what is then too long.
    pub(super) fn put_term(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), OrderedError> {
        let value = self.analysis.map_or(Cow::Borrowed(value), |analysis| analysis.apply(value));
        ordered::encode(&self.value_type, &value, false, out)?;
        out.truncate(TERM_BYTES_MAX);
        Ok(())
    }

    /// Whether Cassandra keeps the values as texts, which it does not order by the bytes of numbers.
    pub fn is_literal(&self) -> bool {
        let value_type = &self.value_type;
        self.key_type.is_some()
            || value_type.is_collection()
            || matches!(
                value_type,
                CqlType::Text
                    | CqlType::Ascii
                    | CqlType::Boolean
                    | CqlType::Tuple(_)
                    | CqlType::UserType { .. }
            )
    }

    /// A term as a text for people: the value, or of a pair of a map the key and the value. One that was cut is shown by its bytes.
    pub fn text_of(&self, term: &[u8]) -> String {
        let decode = |value_type: &CqlType, rest: &mut &[u8]| {
            let mut value = Vec::new();
            ordered::decode(value_type, rest, false, &mut value)?;
            Ok::<_, OrderedError>(literal::to_text(value_type, &value))
        };
        let decode_all = || {
            let mut rest = term;
            let key = self.key_type.as_ref().map(|key_type| decode(key_type, &mut rest)).transpose()?;
            let value = decode(&self.value_type, &mut rest)?;
            Ok::<_, OrderedError>(match key {
                Some(key) => format!("{key}: {value}"),
                None => value,
            })
        };
        decode_all().unwrap_or_else(|_| literal::to_text(&CqlType::Blob, term))
    }

    /// The term of a value.
    pub fn term(&self, value: &[u8]) -> Result<Vec<u8>, OrderedError> {
        let mut term = Vec::with_capacity(value.len() + 2);
        self.put_term(value, &mut term)?;
        Ok(term)
    }

    /// The term of a pair of a map.
    pub fn entry_term(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, OrderedError> {
        let mut term = Vec::with_capacity(key.len() + value.len() + 4);
        if let Some(key_type) = &self.key_type {
            ordered::encode(key_type, key, false, &mut term)?;
        }
        self.put_term(value, &mut term)?;
        Ok(term)
    }

    /// The terms of the texts that start with this one.
    pub fn terms_with_prefix(&self, prefix: &[u8]) -> Result<TermRange, OrderedError> {
        let prefix = self.analysis.map_or(Cow::Borrowed(prefix), |analysis| analysis.apply(prefix));
        if prefix.is_empty() {
            return Ok(TermRange::Between { lower: Bound::Unbounded, upper: Bound::Unbounded });
        }
        let mut lower = Vec::with_capacity(prefix.len() + 3);
        ordered::encode(&self.value_type, &prefix, false, &mut lower)?;
        // The end of the text is left out: longer texts go on there.
        lower.truncate((lower.len() - TEXT_END_BYTES).min(TERM_BYTES_MAX));
        let mut upper = lower.clone();
        while upper.pop_if(|last| *last == u8::MAX).is_some() {}
        let upper = match upper.pop() {
            Some(last) => {
                upper.push(last + 1);
                Bound::Excluded(upper)
            }
            None => Bound::Unbounded,
        };
        Ok(TermRange::Between { lower: Bound::Included(lower), upper })
    }

    /// The end of the range of terms of the values on one side of a value. It serves as a lower end and as an upper one.
    pub fn bound(&self, value: &[u8], inclusive: bool) -> Result<Bound<Vec<u8>>, OrderedError> {
        let term = self.term(value)?;
        // A term that may be cut is that of other values too.
        let is_whole = term.len() < TERM_BYTES_MAX;
        Ok(if is_whole && !inclusive { Bound::Excluded(term) } else { Bound::Included(term) })
    }
}
