//! Names of native functions.

/// The name in lower case and without `system.`; `None` for a function of another keyspace.
pub(super) fn native_name(name: &str) -> Option<String> {
    let lowercase = name.to_ascii_lowercase();
    match lowercase.split_once('.') {
        Some(("system", plain)) => Some(plain.to_owned()),
        Some(_) => None,
        None => Some(lowercase),
    }
}
