//! Identifiers in CQL text.

use std::borrow::Cow;

/// The CQL keywords that must be quoted as names of user types and columns.
const RESERVED: [&str; 63] = [
    "add",
    "allow",
    "alter",
    "and",
    "any",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "default",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "mbean",
    "mbeans",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "replace",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "unset",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// An identifier as CQL spells it: quoted unless it is a lower-case name that is not a reserved word.
pub fn quote_identifier(name: &str) -> Cow<'_, str> {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !RESERVED.contains(&name);
    if plain { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")).into() }
}
