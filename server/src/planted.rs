//! Bugs that a simulation plants, to see whether its checkers find them.
//!
//! Invariant: without the feature `planted-bugs` none can be planted, and asking for one costs nothing.

/// A bug that breaks one promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A replica that missed a write gets no hint.
    SkipHint,
    /// What a replica lacks is not written to it by a read.
    DropReadRepair,
    /// A replica acknowledges a write before its log has it.
    AcknowledgeBeforeLog,
    /// A replica does not keep the ballot that it has promised.
    ForgetPromise,
    /// Who gives a range up sends it as it was a second ago: partitions that were written since are missing there.
    StreamOldRange,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SkipHint,
        Self::DropReadRepair,
        Self::AcknowledgeBeforeLog,
        Self::ForgetPromise,
        Self::StreamOldRange,
    ];
}
