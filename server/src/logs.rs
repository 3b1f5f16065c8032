//! The log of the process, on standard error, and its filter, which an operator can change while the process runs.

use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock, PoisonError};

use helenus_config::{Config, LogFormat};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// The levels, from the least to the most lines.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Cassandra's name for everything.
const ROOT: &str = "ROOT";

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
            builder.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let builder = builder.json().with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
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
    fn what_is_no_level_or_no_target_is_refused() {
        assert!(matches!(with_level("info", None, "loud"), Err(LogError::Level(_))));
        assert!(matches!(with_level("info", Some("a=b,c"), "info"), Err(LogError::Target(_))));
        assert!(matches!(set_level(None, "info"), Err(LogError::Foreign)));
    }
}
