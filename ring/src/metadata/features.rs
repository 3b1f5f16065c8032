//! The features that programs and clusters support.

/// The newest features that this program supports: anything stored, sent or agreed on in a way that older programs do
/// not understand. It is raised with each such change, which may then be used only if [`crate::topology::Topology::feature_level`] has
/// reached it.
///
/// * 2: removals are distinguished from leavings ([`super::Command::StartRemoval`], [`super::Command::TakeBackRemoval`], `removal`
///   of the state).
/// * 3: members announce to each other how full their disks are.
/// * 4: a row that is too large for a message is streamed in parts.
/// * 5: a schema change carries the tables that it changes, not their keyspaces ([`super::Command::ChangeTables`]), and so does a node's file of
///   changes.
/// * 6: a member carries out an operation on its snapshots for another one.
/// * 7: the log records which members have yet to clean up ranges that they no longer own ([`super::Uncleaned`], [`super::Command::Cleaned`],
///   [`super::Command::ForceLeave`]).
/// * 8: several dead members are removed together ([`super::Command::StartRemovals`]), and the replication of a keyspace changes by a
///   transition ([`crate::replication_change`], [`super::Command::AdvanceReplication`]).
/// * 9: the members agree on the time of a TRUNCATE, so that it binds transactions.
/// * 10: members send digests of ranges to each other, and note which are repaired.
/// * 11: a new member takes the place of a dead one ([`super::Command::StartReplacement`]).
/// * 12: a request says that it belongs to a traced request.
/// * 13: tables have secondary indexes.
/// * 14: tables and keyspaces have what Cassandra 5 gives them beside columns and indexes.
/// * 15: roles and permissions are a part of the metadata log, and so is the partition denylist ([`crate::denylist`]); tables may be encrypted
///   on every member, and may limit the requests a second, and may have change feeds. Replicas send receipts. A hint
///   that is handed over has its age, and a node notes since when members are down. Members upload their snapshots
///   for each other. Requests name the role that they are sent for. Repairs mend damaged files, and settle transactions.
pub const FEATURE_VERSION: u16 = SECURITY;
/// The feature level from which removals are distinguished from leavings.
pub const REMOVALS: u16 = 2;
/// The feature level from which members announce to each other how full their disks are.
pub const DISK_STATUS: u16 = 3;
/// The feature level from which a row that is too large for a message is streamed in parts.
pub const STREAMED_ROW_PARTS: u16 = 4;
/// The feature level from which a schema change carries the tables that it changes.
pub const SCHEMA_DELTAS: u16 = 5;
/// The feature level from which members carry out operations on their snapshots for each other.
pub const MEMBER_SNAPSHOTS: u16 = 6;
/// The feature level from which the log records pending cleanups.
pub const AGREED_CLEANUP: u16 = 7;
/// The feature level from which several dead members are removed together.
pub const REMOVALS_TOGETHER: u16 = 8;
/// The feature level from which the replication of a keyspace changes by a transition.
pub const REPLICATION_CHANGES: u16 = 8;
/// The feature level from which the members agree on the time of a TRUNCATE.
pub const TRUNCATION_TIMES: u16 = 9;
/// The feature level from which ranges are repaired.
pub const REPAIRS: u16 = 10;
/// The feature level from which a new member may take the place of a dead one.
pub const REPLACEMENTS: u16 = 11;
/// The feature level from which replicas take part in traces.
pub const TRACES: u16 = 12;
/// The feature level from which tables may have secondary indexes.
pub const INDEXES: u16 = 13;
/// The feature level from which tables and keyspaces may have what the rest of Cassandra 5's statements gives them: compact storage,
/// functions, masks, constraints, indexes of vectors, options of tables that had no effect before.
pub const CASSANDRA_5_SCHEMAS: u16 = 14;
/// The feature level from which roles and permissions are a part of the metadata log.
pub const SECURITY: u16 = 15;
/// The feature level from which the partition denylist is a part of the metadata log.
pub const DENYLIST: u16 = 15;
/// The feature level from which tables may limit the requests a second.
pub const RATE_LIMITS: u16 = 15;
/// The feature level from which tables may have the option `cap`.
pub const CAPS: u16 = 15;
/// The feature level from which tables may have the option `encryption`, and members say whether they encrypt.
pub const ENCRYPTED_TABLES: u16 = 15;
/// The feature level from which tables may have change feeds.
pub const CHANGE_FEEDS: u16 = 15;
/// The feature level from which replicas send a receipt of their part in a request.
pub const RECEIPTS: u16 = 15;
/// The feature level from which requests between nodes name the role that they are sent for.
pub const SHARES_BETWEEN_NODES: u16 = 15;
/// The feature level from which members upload their part of a snapshot for each other.
pub const MEMBER_UPLOADS: u16 = 15;
/// The feature level from which transactions may have tokens, and replicas read several tables together with a promise.
pub const TRANSACTION_TOKENS: u16 = 15;
/// The feature level from which a member that leaves says for how long it has kept a hint.
pub const AGED_HINTS: u16 = 15;
/// The feature level from which a node notes since when members are down, among its hints.
pub const HINT_WINDOWS: u16 = 15;
/// The feature level from which repairs mend damaged files, and settle transactions.
pub const MENDING: u16 = 15;
