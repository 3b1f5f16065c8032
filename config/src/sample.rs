//! `helenus.toml` from the table of settings.

use std::fmt::Write;

use crate::settings::{Config, SECTIONS, SETTINGS};

const HEAD: &str = "\
# Configuration of a Helenus node: `helenus node --config helenus.toml`.
#
# Every setting is listed with its default, commented out. Over this file go the HELENUS_* variables, and over them the
# flags of `helenus node`; `helenus node --config helenus.toml --show-config` prints what is in force and exits. An
# unknown setting or a value out of range is an error, and the node does not start. Cassandra's names are taken too, where
# one is given; a setting may be given under one of its names only.
";

/// The width of the heads of sections.
const WIDTH: usize = 120;

/// The file with every setting.
pub fn sample() -> String {
    let values = toml::Table::try_from(Config::examples());
    debug_assert!(values.is_ok(), "the examples can be written");
    let values = values.unwrap_or_default();
    let mut text = HEAD.to_owned();
    for (section, about) in SECTIONS {
        let head = format!("# --- {section} ");
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{head:-<WIDTH$}");
        text.extend(about.map(|about| format!("# {about}\n")));
        for setting in SETTINGS.iter().filter(|setting| setting.section == *section) {
            if let Some(value) = values.get(setting.key) {
                let _ = writeln!(text, "\n{}", setting.sample(value));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `REWRITE=1` in the environment the file is written anew.
    #[test]
    fn the_sample_lists_every_setting_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../helenus.toml");
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(path, sample()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), sample());
    }

    #[test]
    fn the_sample_is_read_as_the_defaults() {
        let path = std::path::Path::new("x.toml");
        assert_eq!(Config::from_toml(&sample(), path).unwrap(), Config::default());
        let lines = sample();
        let settings = lines.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| {
            SETTINGS
                .iter()
                .any(|setting| line.strip_prefix(setting.key).is_some_and(|rest| rest.starts_with(" = ")))
        });
        let examples: Vec<&str> = settings.collect();
        assert_eq!(examples.len(), SETTINGS.len());
        assert_eq!(Config::from_toml(&examples.join("\n"), path).unwrap(), Config::examples());
    }
}
