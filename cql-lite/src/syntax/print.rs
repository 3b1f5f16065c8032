//! Prints the tree as CQL.

use std::fmt::{self, Display, Formatter};

use super::ast::Identifier;

impl Display for Identifier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(self.as_str()) } else { write_quoted(f, self.as_str()) }
    }
}

fn write_quoted(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "\"{}\"", name.replace('"', "\"\""))
}
