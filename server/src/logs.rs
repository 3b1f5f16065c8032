//! The log of the process, on standard error, and its filter, which an operator can change while the process runs. The last lines
//! stay in memory, for `system_views.system_logs`.
//!
//! Invariants: the lines in memory are bounded in number and in bytes; no two of them have both their time and their order in common.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use helenus_config::{Config, LogFormat};
use thiserror::Error;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The levels, from the least to the most lines.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Cassandra's name for everything.
const ROOT: &str = "ROOT";

/// Lines that stay in memory, most bytes of one of them, and of all.
const LINES_MAX: usize = 10_000;
const LINE_BYTES_MAX: usize = 4 << 10;
const BYTES_MAX: usize = 4 << 20;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Since the epoch.
    pub millis: i64,
    /// Among the lines of the same millisecond.
    pub order: i32,
    pub level: &'static str,
    /// The part of the program.
    pub target: String,
    /// With the values of the event behind it.
    pub message: String,
}

/// The last lines of the log, the oldest first.
#[derive(Debug, Default)]
struct LastLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    newest_millis: i64,
}

static LAST_LINES: Mutex<LastLines> =
    Mutex::new(LastLines { lines: VecDeque::new(), bytes: 0, newest_millis: 0 });

fn last_lines() -> MutexGuard<'static, LastLines> {
    // Each change is a whole one: a panic of another holder of the lock leaves the lines usable.
    LAST_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogLine {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.target.len() + self.message.len()
    }
}

impl LastLines {
    fn push(&mut self, mut line: LogLine) {
        line.message.truncate(line.message.floor_char_boundary(LINE_BYTES_MAX));
        // A text cut short keeps its memory.
        line.message.shrink_to_fit();
        // The clock may have gone back: a line of the same millisecond need not be the last one.
        if line.millis <= self.newest_millis
            && let Some(before) = self.lines.iter().rev().find(|before| before.millis == line.millis)
        {
            line.order = before.order + 1;
        }
        self.newest_millis = self.newest_millis.max(line.millis);
        self.bytes += line.bytes();
        self.lines.push_back(line);
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.bytes();
        }
    }
}

/// The last lines of the log, the oldest first. None, if another program has set the log up.
pub fn last() -> Vec<LogLine> {
    last_lines().lines.iter().cloned().collect()
}

/// Forgets the lines in memory.
pub fn forget() {
    *last_lines() = LastLines::default();
}

/// Keeps the lines of the log in memory.
struct Remember;

impl<S: Subscriber> Layer<S> for Remember {
    #[allow(clippy::disallowed_methods, reason = "a line has the time at which it was written")]
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut text = LineText::default();
        event.record(&mut text);
        let metadata = event.metadata();
        // The time is taken where lines stand in their order.
        let mut lines = last_lines();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        lines.push(LogLine {
            millis: now.as_millis() as i64,
            order: 0,
            level: metadata.level().as_str(),
            target: metadata.target().to_owned(),
            message: text.message + &text.fields,
        });
    }
}

