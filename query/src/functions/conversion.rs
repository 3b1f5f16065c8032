//! Functions that convert a value to another form: blobs, JSON, lengths.

use cql_lite::types::validate::validate;
use cql_lite::types::{CqlType, json, literal};

use super::failure::{CallResult, Failure};

/// `toJson`: null becomes the text `null`.
pub(super) fn to_json(ty: &CqlType, value: Option<&[u8]>) -> CallResult {
    match json::to_json(ty, value) {
        Ok(text) => Ok(Some(text.into_bytes())),
        Err(error) => Err(Failure::Execution(error.to_string())),
    }
}

/// `fromJson`: JSON text as a value of the receiver's type.
pub(super) fn from_json(ty: &CqlType, text: &[u8]) -> CallResult {
    let text = String::from_utf8_lossy(text);
    let fail =
        |problem: String| Failure::Execution(format!("Could not decode JSON string '{text}': {problem}"));
    let parsed = json::parse(&text).map_err(|error| Failure::Execution(error.to_string()))?;
    json::from_parsed(ty, &parsed).map_err(|error| fail(error.to_string()))
}

/// `blobAs…`: the bytes, if they are a value of the type.
pub(super) fn from_blob(function: &str, ty: &CqlType, bytes: &[u8]) -> CallResult {
    if validate(ty, bytes).is_ok() {
        return Ok(Some(bytes.to_vec()));
    }
    Err(Failure::Invalid(format!(
        "In call to function {function}, value {} is not a valid binary representation for type {ty}",
        literal::format_hex(bytes)
    )))
}

/// `length`: the number of UTF-16 units of a text, as Java counts.
pub(super) fn length(text: &[u8]) -> Vec<u8> {
    let units = String::from_utf8_lossy(text).encode_utf16().count();
    (units as i32).to_be_bytes().to_vec()
}

/// `substring`: the characters of a text from a place on, as in SQL: the first one is 1, and places before it count
/// although nothing is there.
pub(super) fn substring(arguments: &[&[u8]]) -> CallResult {
    let [text, start, length] = arguments else { return Ok(None) };
    let number = |bytes: &[u8]| bytes.try_into().ok().map(i32::from_be_bytes).map(i64::from);
    // An empty value of a number is like null.
    let (Some(start), Some(length)) = (number(start), number(length)) else { return Ok(None) };
    if length < 0 {
        return Err(Failure::Execution(format!("the length {length} is negative")));
    }
    let first = start.max(1);
    let count = (start + length - first).max(0);
    let text = String::from_utf8_lossy(text);
    let found: String = text.chars().skip((first - 1) as usize).take(count as usize).collect();
    Ok(Some(found.into_bytes()))
}
