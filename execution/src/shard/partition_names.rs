//! What partitions are called where people read of them: in the log, in views and in reports.

use std::fmt::Write as _;

use cql_lite::types::CqlType;
use cql_lite::types::json::to_json;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::key_component;

/// Most bytes of the text of a partition key.
const TEXT_BYTES_MAX: usize = 200;

/// The types of the partition keys of a table.
#[derive(Debug)]
pub struct PartitionNames(Vec<CqlType>);

impl PartitionNames {
    /// Those of this table.
    pub fn of(table: &Table) -> Self {
        Self(table.partition_key().iter().map(|column| column.column_type.clone()).collect())
    }

    #[cfg(test)]
    pub fn of_types(types: Vec<CqlType>) -> Self {
        Self(types)
    }

    /// The values of a partition key, with `:` between them. A key that is not whole is shown in hexadecimal digits where its values cannot
    /// be told. Long ones are cut.
    pub fn text_of(&self, partition_key: &[u8]) -> String {
        let text = |(number, its_type): (usize, &CqlType)| {
            let value = key_component(partition_key, self.0.len(), number).ok()?;
            Some(match its_type {
                CqlType::Text | CqlType::Ascii => shown(&String::from_utf8_lossy(value)),
                _ => to_json(its_type, Some(value)).ok()?.trim_matches('"').to_owned(),
            })
        };
        let texts: Option<Vec<String>> = self.0.iter().enumerate().map(text).collect();
        let mut text = texts.map_or_else(|| hexadecimal(partition_key), |texts| texts.join(":"));
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push_str("...");
        }
        text
    }
}

/// The text, in one line.
fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_debug().collect::<Vec<char>>() } else { vec![c] })
        .collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().take(TEXT_BYTES_MAX).fold("0x".to_owned(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_cut() {
        let names = PartitionNames(vec![CqlType::Text]);
        assert_eq!(names.text_of("\u{e9}".repeat(300).as_bytes()).len(), TEXT_BYTES_MAX + 3);
    }

    #[test]
    fn parts_of_keys_are_shown_as_bytes() {
        let names = PartitionNames(vec![CqlType::Int, CqlType::Text]);
        let whole = [0, 4, 0, 0, 0, 7, 0, 0, 2, b'a', b'b', 0];
        assert_eq!(names.text_of(&whole), "7:ab");
        assert_eq!(names.text_of(&whole[..8]), "0x0004000000070000");
        assert_eq!(PartitionNames(vec![CqlType::Int]).text_of(&[0, 1]), "0x0001");
    }
}
