//! How many rows each shard of a node is asked for when all of them are read.

use helenus_query::run::select::PartitionHead;

/// The rows to request from each of several shards, of which together this many are wanted. Some more than the share: tokens are spread
/// evenly, so that one row of each partition is also, but partitions are not all of one size.
pub fn share_of(wanted: usize, shards: usize, head: Option<PartitionHead>) -> usize {
    const SPARE_ROWS: usize = 64;
    let share = wanted / shards;
    let spare = share / if head == Some(PartitionHead::OneRow) { 32 } else { 8 };
    share.saturating_add(spare).saturating_add(SPARE_ROWS).min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_asked_for_its_share_and_some_more_but_for_no_more_than_is_wanted() {
        assert_eq!(share_of(5001, 2, None), 2500 + 312 + 64);
        assert_eq!(share_of(5001, 2, Some(PartitionHead::OneRow)), 2500 + 78 + 64);
        assert_eq!(share_of(5001, 2, Some(PartitionHead::RegularRows(1))), share_of(5001, 2, None));
        assert_eq!(share_of(1, 8, None), 1);
        assert_eq!(share_of(100, 1, None), 100);
        assert_eq!(share_of(usize::MAX, 1, None), usize::MAX);
    }
}
