//! What is wrong with a statement's text, in the words that Cassandra uses and clients match on.

use std::fmt;

use thiserror::Error;

/// A place in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character within the line, from 0.
    pub column: usize,
}

impl Position {
    /// The place of a byte of the text.
    pub(crate) fn of(text: &str, at_byte: usize) -> Self {
        let before = text.get(..at_byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before.get(line_start..).map_or(0, |line| line.chars().count()),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{}", self.line, self.column)
    }
}

/// Why a text is not a statement. The `Display` text is what the client is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyntaxError {
    /// A character that starts no token, or a token that does not end.
    #[error("{position} {problem}")]
    Character {
        /// Where.
        position: Position,
        /// What.
        problem: String,
    },
    /// A token where another belongs.
    #[error("{position} {problem} ({snippet})")]
    Token {
        /// Where.
        position: Position,
        /// What.
        problem: String,
        /// The text around, with the token in brackets.
        snippet: String,
    },
    /// Nested deeper than the limit.
    #[error("{position} nested too deeply (at most {limit} levels)")]
    TooDeep {
        /// Where the limit was passed.
        position: Position,
        /// The limit.
        limit: usize,
    },
    /// More operators in an expression than are allowed.
    #[error("{position} too many operators in one expression (at most {limit})")]
    TooManyOperators {
        /// Where the limit was passed.
        position: Position,
        /// The limit.
        limit: usize,
    },
    /// Well-formed, but against a rule that needs no schema.
    #[error("{0}")]
    Rule(String),
}
