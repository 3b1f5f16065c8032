//! Syntax errors, with Cassandra's texts, on which clients match.

use std::fmt;

use thiserror::Error;

/// A position in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character within the line, from 0.
    pub column: usize,
}

impl Position {
    /// The position of a byte of the text.
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

/// A syntax error. `Display` is the message sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyntaxError {
    /// A character that starts no token, or an unterminated token.
    #[error("{position} {problem}")]
    Character {
        /// The position.
        position: Position,
        /// The problem.
        problem: String,
    },
    /// An unexpected token.
    #[error("{position} {problem} ({snippet})")]
    Token {
        /// The position.
        position: Position,
        /// The problem.
        problem: String,
        /// The text around, with the token in brackets.
        snippet: String,
    },
    /// The nesting exceeds the limit.
    #[error("{position} nested too deeply (at most {limit} levels)")]
    TooDeep {
        /// Where the limit was exceeded.
        position: Position,
        /// The limit.
        limit: usize,
    },
    /// Too many operators in one expression.
    #[error("{position} too many operators in one expression (at most {limit})")]
    TooManyOperators {
        /// Where the limit was exceeded.
        position: Position,
        /// The limit.
        limit: usize,
    },
    /// A violated rule that does not depend on the schema.
    #[error("{0}")]
    Rule(String),
}
