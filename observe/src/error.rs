//! Why an operator does not get what was asked for.

/// The reason why an administrative operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// A keyspace, table or snapshot that does not exist; the text names it.
    #[error("{0}")]
    Unknown(String),
    /// The operation began and failed; the text has the reason.
    #[error("{0}")]
    Failed(String),
}
