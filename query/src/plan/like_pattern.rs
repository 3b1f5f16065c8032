//! The right side of LIKE: a text with `%` at its start, at its end, at both or at none.
//!
//! Invariants:
//! * Only a `%` at an end of the pattern stands for other characters, as in Cassandra. One within it is a character, and so is `_`.
//! * The text between is not empty.

use crate::error::{RequestError, Result};
use crate::schema::index_terms::TextAnalysis;

const WILDCARD: u8 = b'%';

/// A pattern of LIKE with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikePattern {
    pub kind: LikeKind,
    /// The pattern without its wildcards.
    pub text: Vec<u8>,
}

/// Where the text of a pattern must be in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LikeKind {
    /// `'text%'`
    Prefix,
    /// `'%text'`
    Suffix,
    /// `'%text%'`
    Contains,
    /// `'text'`
    Whole,
}

impl LikeKind {
    /// The kind as Cassandra names it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefix => "LIKE '<term>%'",
            Self::Suffix => "LIKE '%<term>'",
            Self::Contains => "LIKE '%<term>%'",
            Self::Whole => "LIKE '<term>'",
        }
    }

    /// Whether only an index for the parts of texts decides it.
    pub fn needs_parts(self) -> bool {
        matches!(self, Self::Suffix | Self::Contains)
    }
}

impl LikePattern {
    /// Takes a written or bound pattern apart.
    pub fn parse(pattern: &[u8]) -> Result<Self> {
        let (kind, text) = match pattern {
            [WILDCARD, text @ .., WILDCARD] => (LikeKind::Contains, text),
            [WILDCARD, text @ ..] => (LikeKind::Suffix, text),
            [text @ .., WILDCARD] => (LikeKind::Prefix, text),
            text => (LikeKind::Whole, text),
        };
        if text.is_empty() {
            return Err(RequestError::invalid("LIKE value can't be empty."));
        }
        Ok(Self { kind, text: text.to_vec() })
    }

    /// The pattern for texts after an analysis.
    #[must_use]
    pub fn analyzed(&self, analysis: TextAnalysis) -> Self {
        Self { kind: self.kind, text: analysis.apply(&self.text).into_owned() }
    }

    /// Whether a text is like the pattern.
    pub fn matches(&self, text: &[u8]) -> bool {
        match self.kind {
            LikeKind::Prefix => text.starts_with(&self.text),
            LikeKind::Suffix => text.ends_with(&self.text),
            LikeKind::Contains => memchr::memmem::find(text, &self.text).is_some(),
            LikeKind::Whole => text == self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_at_the_ends_decide_where_the_text_must_be() {
        for (pattern, like, unlike) in [
            ("ab%", &["ab", "abc"][..], &["", "a", "cab", "Ab"][..]),
            ("%ab", &["ab", "cab"], &["", "b", "abc"]),
            ("%ab%", &["ab", "cab", "abc", "cabc"], &["", "a", "acb"]),
            ("ab", &["ab"], &["", "abc", "cab"]),
            ("a%b", &["a%b"], &["ab", "acb"]),
            ("a_%", &["a_", "a_b"], &["ab"]),
            ("%%a%", &["%a", "b%ac"], &["a"]),
            ("é%", &["école"], &["ecole"]),
        ] {
            let parsed = LikePattern::parse(pattern.as_bytes()).unwrap();
            for text in like {
                assert!(parsed.matches(text.as_bytes()), "{pattern} {text}");
            }
            for text in unlike {
                assert!(!parsed.matches(text.as_bytes()), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn a_pattern_without_text_is_refused() {
        for pattern in ["", "%", "%%"] {
            let error = LikePattern::parse(pattern.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "LIKE value can't be empty.", "{pattern}");
        }
    }
}
