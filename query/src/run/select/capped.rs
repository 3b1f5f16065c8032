//! What a SELECT sees of the partitions of a table with a cap: their first rows.
//!
//! Invariants:
//! * The source passes every row of a partition from its first one on, and those of a later page again: only so are they counted.
//!   The restrictions of clustering columns and the paging state decide here which of them are wanted.
//! * Only rows that are there count, whether they are wanted or not.

use helenus_engine::{Deletion, Purpose, RowRef, key, merge_rows};

use crate::error::{RequestError, Result};
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;
use crate::run::keys::{Slice, clustering_slices};
use crate::run::paging::PagingState;
use crate::schema::options::{Cap, Standing};
use crate::stored_key::SourceRow;

/// The place of a run in the partition that it reads.
pub(super) struct CappedRows<'p> {
    cap: &'p Cap,
    /// Rows of the partition so far.
    seen: u64,
    /// The wanted positions, ascending and disjoint.
    slices: Vec<Slice>,
    /// The end of the page before.
    resume: Option<PagingState>,
}

/// What is left of a row.
pub(super) enum Left {
    Whole,
    /// What was written to the buffer of the caller.
    Rest,
    Nothing,
    /// Nothing, nor of what is behind it in its partition.
    NothingFromHere,
}

/// Whether a row that is there is wanted.
pub(super) enum Wanted {
    Yes,
    No,
    /// Nor is any behind it in its partition.
    NoMore,
}

impl<'p> CappedRows<'p> {
    /// `None`: the table has no cap.
    pub(super) fn of(
        plan: &'p SelectPlan,
        bindings: &Bindings<'_>,
        paging_state: Option<&PagingState>,
    ) -> Result<Option<Self>> {
        let Some(cap) = &plan.table.options.cap else { return Ok(None) };
        let mut slices = clustering_slices(&plan.restrictions.clustering, &plan.table, bindings)?;
        if plan.names_rows() {
            let exact = |Slice { start, .. }: Slice| Slice { end: key::behind(&start), start };
            slices = slices.into_iter().map(exact).collect();
        }
        Ok(Some(Self { cap, seen: 0, slices, resume: paging_state.cloned() }))
    }

    pub(super) fn begin_partition(&mut self) {
        self.seen = 0;
    }

    /// Whether rows of a partition are read that are not wanted.
    pub(super) fn skips_rows(&self) -> bool {
        self.resume.is_some() || !matches!(self.slices.as_slice(), [slice] if *slice == Slice::all_rows())
    }

    /// How many rows of the partition may follow.
    pub(super) fn left(&self) -> u64 {
        u64::from(self.cap.rows).saturating_sub(self.seen)
    }

    /// Whether a cap of before may have left a part of a row.
    pub(super) fn needs_timestamps(&self) -> bool {
        !self.cap.earlier.is_empty()
    }

    /// What is left of the next row of the partition. A part is written to `rest`.
    pub(super) fn left_of(
        &self,
        source: &SourceRow<'_>,
        now_seconds: u32,
        rest: &mut Vec<u8>,
    ) -> Result<Left> {
        match self.cap.standing(self.seen) {
            Standing::Whole => Ok(Left::Whole),
            Standing::Evicted => Ok(Left::NothingFromHere),
            Standing::Since(timestamp) => {
                let shadow = Deletion { timestamp, local_deletion_time: 0 };
                rest.clear();
                let purpose = Purpose::Read { now_seconds };
                let merged = merge_rows(&[source.row], Some(shadow), purpose, 0, rest)
                    .map_err(|error| RequestError::Server(error.to_string()))?;
                Ok(if merged.is_written { Left::Rest } else { Left::Nothing })
            }
        }
    }

    /// Counts a row that is there.
    pub(super) fn count(&mut self, source: &SourceRow<'_>) -> Wanted {
        self.seen += 1;
        if self.is_on_earlier_page(source.partition_key, source.position) {
            return Wanted::No;
        }
        let next = self.slices.iter().find(|slice| source.position < slice.end.as_slice());
        match next {
            None => Wanted::NoMore,
            Some(slice) if source.position < slice.start.as_slice() => Wanted::No,
            Some(_) => Wanted::Yes,
        }
    }

    /// Whether the pages before have come to this position.
    pub(super) fn is_on_earlier_page(&self, partition_key: &[u8], position: &[u8]) -> bool {
        self.resume.as_ref().is_some_and(|resume| {
            resume.partition_key == partition_key
                && if resume.is_unread { position < &*resume.position } else { position <= &*resume.position }
        })
    }
}

/// A view of what is left of a row.
pub(super) fn rest_of<'a>(source: &SourceRow<'a>, rest: &'a [u8]) -> SourceRow<'a> {
    SourceRow { row: RowRef::new(rest, 0), ..*source }
}
