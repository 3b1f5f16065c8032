//! Change feeds of tables: their options, and the columns of the log tables that keep what is written to them.
//!
//! Names and types are those of ScyllaDB's CDC, so that its consumers read the logs. Everything here is without side effects. Streams and
//! their generations are in the crate of the ring.

pub mod columns;
pub mod options;

pub use self::columns::{LogColumn, Place};
pub use self::options::{ChangeFeedOptions, Delta, OptionError, Preimage};
