//! The kinds of guardrails: thresholds of numbers, features that can be turned off, and values that are disallowed, ignored or
//! warned of.

use std::collections::BTreeSet;

use helenus_query::error::{RequestError, Result};

/// How the messages of all guardrails begin.
const BEGINNING: &str = "Guardrail ";

/// Whether a request was refused by a guardrail.
pub fn is_violation(error: &RequestError) -> bool {
    matches!(error, RequestError::Invalid(message) if message.starts_with(BEGINNING))
}

/// Fits the message of a guardrail into Cassandra's frame.
fn decorate(name: &str, message: &str, reason: &str) -> String {
    let between = match (reason.is_empty(), message.ends_with('.')) {
        (true, _) => "",
        (false, true) => " ",
        (false, false) => ". ",
    };
    format!("{BEGINNING}{name} violated: {message}{between}{reason}")
}

/// Most warnings of guardrails for one request.
const WARNINGS_MAX: usize = 100;

/// Adds a warning, once.
fn warn(message: String, warnings: &mut Vec<String>) {
    if warnings.len() < WARNINGS_MAX && !warnings.contains(&message) {
        warnings.push(message);
    }
}

/// Refuses a request. Its client is warned as well, as in Cassandra.
fn fail(message: String, warnings: &mut Vec<String>) -> Result<()> {
    warn(message.clone(), warnings);
    Err(RequestError::Invalid(message))
}

/// How numbers are held to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    AtMost,
    AtLeast,
    /// The limit is a distance in microseconds: times should not be further in the future.
    After,
    /// Likewise for the past.
    Before,
}

impl Bound {
    /// Whether the limits are lengths of time.
    pub fn is_of_times(self) -> bool {
        matches!(self, Self::After | Self::Before)
    }
}

/// A number that should not be exceeded (or should be reached), with one limit for a warning and one for an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threshold {
    /// In messages, and before `_warn_threshold` and `_fail_threshold` in settings.
    pub name: &'static str,
    pub bound: Bound,
    pub warn: Option<u64>,
    pub fail: Option<u64>,
    /// Of the warning and of the error.
    texts: [&'static str; 2],
    reason: &'static str,
}

impl Threshold {
    pub(super) const fn new(
        name: &'static str,
        texts: [&'static str; 2],
        reason: &'static str,
        bound: Bound,
    ) -> Self {
        Self { name, bound, warn: None, fail: None, texts, reason }
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.warn.is_some() || self.fail.is_some()
    }

    /// Whether a number violates one of the limits, which are no times.
    #[inline]
    pub fn is_violated(&self, value: u64) -> bool {
        let mut limits = [self.warn, self.fail].into_iter().flatten();
        match self.bound {
            Bound::AtMost => limits.any(|limit| value > limit),
            Bound::AtLeast => limits.any(|limit| value < limit),
            Bound::After | Bound::Before => false,
        }
    }

    /// Checks a number. `what` is the thing that it belongs to.
    pub fn guard(&self, value: u64, what: &str, warnings: &mut Vec<String>) -> Result<()> {
        self.guard_between(i128::from(value), 0, what, warnings)
    }

    /// Checks a time against what the limits allow at another one, both in microseconds since the epoch.
    pub fn guard_time(&self, time: i64, now: i64, what: &str, warnings: &mut Vec<String>) -> Result<()> {
        self.guard_between(i128::from(time), i128::from(now), what, warnings)
    }

    fn guard_between(&self, value: i128, origin: i128, what: &str, warnings: &mut Vec<String>) -> Result<()> {
        let limit_of = |limit: u64| match self.bound {
            Bound::Before => origin - i128::from(limit),
            Bound::AtMost | Bound::AtLeast | Bound::After => origin + i128::from(limit),
        };
        let violates = |limit: &i128| match self.bound {
            Bound::AtMost | Bound::After => value > *limit,
            Bound::AtLeast | Bound::Before => value < *limit,
        };
        let message_of = |text: &str, limit: i128| {
            let message = text
                .replace("{value}", &value.to_string())
                .replace("{threshold}", &limit.to_string())
                .replace("{what}", what);
            decorate(self.name, &message, self.reason)
        };
        let [warning, failure] = self.texts;
        if let Some(limit) = self.fail.map(limit_of).filter(violates) {
            return fail(message_of(failure, limit), warnings);
        }
        if let Some(limit) = self.warn.map(limit_of).filter(violates) {
            warn(message_of(warning, limit), warnings);
        }
        Ok(())
    }
}

/// A feature that can be turned off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// In messages.
    name: &'static str,
    /// Before `_enabled` and `_warned` in settings.
    pub setting: &'static str,
    feature: &'static str,
    reason: &'static str,
    pub is_enabled: bool,
    /// Its use is warned of where it is enabled.
    pub is_warned: bool,
}

