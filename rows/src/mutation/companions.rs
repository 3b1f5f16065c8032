//! Companions of a mutation: mutations of other tables that belong to it, such as the entry of a change feed.
//!
//! ```text
//! mutation with companions := version u8 (2) | part (length, bytes) | part …      each part is a mutation of version 1
//! ```
//!
//! The first part is the *head*: table, token and partition key of the whole are its own, and decide where it is written. A shard appends the
//! whole as one record to its commit log and applies all parts in one critical section, so that no crash leaves a part of it. Hints, the
//! batch log and transactions keep the bytes as they are.
//!
//! Invariants: there is at least one companion, and no companion has companions. The encoding is bounded as one mutation.

use bytes::Bytes;

use super::{MUTATION_VERSION, Mutation, MutationRef};
use crate::codec::{DecodeError, Reader, put_bytes};

/// The version of the encoding of a mutation with companions.
pub const VERSION_WITH_COMPANIONS: u8 = 2;

impl Mutation {
    /// One mutation of all these. The parts of `head` come first, then those of each of `others`.
    pub fn with_companions(head: &Self, others: &[Self]) -> Result<Self, DecodeError> {
        const LENGTH_BYTES_MAX: usize = 5;
        if others.is_empty() {
            return Ok(head.clone());
        }
        let all = || std::iter::once(head).chain(others);
        let capacity = all().map(|mutation| LENGTH_BYTES_MAX + mutation.bytes.len()).sum::<usize>();
        let mut out = Vec::with_capacity(1 + capacity);
        out.push(VERSION_WITH_COMPANIONS);
        for mutation in all() {
            for part in mutation.view()?.parts() {
                put_bytes(&mut out, part?.bytes);
            }
        }
        let bytes = Bytes::from(out);
        MutationRef::parse(&bytes)?;
        Ok(Self { bytes })
    }

    /// Whether other tables are changed together with this one.
    #[inline]
    pub fn has_companions(&self) -> bool {
        self.bytes.first() == Some(&VERSION_WITH_COMPANIONS)
    }
}

impl<'a> MutationRef<'a> {
    /// As [`MutationRef::parse`] of other versions than the first.
    #[cold]
    pub(super) fn parse_with_companions(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte("a mutation")?;
        if version != VERSION_WITH_COMPANIONS {
            return Err(DecodeError::Invalid { what: "version of a mutation", value: u64::from(version) });
        }
        let head = part(&mut reader)?;
        let companions = reader.rest();
        if companions.is_empty() {
            return Err(DecodeError::Truncated { what: "the companions of a mutation" });
        }
        Ok(Self { bytes, companions, ..head })
    }

    /// Whether other tables are changed together with this one.
    #[inline]
    pub fn has_companions(&self) -> bool {
        !self.companions.is_empty()
    }

    /// The companions in the order they were added. It ends after the first error.
    pub fn companions(&self) -> impl Iterator<Item = Result<MutationRef<'a>, DecodeError>> + use<'a> {
        parts_of(self.companions)
    }

    /// The head, then the companions, each alone. A mutation without companions is its only part. It ends after the first error.
    pub fn parts(&self) -> impl Iterator<Item = Result<MutationRef<'a>, DecodeError>> + use<'a> {
        let (alone, several) =
            if self.has_companions() { (None, &self.bytes[1..]) } else { (Some(Ok(*self)), &[][..]) };
        alone.into_iter().chain(parts_of(several))
    }

    /// A copy, as a mutation of its own.
    pub fn to_mutation(&self) -> Result<Mutation, DecodeError> {
        Mutation::from_bytes(Bytes::copy_from_slice(self.bytes))
    }

    /// Bytes of the encoding without those of companions.
    pub fn own_bytes(&self) -> usize {
        self.bytes.len() - self.companions.len()
    }
}

fn parts_of(bytes: &[u8]) -> impl Iterator<Item = Result<MutationRef<'_>, DecodeError>> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let next = part(&mut reader);
        if next.is_err() {
            reader = Reader::new(&[]);
        }
        Some(next)
    })
}

