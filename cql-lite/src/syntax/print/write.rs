//! Helpers for printing.

use std::fmt::{self, Display, Formatter, Write};

/// Writes a name in double quotes.
pub(super) fn write_quoted(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "\"{}\"", name.replace('"', "\"\""))
}

/// A string as a literal in single quotes.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('\'')?;
        if self.0.contains('\'') {
            f.write_str(&self.0.replace('\'', "''"))?;
        } else {
            f.write_str(self.0)?;
        }
        f.write_char('\'')
    }
}

/// A text that is printed if the condition is true.
pub(super) struct If(pub(super) bool, pub(super) &'static str);

impl If {
    pub(super) fn text(&self) -> &'static str {
        if self.0 { self.1 } else { "" }
    }
}

impl Display for If {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Writes items with a separator between them.
pub(super) fn write_separated<T>(
    f: &mut Formatter<'_>,
    separator: &str,
    items: &[T],
    mut write_item: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        write_item(f, item)?;
    }
    Ok(())
}

/// Items with commas between them.
pub(super) struct List<'a, T>(pub(super) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_separated(f, ", ", self.0, |f, item| item.fmt(f))
    }
}

pub(super) const IF_EXISTS: &str = "IF EXISTS ";
pub(super) const IF_NOT_EXISTS: &str = "IF NOT EXISTS ";
