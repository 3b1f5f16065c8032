//! The span deletions of a memtable by partition, for readers that want them as such.

use super::store::Memtable;
use crate::span::Span;

impl Memtable {
    /// Whether any partition may have spans.
    #[inline]
    pub fn has_spans(&self) -> bool {
        self.has_spans
    }

    /// The spans of the partition with this prefix, fragmented, by position.
    pub fn spans_of(&self, prefix: &[u8]) -> &[Span] {
        self.find_by_prefix(prefix)
            .and_then(|id| self.partition(id)?.spans.as_ref())
            .map_or(&[], |spans| spans.as_slice())
    }

    /// The prefix of the first partition with spans, in key order, from the first for which `is_passed` is false and as
    /// long as `is_wanted` holds. Partitions must have been put in order.
    pub fn next_with_spans(
        &self,
        is_passed: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        let rank = self.ordered.partition_point(|&id| is_passed(self.prefix(id)));
        self.first_with_spans(self.ordered.get(rank..)?.iter(), is_wanted)
    }

    /// The same backwards: from the last partition for which `is_left` is true.
    pub fn previous_with_spans(
        &self,
        is_left: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        let rank = self.ordered.partition_point(|&id| is_left(self.prefix(id)));
        self.first_with_spans(self.ordered.get(..rank)?.iter().rev(), is_wanted)
    }

    fn first_with_spans<'a>(
        &self,
        ids: impl Iterator<Item = &'a u32>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        ids.map(|&id| (id, self.prefix(id)))
            .take_while(|(_, prefix)| is_wanted(prefix))
            .find(|(id, _)| {
                let partition = self.partition(*id);
                partition.is_some_and(|partition| partition.spans.as_ref().is_some_and(|it| !it.is_empty()))
            })
            .map(|(_, prefix)| prefix)
    }
}
