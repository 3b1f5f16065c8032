//! Progress bars on standard error; nothing is drawn where that is no terminal.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `length` steps that is removed when dropped.
pub fn bar(label: impl Into<Cow<'static, str>>, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<36} [{bar:32}] {pos}/{len} {per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(label)
}

/// A spinner for steps of unknown length.
pub fn spinner(label: impl Into<Cow<'static, str>>) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(label);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