/// The text of an event: its message, and its values.
#[derive(Default)]
struct LineText {
    message: String,
    fields: String,
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

type Apply = Box<dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send + Sync>;

struct Log {
    apply: Apply,
    configured: String,
    present: Mutex<String>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// The reason why the filter is not changed.
#[derive(Debug, Error)]
pub enum LogError {
    #[error("'{0}' is no level of log lines; there are off, error, warn, info, debug and trace")]
    Level(String),
    #[error("'{0}' is no name of a part of the program, as helenus::session")]
    Target(String),
    #[error("the log of this process cannot be changed: another program has set it up")]
    Foreign,
    #[error("the filter of the log cannot be changed: {0}")]
    Refused(String),
}

/// Starts logging. The filter of the configuration has been checked.
pub fn start(config: &Config) {
    let filter = EnvFilter::new(&config.log_filter);
    // Colours are for terminals, and respect https://no-color.org.
    let in_color =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // A log line that cannot be written (a full disk, a closed reader) is lost, and nothing else happens: reporting
    // the error on standard error would panic.
    let builder =
        tracing_subscriber::fmt().with_ansi(in_color).with_writer(std::io::stderr).log_internal_errors(false);
    let apply: Apply = match config.log_format {
        LogFormat::Text => {
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(Remember).init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let builder = builder.json().with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(Remember).init();
            Box::new(move |filter| handle.reload(filter))
        }
    };
    let (configured, present) = (config.log_filter.clone(), Mutex::new(config.log_filter.clone()));
    // A second call has panicked above.
    let _ = LOG.set(Log { apply, configured, present });
}

/// The present filter; `None`: the log is not this program's.
pub fn filter() -> Option<String> {
    LOG.get().map(|log| log.present.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Changes the level of a part of the program, or without a target of all that has no level of its own. The level `reset` goes back to
/// what was configured.
pub fn set_level(target: Option<&str>, level: &str) -> Result<(), LogError> {
    let log = LOG.get().ok_or(LogError::Foreign)?;
    let mut present = log.present.lock().unwrap_or_else(PoisonError::into_inner);
    let next = if level.eq_ignore_ascii_case("reset") && target.is_none() {
        log.configured.clone()
    } else {
        with_level(&present, target, level)?
    };
    let filter = EnvFilter::try_new(&next).map_err(|error| LogError::Refused(error.to_string()))?;
    (log.apply)(filter).map_err(|error| LogError::Refused(error.to_string()))?;
    *present = next;
    Ok(())
}

/// The filter with another level for a target.
fn with_level(filter: &str, target: Option<&str>, level: &str) -> Result<String, LogError> {
    let level = level.to_lowercase();
    if !LEVELS.contains(&level.as_str()) {
        return Err(LogError::Level(level));
    }
    let target = target.filter(|target| *target != ROOT);
    if let Some(target) = target
        && !target.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
    {
        return Err(LogError::Target(target.to_owned()));
    }
    let is_other = |directive: &&str| match (target, directive.split_once('=')) {
        (None, None) => !LEVELS.contains(&directive.to_lowercase().as_str()),
        (Some(target), Some((known, _))) => known != target,
        _ => true,
    };
    let kept = filter.split(',').filter(|directive| !directive.is_empty()).filter(is_other);
    let new = target.map_or_else(|| level.clone(), |target| format!("{target}={level}"));
    Ok(kept.map(str::to_owned).chain([new]).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_replaces_that_of_its_target_only() {
        let changed = |target, level| with_level("info,openraft=warn", target, level).unwrap();
        assert_eq!(changed(None, "DEBUG"), "openraft=warn,debug");
        assert_eq!(changed(Some("ROOT"), "error"), "openraft=warn,error");
        assert_eq!(with_level("helenus,info", None, "warn").unwrap(), "helenus,warn");
        assert_eq!(changed(Some("openraft"), "info"), "info,openraft=info");
        assert_eq!(changed(Some("helenus::session"), "trace"), "info,openraft=warn,helenus::session=trace");
    }

    #[test]
    fn the_last_lines_are_bounded_and_numbered_within_a_millisecond() {
        let mut last = LastLines::default();
        let line = |millis, message: &str| LogLine {
            millis,
            order: 0,
            level: "INFO",
            target: "t".to_owned(),
            message: message.to_owned(),
        };
        for millis in [1, 1, 1, 2] {
            last.push(line(millis, "m"));
        }
        assert_eq!(last.lines.iter().map(|line| line.order).collect::<Vec<_>>(), [0, 1, 2, 0]);
        // The clock goes back and forth.
        for (millis, order) in [(1, 3), (2, 1), (1, 4), (3, 0), (2, 2)] {
            last.push(line(millis, "m"));
            assert_eq!(last.lines.back().map(|line| line.order), Some(order), "{millis}");
        }
        for millis in 3..20_000 {
            last.push(line(millis, &"ä".repeat(9_000)));
        }
        assert!(last.lines.len() < LINES_MAX && last.bytes <= BYTES_MAX);
        assert_eq!(
            last.lines.back().map(|line| (line.millis, line.message.len())),
            Some((19_999, LINE_BYTES_MAX))
        );
        assert_eq!(last.bytes, last.lines.iter().map(LogLine::bytes).sum::<usize>());
        assert!(last.lines.iter().all(|line| line.message.capacity() <= LINE_BYTES_MAX));
    }

    #[test]
    fn what_is_no_level_or_no_target_is_refused() {
        assert!(matches!(with_level("info", None, "loud"), Err(LogError::Level(_))));
        assert!(matches!(with_level("info", Some("a=b,c"), "info"), Err(LogError::Target(_))));
        assert!(matches!(set_level(None, "info"), Err(LogError::Foreign)));
    }
}
