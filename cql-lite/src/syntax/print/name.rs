//! Names.

use std::fmt::{self, Display, Formatter};

use super::write::write_quoted;
use crate::syntax::{
    ast::{FunctionName, Identifier, QualifiedName},
    keyword::{Keyword, KeywordClass},
};

impl Display for Identifier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(self.as_str()) } else { write_quoted(f, self.as_str()) }
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        self.name.fmt(f)
    }
}

impl Display for FunctionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{keyspace}.")?;
        }
        write_function_name(f, &self.name)
    }
}

/// Writes the name of a function within its keyspace. The set of keywords that must be quoted differs from other names.
pub(super) fn write_function_name(f: &mut Formatter<'_>, name: &Identifier) -> fmt::Result {
    let needs_quotes = match Keyword::find(name.as_str()) {
        Some(Keyword::Token | Keyword::Count) => false,
        Some(keyword) => matches!(keyword.class(), KeywordClass::Reserved | KeywordClass::NotFunction),
        None => !name.is_plain(),
    };
    if needs_quotes { write_quoted(f, name.as_str()) } else { f.write_str(name.as_str()) }
}