/// The next part. It has no companions of its own.
fn part<'a>(reader: &mut Reader<'a>) -> Result<MutationRef<'a>, DecodeError> {
    let bytes = reader.bytes("a part of a mutation")?;
    match bytes.first() {
        None | Some(&MUTATION_VERSION) => MutationRef::parse(bytes),
        Some(&other) => {
            Err(DecodeError::Invalid { what: "version of a part of a mutation", value: u64::from(other) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Deletion, Liveness};
    use crate::mutation::{MutationBuilder, TableId};
    use crate::row_writer::RowBuilder;

    fn of_table(table: u8) -> Mutation {
        let mut builder = MutationBuilder::new(TableId([table; 16]), i64::from(table), &[table]).unwrap();
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp: 1, expiry: None });
        builder.row(&[2, table], &mut row);
        builder.build()
    }

    #[test]
    fn companions_come_with_their_head() {
        let (head, others) = (of_table(1), [of_table(2), of_table(3)]);
        let whole = Mutation::with_companions(&head, &others).unwrap();
        let read = Mutation::from_bytes(whole.bytes().clone()).unwrap();
        let view = read.view().unwrap();
        assert_eq!((view.table, view.token, view.partition_key), (TableId([1; 16]), 1, &[1][..]));
        assert_eq!(view.operations().count(), 1);
        let parts: Vec<_> = view.parts().map(Result::unwrap).collect();
        let alone: Vec<_> = [&head, &others[0], &others[1]].map(|part| part.view().unwrap()).into();
        assert_eq!(parts, alone);
        assert_eq!(view.companions().map(Result::unwrap).collect::<Vec<_>>(), alone[1..]);
        assert_eq!(view.own_bytes(), 2 + head.bytes().len());
    }

    #[test]
    fn companions_of_companions_are_parts_of_the_whole() {
        let pair = Mutation::with_companions(&of_table(1), &[of_table(2)]).unwrap();
        let whole = Mutation::with_companions(&pair, &[pair.clone(), of_table(3)]).unwrap();
        let parts: Vec<u8> =
            whole.view().unwrap().parts().map(|part| part.unwrap().partition_key[0]).collect();
        assert_eq!(parts, [1, 2, 1, 2, 3]);
    }

    #[test]
    fn without_others_the_head_stays_as_it_is() {
        let head = of_table(1);
        assert_eq!(Mutation::with_companions(&head, &[]).unwrap(), head);
        let view = head.view().unwrap();
        assert!(!view.has_companions());
        assert_eq!(view.parts().map(Result::unwrap).collect::<Vec<_>>(), [view]);
    }

    #[test]
    fn golden_bytes() {
        let whole = Mutation::with_companions(&of_table(1), &[of_table(2)]).unwrap();
        let mut expected = vec![VERSION_WITH_COMPANIONS];
        for table in [1, 2] {
            let part = of_table(table);
            expected.push(u8::try_from(part.bytes().len()).unwrap());
            expected.extend_from_slice(part.bytes());
        }
        assert_eq!(whole.bytes()[..], expected);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = Mutation::with_companions(&of_table(1), &[of_table(2)]).unwrap();
        for length in 0..whole.bytes().len() {
            assert!(Mutation::from_bytes(whole.bytes().slice(..length)).is_err(), "{length}");
        }
        let mut nested = vec![VERSION_WITH_COMPANIONS];
        put_bytes(&mut nested, of_table(1).bytes());
        put_bytes(&mut nested, whole.bytes());
        assert!(Mutation::from_bytes(nested.into()).is_err());
        let mut of_damaged_companion = MutationBuilder::new(TableId([2; 16]), 2, &[2]).unwrap();
        of_damaged_companion.delete_partition(Deletion { timestamp: 1, local_deletion_time: 1 });
        let companion = of_damaged_companion.build();
        let whole = Mutation::with_companions(&of_table(1), &[companion]).unwrap();
        let mut bytes = whole.bytes().to_vec();
        *bytes.last_mut().unwrap() |= 0x80;
        assert!(Mutation::from_bytes(bytes.into()).is_err());
    }
}