impl Flag {
    pub(super) const fn new(
        name: &'static str,
        setting: &'static str,
        feature: &'static str,
        reason: &'static str,
    ) -> Self {
        Self { name, setting, feature, reason, is_enabled: true, is_warned: false }
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        !self.is_enabled || self.is_warned
    }

    /// Checks the use of the feature.
    pub fn guard(&self, warnings: &mut Vec<String>) -> Result<()> {
        self.guard_as(self.feature, warnings)
    }

    /// As [`Flag::guard`], for a part of the feature with a name of its own.
    pub fn guard_as(&self, feature: &str, warnings: &mut Vec<String>) -> Result<()> {
        if !self.is_enabled {
            return fail(decorate(self.name, &format!("{feature} is not allowed"), self.reason), warnings);
        }
        if self.is_warned {
            warn(decorate(self.name, &format!("{feature} is not recommended"), self.reason), warnings);
        }
        Ok(())
    }
}

/// Values that are warned of, ignored or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// In messages, and before `_warned`, `_ignored` and `_disallowed` in settings.
    pub name: &'static str,
    what: &'static str,
    pub warned: BTreeSet<String>,
    pub ignored: BTreeSet<String>,
    pub disallowed: BTreeSet<String>,
}

impl Values {
    pub(super) const fn new(name: &'static str, what: &'static str) -> Self {
        Self { name, what, warned: BTreeSet::new(), ignored: BTreeSet::new(), disallowed: BTreeSet::new() }
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        !(self.warned.is_empty() && self.ignored.is_empty() && self.disallowed.is_empty())
    }

    /// Checks values. Returns those that must be ignored.
    pub fn guard<'v>(
        &self,
        values: &BTreeSet<&'v str>,
        warnings: &mut Vec<String>,
    ) -> Result<BTreeSet<&'v str>> {
        let among = |list: &BTreeSet<String>| -> BTreeSet<&'v str> {
            values.iter().copied().filter(|value| list.contains(*value)).collect()
        };
        let message_of =
            |before: &str, found: &BTreeSet<&str>, between: &str, kind: &str, all: &BTreeSet<String>| {
                let found = found.iter().copied().collect::<Vec<_>>().join(", ");
                let all = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let what = self.what;
                decorate(
                    self.name,
                    &format!("{before} [{found}] {between} {what} ({kind} values are: [{all}])"),
                    "",
                )
            };
        let disallowed = among(&self.disallowed);
        if !disallowed.is_empty() {
            let message = message_of(
                "Provided values",
                &disallowed,
                "are not allowed for",
                "disallowed",
                &self.disallowed,
            );
            fail(message, warnings)?;
        }
        let ignored = among(&self.ignored);
        if !ignored.is_empty() {
            let between = "as they are not supported for";
            warn(
                message_of("Ignoring provided values", &ignored, between, "ignored", &self.ignored),
                warnings,
            );
        }
        let warned = among(&self.warned);
        if !warned.is_empty() {
            let between = "are not recommended for";
            warn(message_of("Provided values", &warned, between, "warned", &self.warned), warnings);
        }
        Ok(ignored)
    }
}
