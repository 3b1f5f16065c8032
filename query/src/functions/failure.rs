//! How a call fails.

/// Why a call failed: the function did not like its arguments' values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request asks for something impossible.
    Invalid(String),
    /// The function failed while it ran.
    Execution(String),
}

/// The result of a call before the function's name is added to an error.
pub(super) type Outcome = std::result::Result<Option<Vec<u8>>, Failure>;
