//! The syntax of TAIL: the table, where to begin, and when to end.

use cql_lite::types::{
    duration::Duration,
    time::{self, parse_timestamp},
};

use crate::{error::ShellError, token::Token};

const USAGE: &str = "TAIL [<keyspace>.]<table> [FROM 'beginning' | '<timestamp>' | <duration>] [LIMIT <changes>] [WINDOW <duration>]";

/// The youngest age at which changes are shown, if WINDOW names none: the time that a transaction may take by default (1.8 seconds for
/// others, and 2 to write), the half second by which an entry may lie before its write, and the rest for clocks of nodes that differ.
const DEFAULT_WINDOW_MS: i64 = 5_000;

/// A TAIL command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailCommand {
    pub keyspace: Option<String>,
    pub table: String,
    pub start: Start,
    /// How many changes are shown at most.
    pub limit: Option<u64>,
    /// Changes are shown when they are this old: whatever is still being written by then comes later.
    pub window_ms: i64,
}

/// Where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Now,
    /// With the oldest change that is kept.
    Beginning,
    /// With the changes of this millisecond.
    At(i64),
    /// With changes of this age.
    Ago(Duration),
}

impl Start {
    /// The first millisecond, by what time it is; `None`: no bound.
    pub fn resolve(self, now_ms: i64) -> Result<Option<i64>, ShellError> {
        match self {
            Self::Now => Ok(Some(now_ms)),
            Self::Beginning => Ok(None),
            Self::At(time_ms) => Ok(Some(time_ms)),
            Self::Ago(duration) => time::add_to_timestamp(now_ms, &duration.negate())
                .map(Some)
                .map_err(|error| ShellError::Usage(error.to_string())),
        }
    }

    fn parse(token: &Token) -> Result<Self, ShellError> {
        let text = token.text().ok_or_else(usage)?;
        if text.eq_ignore_ascii_case("beginning") {
            return Ok(Self::Beginning);
        }
        if let Ok(time_ms) = parse_timestamp(text) {
            return Ok(Self::At(time_ms));
        }
        match Duration::parse(text) {
            Ok(duration) if !duration.is_negative() => Ok(Self::Ago(duration)),
            _ => Err(ShellError::Usage(format!(
                "'{text}' is neither 'beginning' nor a timestamp ('2026-11-27 20:15:00Z') nor a duration (10m)"
            ))),
        }
    }
}

impl TailCommand {
    /// Reads the command from what follows TAIL.
    pub fn parse(arguments: &[Token]) -> Result<Self, ShellError> {
        let mut tokens = arguments.iter().peekable();
        let first = name(tokens.next())?;
        let (keyspace, table) = match tokens.next_if_eq(&&Token::Symbol('.')) {
            Some(_) => (Some(first), name(tokens.next())?),
            None => (None, first),
        };
        let (mut start, mut limit, mut window_ms) = (None, None, None);
        while let Some(clause) = tokens.next() {
            let value = tokens.next().ok_or_else(usage)?;
            let is_repeated = if clause.is("FROM") {
                start.replace(Start::parse(value)?).is_some()
            } else if clause.is("LIMIT") {
                limit.replace(count(value)?).is_some()
            } else if clause.is("WINDOW") {
                window_ms.replace(window(value)?).is_some()
            } else {
                return Err(usage());
            };
            if is_repeated {
                return Err(usage());
            }
        }
        Ok(Self {
            keyspace,
            table,
            start: start.unwrap_or(Start::Now),
            limit,
            window_ms: window_ms.unwrap_or(DEFAULT_WINDOW_MS),
        })
    }
}

fn usage() -> ShellError {
    ShellError::Usage(format!("Improper TAIL command. Usage: {USAGE}"))
}

/// An identifier: folded to lower case unless it was quoted.
fn name(token: Option<&Token>) -> Result<String, ShellError> {
    match token {
        Some(Token::Word(word)) => Ok(word.to_lowercase()),
        Some(Token::Name(name)) => Ok(name.clone()),
        _ => Err(usage()),
    }
}

fn count(token: &Token) -> Result<u64, ShellError> {
    match token {
        Token::Word(word) => word.parse().ok().filter(|count| *count > 0),
        _ => None,
    }
    .ok_or_else(|| ShellError::Usage("LIMIT is a number of changes, at least 1".to_owned()))
}

fn window(token: &Token) -> Result<i64, ShellError> {
    let refused = || ShellError::Usage("WINDOW is a duration without months, such as 2s or 500ms".to_owned());
    let duration = token.text().and_then(|text| Duration::parse(text).ok()).ok_or_else(refused)?;
    if duration.is_negative() || duration.months != 0 {
        return Err(refused());
    }
    time::add_to_timestamp(0, &duration).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn parse(text: &str) -> Result<TailCommand, ShellError> {
        TailCommand::parse(&tokens(text).unwrap())
    }

    #[test]
    fn the_whole_syntax() {
        let plain = TailCommand {
            keyspace: None,
            table: "orders".to_owned(),
            start: Start::Now,
            limit: None,
            window_ms: DEFAULT_WINDOW_MS,
        };
        assert_eq!(parse("Orders").unwrap(), plain);
        assert_eq!(
            parse("shop.\"Orders\" FROM 'beginning' LIMIT 5 WINDOW 1s500ms").unwrap(),
            TailCommand {
                keyspace: Some("shop".to_owned()),
                table: "Orders".to_owned(),
                start: Start::Beginning,
                limit: Some(5),
                window_ms: 1_500,
            }
        );
        assert_eq!(parse("orders limit 2 from beginning").unwrap().start, Start::Beginning);
        let from = |text: &str| parse(&format!("orders FROM {text}")).unwrap().start;
        assert_eq!(from("'1970-01-02 00:00:00Z'"), Start::At(86_400_000));
        assert_eq!(from("1500"), Start::At(1_500));
        assert_eq!(from("10m"), Start::Ago(Duration { months: 0, days: 0, nanoseconds: 600_000_000_000 }));
    }

    #[test]
    fn wrong_use_is_refused() {
        for text in [
            "",
            "orders FROM",
            "orders FROM yesterday",
            "orders FROM -10m",
            "orders LIMIT 0",
            "orders LIMIT x",
            "orders LIMIT 1 LIMIT 2",
            "orders WINDOW 1mo",
            "orders WINDOW -1s",
            "orders WHERE a",
            "shop.",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_counts_back_from_now() {
        let now_ms = 10_000_000;
        assert_eq!(Start::Now.resolve(now_ms).unwrap(), Some(now_ms));
        assert_eq!(Start::Beginning.resolve(now_ms).unwrap(), None);
        assert_eq!(Start::At(7).resolve(now_ms).unwrap(), Some(7));
        let minute = Duration { months: 0, days: 0, nanoseconds: 60_000_000_000 };
        assert_eq!(Start::Ago(minute).resolve(now_ms).unwrap(), Some(now_ms - 60_000));
    }
}
