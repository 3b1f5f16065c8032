//! Bugs that a simulation plants, to test whether its checkers find them.
//!
//! Invariant: without the feature `planted-bugs` no bug can be planted, and the checks for bugs cost nothing.

/// A bug that breaks one guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A replica that missed a write gets no hint.
    SkipHint,
    /// A read does not write missing data to a replica.
    DropReadRepair,
    /// A replica acknowledges a write before its log has it.
    AcknowledgeBeforeLog,
    /// A replica does not store the ballot that it has promised.
    ForgetPromise,
    /// A source streams a range as it was a second ago: partitions that were written since are missing.
    StreamOldRange,
    /// A node that has given up ranges says that it has removed its data of them, and has not.
    KeepOldRange,
    /// New replicas are read before they have streamed anything.
    ReadBeforeStreaming,
    /// A repair does not write to a replica what it lacks.
    DropRepair,
    /// TRUNCATE does not bind transactions: what was agreed on before it is applied again.
    UnboundTransactions,
    /// A write at `EACH_QUORUM` is acknowledged by a quorum wherever its replicas are.
    QuorumAnywhere,
    /// The keys that one replica finds by an index are taken for those of the level.
    SearchOneReplica,
    /// Each replica looks for rows that have all searched columns there, at any level.
    SearchTornRows,
    /// A node that does not know whether its roles are the newest goes on with them.
    RolesForever,
    /// A leader of the metadata log takes what it has applied for the newest, without asking whether it still leads.
    UnconfirmedLeader,
    /// What removes a row of a table with a cap does not mark what is evicted.
    UnmarkedRemoval,
    /// The token of a transaction is not remembered.
    ForgetToken,
    /// A transaction is computed of what one replica has read, and not of the newest that a quorum has.
    DecideOnOneReading,
    /// The row that a view has of a row of the base table stays when that changes its place in the view, or goes.
    LeftViewRow,
    /// Who had a slice of the views goes on with it when its lease has ended, also beside its next holder.
    ForgetViewLease,
    /// What comes late into the log of a table with views is not looked for.
    SkipLateEntries,
    /// A change that was seen by those who compute views is not looked at again when its write is over.
    TrustFirstLook,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::SkipHint,
        Self::DropReadRepair,
        Self::AcknowledgeBeforeLog,
        Self::ForgetPromise,
        Self::StreamOldRange,
        Self::KeepOldRange,
        Self::ReadBeforeStreaming,
        Self::DropRepair,
        Self::UnboundTransactions,
        Self::QuorumAnywhere,
        Self::SearchOneReplica,
        Self::SearchTornRows,
        Self::RolesForever,
        Self::UnconfirmedLeader,
        Self::UnmarkedRemoval,
        Self::ForgetToken,
        Self::DecideOnOneReading,
        Self::LeftViewRow,
        Self::ForgetViewLease,
        Self::SkipLateEntries,
        Self::TrustFirstLook,
    ];
}
