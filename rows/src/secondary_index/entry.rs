//! The entries of an index: a term, and the key of what has it.
//!
//! ```text
//! entry := tag u8 (REGULAR_TAG) | term, escaped | 0 0 | full key          a zero byte of the term is escaped as 0 1
//! ```
//!
//! Entries compare as (term, full key) do. The key of a partition that has a term is that of its static row. In a file of an index an entry is the
//! position of a row of one partition, whose prefix is [`PARTITION`].

use std::ops::Bound;

use crate::key::{PREFIX_OVERHEAD_BYTES, REGULAR_TAG, STATIC_POSITION, prefix_length};

use super::Subject;

/// The longest term. Longer values have the same term if their beginnings agree.
pub const TERM_BYTES_MAX: usize = 1_024;

const END: [u8; 2] = [0, 0];
const ESCAPED_ZERO: [u8; 2] = [0, 1];

/// The prefix of the keys in a file of an index: of the partition with token 0 and an empty key.
pub const PARTITION: [u8; PREFIX_OVERHEAD_BYTES] = {
    // `encode_token(0)` is not const.
    let mut prefix = [0; PREFIX_OVERHEAD_BYTES];
    prefix[0] = 0x80;
    prefix
};

fn put_term(out: &mut Vec<u8>, term: &[u8]) {
    out.push(REGULAR_TAG);
    for part in term.split_inclusive(|byte| *byte == 0) {
        match part.split_last() {
            Some((0, rest)) => {
                out.extend_from_slice(rest);
                out.extend_from_slice(&ESCAPED_ZERO);
            }
            _ => out.extend_from_slice(part),
        }
    }
}

/// Appends the entry of a term of a row, or of its partition.
pub fn put_entry(out: &mut Vec<u8>, term: &[u8], subject: Subject, full_key: &[u8]) {
    debug_assert!(term.len() <= TERM_BYTES_MAX, "whoever makes terms cuts them");
    put_term(out, term);
    out.extend_from_slice(&END);
    match subject {
        Subject::Row => out.extend_from_slice(full_key),
        Subject::Partition => {
            let prefix = prefix_length(full_key).and_then(|length| full_key.get(..length));
            out.extend_from_slice(prefix.unwrap_or(full_key));
            out.extend_from_slice(STATIC_POSITION);
        }
    }
}

/// What all entries of a term begin with.
pub fn start_of_term(term: &[u8]) -> Vec<u8> {
    let mut start = Vec::with_capacity(term.len() + 3);
    put_term(&mut start, term);
    start.extend_from_slice(&END);
    start
}

/// A bound behind all entries that begin with these bytes of [`start_of_term`].
pub fn end_of_term(start_of_term: &[u8]) -> Vec<u8> {
    let mut end = start_of_term.to_vec();
    // The last byte is that of `END`; no escaped term goes on with this one there.
    if let Some(last) = end.last_mut() {
        *last = 1;
    }
    // `ESCAPED_ZERO` begins the entries of longer terms. Those are behind this bound or at it.
    end
}

/// The half-open range of the entries whose terms lie between these bounds.
pub fn between(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
    let start = match lower {
        Bound::Unbounded => vec![REGULAR_TAG],
        Bound::Included(term) => start_of_term(term),
        Bound::Excluded(term) => end_of_term(&start_of_term(term)),
    };
    let end = match upper {
        Bound::Unbounded => vec![REGULAR_TAG + 1],
        Bound::Excluded(term) => start_of_term(term),
        Bound::Included(term) => end_of_term(&start_of_term(term)),
    };
    (start, end)
}

/// Splits an entry into what all entries of its term begin with, and the full key. `None`: it is malformed.
pub fn split(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 1;
    loop {
        at += entry.get(at..)?.iter().position(|byte| *byte == 0)?;
        let pair = entry.get(at..at + 2)?;
        at += 2;
        if pair == END {
            return entry.split_at_checked(at);
        }
    }
}

/// The term of an entry. `None`: it is malformed.
pub fn term_of(entry: &[u8]) -> Option<Vec<u8>> {
    let (start, _) = split(entry)?;
    let escaped = start.strip_prefix(&[REGULAR_TAG])?.strip_suffix(&END)?;
    let mut term = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(byte) = rest.next() {
        term.push(*byte);
        if *byte == 0 {
            // The 1 of `ESCAPED_ZERO`.
            rest.next();
        }
    }
    Some(term)
}

const _: () = assert!(PARTITION[0] == 0x80 && STATIC_POSITION[0] < REGULAR_TAG);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{encode_token, full_key};

    #[test]
    fn entries_compare_as_terms_and_keys_do() {
        assert_eq!(PARTITION[..8], encode_token(0));
        let terms: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\0b", b"ab"];
        let keys = [full_key(-5, b"x", &[2, 1]).unwrap(), full_key(7, b"", &[2]).unwrap()];
        let mut entries = Vec::new();
        for term in terms {
            for key in &keys {
                let mut entry = Vec::new();
                put_entry(&mut entry, term, Subject::Row, key);
                let (start, found) = split(&entry).unwrap();
                assert_eq!((start, found), (start_of_term(term).as_slice(), key.as_slice()));
                assert_eq!(term_of(&entry).unwrap(), term);
                entries.push(entry);
            }
        }
        assert!(entries.is_sorted());
        for (number, term) in terms.iter().enumerate() {
            let (start, end) = between(&Bound::Included(term.to_vec()), &Bound::Included(term.to_vec()));
            let inside = entries.iter().enumerate().filter(|(_, entry)| start <= **entry && **entry < end);
            let numbers: Vec<_> = inside.map(|(number, _)| number / 2).collect();
            assert_eq!(numbers, [number, number]);
            let (start, end) = between(&Bound::Excluded(term.to_vec()), &Bound::Unbounded);
            let behind = entries.iter().filter(|entry| start <= **entry && **entry < end).count();
            assert_eq!(behind, entries.len() - 2 * (number + 1));
        }
    }

    #[test]
    fn golden_bytes() {
        let mut entry = Vec::new();
        put_entry(&mut entry, b"a\0b", Subject::Partition, &full_key(1, b"k", &[2, 9]).unwrap());
        let mut expected = vec![2, b'a', 0, 1, b'b', 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'k'];
        expected.extend_from_slice(STATIC_POSITION);
        assert_eq!(entry, expected);
        for cut in 0..7 {
            assert_eq!(split(&entry[..cut]), None);
        }
    }
}
