//! Names: of columns, keyspaces, tables, types, functions.
//!
//! An unquoted name is case-insensitive and stored in lower case. A quoted name is stored as written, without quotes.

use std::borrow::Borrow;

/// A name. `Display` quotes it where necessary.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(Box<str>);

impl Identifier {
    /// A case-sensitive name: the text between quotes, or a name from the schema.
    pub fn quoted(name: impl Into<Box<str>>) -> Self {
        Self(name.into())
    }

    /// A name written without quotes: folded to lower case.
    pub fn unquoted(name: &str) -> Self {
        Self(name.to_ascii_lowercase().into_boxed_str())
    }

    /// The name itself, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as an owned string.
    pub fn into_string(self) -> String {
        self.0.into_string()
    }
}

impl AsRef<str> for Identifier {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Identifier {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Identifier {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Identifier {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

/// The name of a table, view, index or user type, with its keyspace if one was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QualifiedName {
    /// The keyspace, if written; otherwise the keyspace of the session is used.
    pub keyspace: Option<Identifier>,
    /// The name within the keyspace.
    pub name: Identifier,
}

/// The name of a function or an aggregate, with its keyspace if one was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// The keyspace, if written; otherwise `system` is searched, then the keyspace of the session.
    pub keyspace: Option<Identifier>,
    /// The name within the keyspace.
    pub name: Identifier,
}
