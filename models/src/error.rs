//! The errors of a run, each with the request or statement that failed.

use std::fmt::Debug;

use scylla::errors::{ExecutionError, MetadataError, NewSessionError, PrepareError};

/// A failed run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {contact_points}: {source}")]
    Connect {
        contact_points: String,
        #[source]
        source: Box<NewSessionError>,
    },
    #[error("cannot read the cluster's metadata: {0}")]
    Metadata(#[source] Box<MetadataError>),
    #[error("cannot prepare `{statement}`: {source}")]
    Prepare {
        statement: String,
        #[source]
        source: Box<PrepareError>,
    },
    #[error("`{statement}` failed: {source}")]
    Execute {
        statement: String,
        #[source]
        source: Box<ExecutionError>,
    },
    #[error("the answer to `{statement}` cannot be read: {detail}")]
    Answer { statement: String, detail: String },
    #[error("the keyspace {0} exists; --replace drops it and its data first")]
    KeyspaceExists(String),
    #[error("{request} gave a wrong answer: {detail}")]
    WrongAnswer { request: String, detail: String },
    #[error("`{statement}` was sent {attempts} times, and whether it was applied is not known")]
    Unanswered { statement: String, attempts: u32 },
    #[error("{request} did not end within {seconds} s")]
    TooSlow { request: String, seconds: u64 },
    #[error("cannot find the bytes on disk of {table}: {detail}")]
    DiskUsage { table: String, detail: String },
    #[error("cannot start the embedded node: {0}")]
    Embedded(String),
    #[error("cannot write the report: {0}")]
    Output(#[source] std::io::Error),
}

/// Checks an answer; the error shows the first difference, not the whole of both sides.
pub fn ensure_equal<T: PartialEq + Debug>(request: &str, expected: &T, found: &T) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let detail = format!("expected {}, found {}", shorten(expected), shorten(found));
    Err(Error::WrongAnswer { request: request.to_owned(), detail })
}

/// Checks an answer of many rows in order.
pub fn ensure_same_rows<T: PartialEq + Debug>(
    request: &str,
    expected: &[T],
    found: &[T],
) -> Result<(), Error> {
    let differing = expected.iter().zip(found).position(|(left, right)| left != right);
    let detail = match differing {
        Some(index) => {
            format!(
                "row {index}: expected {}, found {}",
                shorten(&expected.get(index)),
                shorten(&found.get(index))
            )
        }
        None if expected.len() != found.len() => {
            format!("expected {} rows, found {}", expected.len(), found.len())
        }
        None => return Ok(()),
    };
    Err(Error::WrongAnswer { request: request.to_owned(), detail })
}

fn shorten(value: &impl Debug) -> String {
    const LENGTH_MAX: usize = 400;
    let text = format!("{value:?}");
    if text.chars().count() <= LENGTH_MAX {
        text
    } else {
        text.chars().take(LENGTH_MAX).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_row_is_named_by_its_place() {
        let error = ensure_same_rows("Q4", &[1, 2, 3], &[1, 5, 3]).unwrap_err();
        assert_eq!(error.to_string(), "Q4 gave a wrong answer: row 1: expected Some(2), found Some(5)");
    }

    #[test]
    fn a_missing_row_is_an_error() {
        let error = ensure_same_rows("Q4", &[1, 2, 3], &[1, 2]).unwrap_err();
        assert_eq!(error.to_string(), "Q4 gave a wrong answer: expected 3 rows, found 2");
        assert!(ensure_same_rows("Q4", &[1, 2], &[1, 2]).is_ok());
    }
}
