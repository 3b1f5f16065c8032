//! The values of `speculative_retry` and `additional_write_policy`: when a coordinator asks another replica.
//!
//! The option only affects speed. The text is normalised as in Cassandra, so that the schema tables show an equal
//! text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

/// When to ask another replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpeculativeRetry {
    Never,
    Always,
    /// After this percentile of the latencies seen; in (0, 100).
    Percentile(f64),
    /// After this number of milliseconds.
    FixedMs(u32),
    Min(Box<SpeculativeRetry>, Box<SpeculativeRetry>),
    Max(Box<SpeculativeRetry>, Box<SpeculativeRetry>),
}

impl Default for SpeculativeRetry {
    fn default() -> Self {
        Self::Percentile(99.0)
    }
}

impl SpeculativeRetry {
    /// Reads `NEVER`, `ALWAYS`, `99p`, `99PERCENTILE`, `50ms`, `MIN(99p,50ms)`, `MAX(…)`.
    pub fn parse(text: &str) -> Result<Self> {
        let upper = text.trim().to_uppercase();
        if upper == "NEVER" || upper == "NONE" {
            return Ok(Self::Never);
        }
        if upper == "ALWAYS" {
            return Ok(Self::Always);
        }
        for (name, is_min) in [("MIN", true), ("MAX", false)] {
            let arguments =
                upper.strip_prefix(name).and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
            let Some((first, second)) = arguments.and_then(|arguments| arguments.split_once(',')) else {
                continue;
            };
            let first = Box::new(Self::simple(first.trim(), text)?);
            let second = Box::new(Self::simple(second.trim(), text)?);
            return if std::mem::discriminant(&*first) == std::mem::discriminant(&*second) {
                Err(invalid(text))
            } else if is_min {
                Ok(Self::Min(first, second))
            } else {
                Ok(Self::Max(first, second))
            };
        }
        Self::simple(&upper, text)
    }

    fn simple(upper: &str, text: &str) -> Result<Self> {
        if let Some(digits) = upper.strip_suffix("MS") {
            let milliseconds = number(digits).ok_or_else(|| invalid(text))?;
            return Ok(Self::FixedMs(milliseconds as u32));
        }
        let digits = upper.strip_suffix("PERCENTILE").or_else(|| upper.strip_suffix('P'));
        let percentile = digits.and_then(number).ok_or_else(|| invalid(text))?;
        if !(percentile > 0.0 && percentile < 100.0) {
            return Err(RequestError::Configuration(format!(
                "Invalid value {text} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
            )));
        }
        Ok(Self::Percentile(percentile))
    }
}

fn number(digits: &str) -> Option<f64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { digits.parse().ok() } else { None }
}

fn invalid(text: &str) -> RequestError {
    RequestError::Configuration(format!("Invalid value {text} for option 'speculative_retry'"))
}

impl fmt::Display for SpeculativeRetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => formatter.write_str("NEVER"),
            Self::Always => formatter.write_str("ALWAYS"),
            Self::Percentile(percentile) => write!(formatter, "{percentile}p"),
            Self::FixedMs(milliseconds) => write!(formatter, "{milliseconds}ms"),
            Self::Min(first, second) => write!(formatter, "MIN({first},{second})"),
            Self::Max(first, second) => write!(formatter, "MAX({first},{second})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_normalised() {
        let cases = [
            ("99percentile", "99p"),
            ("99.5P", "99.5p"),
            ("50ms", "50ms"),
            ("always", "ALWAYS"),
            ("NONE", "NEVER"),
            ("min(99p, 50MS)", "MIN(99p,50ms)"),
            ("MAX(10ms,90P)", "MAX(10ms,90p)"),
        ];
        for (text, normal) in cases {
            let policy = SpeculativeRetry::parse(text).unwrap();
            assert_eq!(policy.to_string(), normal);
            assert_eq!(SpeculativeRetry::parse(normal).unwrap(), policy);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let error = |text: &str| SpeculativeRetry::parse(text).unwrap_err().to_string();
        assert_eq!(error("dogPERCENTILE"), "Invalid value dogPERCENTILE for option 'speculative_retry'");
        assert_eq!(
            error("101PERCENTILE"),
            "Invalid value 101PERCENTILE for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
        );
        for text in ["", "99", "p", "0p", "100p", "-1ms", "infp", "MIN(99p,90p)", "MIN(99p)", "sometimes"] {
            SpeculativeRetry::parse(text).unwrap_err();
        }
    }
}
