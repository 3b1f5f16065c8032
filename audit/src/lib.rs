//! Who did what, and what was asked: the audit log and the full query log of a node, and the commands that read and replay recorded
//! queries.
//!
//! Invariants:
//! * A shard never waits for a disk: records go to a bounded queue, which a thread of its own writes out ([`sink`]).
//! * Nothing is lost silently: what the queue has no room for, and what the disk refuses, is counted and told in the log itself.
//! * No password of a statement gets into a record.

pub mod audit_log;
pub mod command;
pub mod entry;
pub mod query_log;
pub mod reader;
pub mod record;
mod replay;
pub mod rotation;
pub mod sink;
pub mod statement_text;
mod target;
