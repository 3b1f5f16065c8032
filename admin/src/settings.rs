//! The settings of a running node as text.

use crate::reports::RuntimeSettings;
use crate::tables::{bytes, columns, row};

/// Stands for all targets that are not named, as in nodetool.
pub(crate) const ROOT: &str = "ROOT";

/// A rate; 0 is none.
pub(crate) fn limit(name: &str, bytes_per_second: u64) -> String {
    match bytes_per_second {
        0 => format!("{name}: not limited\n"),
        rate => format!("{name}: at most {} a second\n", bytes(rate)),
    }
}

pub(crate) fn native_transport(settings: &RuntimeSettings) -> String {
    format!("clients: {}\n", if settings.native_transport { "accepted" } else { "not accepted" })
}

pub(crate) fn hints(settings: &RuntimeSettings) -> String {
    let kept = if settings.hinted_handoff { "kept" } else { "not kept" };
    let delivered = if settings.hint_delivery { "delivered" } else { "not delivered" };
    format!("hints: {kept}, {delivered}\n")
}

/// The targets and levels of the log.
pub(crate) fn log_levels(settings: &RuntimeSettings) -> String {
    let mut rows = vec![row(&["Target", "Level"])];
    rows.extend(directives(&settings.log_filter).into_iter().map(|(target, level)| row(&[target, &level])));
    columns(&rows)
}

/// The targets of a filter with their levels in capitals.
pub(crate) fn directives(filter: &str) -> Vec<(&str, String)> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.rsplit_once('=') {
            Some((target, level)) if is_level(level) => (target, level.to_uppercase()),
            None if is_level(part) => (ROOT, part.to_uppercase()),
            // A target alone is logged as a whole.
            _ => (part, "TRACE".to_owned()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_readable() {
        let settings = RuntimeSettings {
            native_transport: true,
            hint_delivery: true,
            log_filter: "info, openraft=warn,helenus::streaming".to_owned(),
            ..RuntimeSettings::default()
        };
        assert_eq!(limit("stream throughput", 0), "stream throughput: not limited\n");
        assert_eq!(limit("stream throughput", 24 << 20), "stream throughput: at most 24.00 MiB a second\n");
        assert_eq!(native_transport(&settings), "clients: accepted\n");
        assert_eq!(native_transport(&RuntimeSettings::default()), "clients: not accepted\n");
        assert_eq!(hints(&settings), "hints: not kept, delivered\n");
        assert_eq!(hints(&RuntimeSettings::default()), "hints: not kept, not delivered\n");
        let expected = "\
Target              Level
ROOT                INFO
openraft            WARN
helenus::streaming  TRACE
";
        assert_eq!(log_levels(&settings), expected);
    }
}
