//! Failures of function calls.

/// The reason why a call failed: an invalid value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request is impossible.
    Invalid(String),
    /// The function failed during execution.
    Execution(String),
}

/// The result of a call before the function's name is added to an error.
pub(super) type CallResult = std::result::Result<Option<Vec<u8>>, Failure>;
