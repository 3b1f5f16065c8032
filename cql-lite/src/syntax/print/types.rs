//! Types.

use std::fmt::{self, Display, Formatter};

use super::write::{List, Quoted, write_quoted};
use crate::syntax::{
    ast::{CqlTypeName, NativeType, QualifiedName},
    keyword::{Keyword, RESERVED_TYPE_NAMES},
};

impl Display for NativeType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Display for CqlTypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CqlTypeName::Native(native) => native.fmt(f),
            CqlTypeName::List(element) => write!(f, "list<{element}>"),
            CqlTypeName::Set(element) => write!(f, "set<{element}>"),
            CqlTypeName::Map(key, value) => write!(f, "map<{key}, {value}>"),
            CqlTypeName::Tuple(elements) => write!(f, "tuple<{}>", List(elements)),
            CqlTypeName::Vector(element, dimensions) => write!(f, "vector<{element}, {dimensions}>"),
            CqlTypeName::Frozen(inner) => write!(f, "frozen<{inner}>"),
            CqlTypeName::User(name) => UserTypeName(name).fmt(f),
            CqlTypeName::Custom(class) => Quoted(class).fmt(f),
        }
    }
}

/// The name of a user type. Every keyword is quoted, as most keywords would not parse as user types.
pub(super) struct UserTypeName<'a>(pub(super) &'a QualifiedName);

impl Display for UserTypeName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.0.keyspace {
            write!(f, "{keyspace}.")?;
        }
        let name = self.0.name.as_str();
        if Keyword::find(name).is_some() || RESERVED_TYPE_NAMES.contains(&name) {
            write_quoted(f, name)
        } else {
            self.0.name.fmt(f)
        }
    }
}
