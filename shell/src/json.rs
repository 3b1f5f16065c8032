//! Rows as JSON: one object a line, values as CQL's `toJson` renders them.

use cql_lite::types::{
    json::{to_json, write_json_string},
    literal,
};

use crate::connection::{Cell, Column};

/// A row as a JSON object, its columns in order. Bytes that are not a value of their type become a string of hex.
pub fn row(columns: &[Column], cells: &[Cell]) -> String {
    let mut out = String::from("{");
    for (index, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_json_string(&column.name, &mut out);
        out.push_str(": ");
        match to_json(&column.cql_type, cell.as_deref()) {
            Ok(json) => out.push_str(&json),
            Err(_) => write_json_string(&literal::format_hex(cell.as_deref().unwrap_or_default()), &mut out),
        }
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use cql_lite::types::CqlType;

    use super::*;

    #[test]
    fn rows_are_objects_with_the_columns_in_order() {
        let column = |name: &str, cql_type| Column { name: name.to_owned(), cql_type };
        let columns = [column("b", CqlType::Int), column("a\"", CqlType::Text), column("c", CqlType::Int)];
        let cells = [Some(vec![0, 0, 0, 7]), Some(b"x\n".to_vec()), None];
        assert_eq!(row(&columns, &cells), r#"{"b": 7, "a\"": "x\n", "c": null}"#);
        assert_eq!(row(&columns[..1], &[Some(vec![1])]), r#"{"b": "0x01"}"#);
    }
}
