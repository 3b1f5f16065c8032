//! Bind values as text.

use cql_lite::frame::request::Value;
use cql_lite::types::json;
use helenus_query::plan::term::MarkerSpec;

/// A value of a request.
#[derive(Debug)]
pub enum Given {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

impl Given {
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Unset => Value::Unset,
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

/// Reads `[name:]value` lines.
pub fn read(input: &str, markers: &[MarkerSpec]) -> Result<(Vec<String>, Vec<Given>), String> {
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (index, line) in input.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let named = line.split_once(": ").filter(|(name, _)| !name.starts_with(['"', '{', '[']));
        let (marker, text) = match named {
            Some((name, text)) => {
                names.push(name.to_owned());
                (markers.iter().find(|marker| marker.name == name), text)
            }
            None => (markers.get(index), line),
        };
        values.push(match (text, marker) {
            ("null", _) => Given::Null,
            ("unset", _) => Given::Unset,
            (text, marker) => Given::Bytes(match (text.strip_prefix("hex:"), marker) {
                (Some(hex), _) => from_hex(hex)?,
                (None, Some(marker)) => json::from_json(&marker.value_type, text)
                    .map_err(|error| error.to_string())?
                    .ok_or("null within a value")?,
                (None, None) => return Err(format!("no marker for {text}")),
            }),
        });
    }
    Ok((names, values))
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    (0..text.len() / 2)
        .map(|index| {
            u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|error| error.to_string())
        })
        .collect()
}
