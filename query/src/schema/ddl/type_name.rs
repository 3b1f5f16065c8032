//! Resolves the type names of statements: looks up user types, applies freezing, refuses impossible nestings.

use std::fmt;

use cql_lite::syntax::ast::{CqlTypeName, QualifiedName};
use cql_lite::types::CqlType;
use cql_lite::types::cql_type::MAXIMUM_VECTOR_DIMENSION;

use super::{class_name, invalid};
use crate::error::{RequestError, Result};
use crate::schema::catalog::Keyspace;

/// Resolves a type name within a keyspace.
pub fn resolve(name: &CqlTypeName, keyspace: &Keyspace) -> Result<CqlType> {
    resolve_in(name, keyspace, false)
}

/// `frozen`: whether the type is inside `frozen<…>`, which freezes everything inside.
fn resolve_in(name: &CqlTypeName, keyspace: &Keyspace, frozen: bool) -> Result<CqlType> {
    match name {
        CqlTypeName::Native(native) => CqlType::native(native.name())
            .ok_or_else(|| RequestError::Invalid(format!("Unknown type {}", native.name()))),
        CqlTypeName::Frozen(inner) if can_be_frozen(inner) => resolve_in(inner, keyspace, true),
        // Cassandra's parser finds this, and unknown classes.
        CqlTypeName::Frozen(inner) => syntax(format!(
            "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
        )),
        CqlTypeName::List(element) => {
            check_element(name, element, frozen)?;
            Ok(CqlType::list(resolve_in(element, keyspace, true)?, frozen))
        }
        CqlTypeName::Set(element) => {
            check_element(name, element, frozen)?;
            if is_native(element, "duration") {
                return invalid(format!("Durations are not allowed inside sets: {}", Shown { name, frozen }));
            }
            Ok(CqlType::set(resolve_in(element, keyspace, true)?, frozen))
        }
        CqlTypeName::Map(key, value) => {
            check_element(name, value, frozen)?;
            check_element(name, key, frozen)?;
            if is_native(key, "duration") {
                return invalid(format!("Durations are not allowed as map keys: {}", Shown { name, frozen }));
            }
            let key = resolve_in(key, keyspace, true)?;
            Ok(CqlType::map(key, resolve_in(value, keyspace, true)?, frozen))
        }
        CqlTypeName::Tuple(fields) => {
            let mut types = Vec::with_capacity(fields.len());
            for field in fields {
                if is_native(field, "counter") {
                    return invalid("Counters are not allowed inside tuples");
                }
                types.push(resolve_in(field, keyspace, true)?);
            }
            Ok(CqlType::tuple(types))
        }
        CqlTypeName::Vector(element, dimension) => vector(element, *dimension as usize, keyspace),
        CqlTypeName::User(name) => user_type(name, keyspace, frozen),
        CqlTypeName::Custom(class) => class_name::resolve(class),
    }
}

fn vector(element: &CqlTypeName, dimension: usize, keyspace: &Keyspace) -> Result<CqlType> {
    if dimension == 0 {
        return invalid("vectors may only have positive dimensions; given 0");
    }
    if dimension > MAXIMUM_VECTOR_DIMENSION {
        return invalid(format!(
            "vectors may have at most {MAXIMUM_VECTOR_DIMENSION} dimensions; given {dimension}"
        ));
    }
    if is_native(element, "counter") {
        return invalid("Counters are not allowed inside vectors");
    }
    Ok(CqlType::vector(resolve_in(element, keyspace, true)?, dimension))
}

fn user_type(name: &QualifiedName, keyspace: &Keyspace, frozen: bool) -> Result<CqlType> {
    if let Some(written) = &name.keyspace
        && written.as_str() != keyspace.name
    {
        return invalid(format!(
            "Statement on keyspace {} cannot refer to a user type in keyspace {}; user types can only be used in \
             the keyspace they are defined in",
            keyspace.name,
            written.as_str()
        ));
    }
    match keyspace.user_type(name.name.as_str()) {
        Some(definition) => Ok(CqlType::UserType { definition: definition.clone(), frozen }),
        None => invalid(format!("Unknown type {}.{}", keyspace.name, name.name.as_str())),
    }
}

fn syntax<T>(message: String) -> Result<T> {
    Err(RequestError::Syntax(message))
}

fn check_element(name: &CqlTypeName, element: &CqlTypeName, frozen: bool) -> Result<()> {
    let nested = match element {
        CqlTypeName::List(_) | CqlTypeName::Set(_) | CqlTypeName::Map(..) => Some("collections"),
        CqlTypeName::User(_) => Some("UDTs"),
        _ => None,
    };
    if let Some(nested) = nested
        && !frozen
    {
        return invalid(format!("Non-frozen {nested} are not allowed inside collections: {name}"));
    }
    if is_native(element, "counter") {
        return invalid(format!("Counters are not allowed inside collections: {}", Shown { name, frozen }));
    }
    Ok(())
}

fn can_be_frozen(name: &CqlTypeName) -> bool {
    !matches!(name, CqlTypeName::Native(_) | CqlTypeName::Custom(_))
}

fn is_native(name: &CqlTypeName, native: &str) -> bool {
    matches!(name, CqlTypeName::Native(candidate) if candidate.name() == native)
}

/// A type in an error message, with the `frozen<…>` around it.
struct Shown<'a> {
    name: &'a CqlTypeName,
    frozen: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.frozen {
            write!(formatter, "frozen<{}>", self.name)
        } else {
            write!(formatter, "{}", self.name)
        }
    }
}
