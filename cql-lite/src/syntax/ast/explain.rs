//! EXPLAIN: an extension, which Cassandra does not have.

use super::Statement;

/// `EXPLAIN [ANALYZE] [FORMAT JSON] statement`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// The statement is executed, too.
    pub analyze: bool,
    /// The answer is one document of JSON.
    pub json: bool,
    /// A SELECT, INSERT, UPDATE, DELETE or BATCH.
    pub statement: Box<Statement>,
}
