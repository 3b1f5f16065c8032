//! Rows as text: aligned under their column names, or, with EXPAND, each column on a line of its own.

use cql_lite::types::CqlType;
use unicode_width::UnicodeWidthStr;

use crate::{
    connection::{Cell, Column, Rows},
    format::{Style, format_bytes},
};

pub const RESET: &str = "\x1b[0m";
pub const NAME_COLOR: &str = "\x1b[1;35m";
pub const TEXT_COLOR: &str = "\x1b[1;33m";
pub const NUMBER_COLOR: &str = "\x1b[1;32m";
pub const NULL_COLOR: &str = "\x1b[1;31m";

/// Text of a cell with the colour of its type.
struct Field {
    text: String,
    color: &'static str,
}

impl Field {
    fn new(column: &Column, cell: &Cell) -> Self {
        match cell {
            None => Self { text: "null".to_owned(), color: NULL_COLOR },
            Some(bytes) => {
                let color = match column.cql_type {
                    CqlType::Text | CqlType::Ascii => TEXT_COLOR,
                    _ => NUMBER_COLOR,
                };
                Self { text: format_bytes(&column.cql_type, bytes, Style::Screen), color }
            }
        }
    }

    fn name(column: &Column) -> Self {
        Self { text: column.name.clone(), color: NAME_COLOR }
    }

    fn width(&self) -> usize {
        self.text.width()
    }

    fn painted(&self, in_color: bool) -> String {
        if in_color { format!("{}{}{RESET}", self.color, self.text) } else { self.text.clone() }
    }

    fn left(&self, width: usize, in_color: bool) -> String {
        format!("{}{}", self.painted(in_color), " ".repeat(width.saturating_sub(self.width())))
    }

    fn right(&self, width: usize, in_color: bool) -> String {
        format!("{}{}", " ".repeat(width.saturating_sub(self.width())), self.painted(in_color))
    }
}

fn fields(rows: &Rows) -> Vec<Vec<Field>> {
    let row = |cells: &Vec<Cell>| {
        rows.columns.iter().zip(cells).map(|(column, cell)| Field::new(column, cell)).collect()
    };
    rows.rows.iter().map(row).collect()
}

/// The lines of an aligned table.
pub fn aligned(rows: &Rows, with_header: bool, in_color: bool) -> Vec<String> {
    let names: Vec<Field> = rows.columns.iter().map(Field::name).collect();
    let fields = fields(rows);
    let mut widths: Vec<usize> = names.iter().map(Field::width).collect();
    for row in &fields {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = (*width).max(field.width());
        }
    }
    let mut lines = Vec::with_capacity(fields.len() + 2);
    if with_header {
        let header: Vec<String> =
            names.iter().zip(&widths).map(|(name, &width)| name.left(width, in_color)).collect();
        lines.push(format!(" {}", header.join(" | ").trim_end()));
        let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        lines.push(format!("-{}-", rules.join("-+-")));
    }
    for row in &fields {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(field, &width)| field.right(width, in_color)).collect();
        lines.push(format!(" {}", cells.join(" | ")));
    }
    lines
}

/// The lines of rows with each column on a line of its own. `rows_before` rows were printed already.
pub fn expanded(rows: &Rows, rows_before: usize, in_color: bool) -> Vec<String> {
    let names: Vec<Field> = rows.columns.iter().map(Field::name).collect();
    let fields = fields(rows);
    let name_width = names.iter().map(Field::width).max().unwrap_or(0);
    let value_width = fields.iter().flatten().map(Field::width).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (index, row) in fields.iter().enumerate() {
        lines.push(format!("@ Row {}", rows_before + index + 1));
        lines.push(format!("-{}-+-{}-", "-".repeat(name_width), "-".repeat(value_width)));
        for (name, field) in names.iter().zip(row) {
            lines.push(format!(" {} | {}", name.left(name_width, in_color), field.painted(in_color)));
        }
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Rows {
        let column = |name: &str, cql_type| Column { name: name.to_owned(), cql_type };
        Rows {
            columns: vec![column("pk", CqlType::Int), column("v", CqlType::Text)],
            rows: vec![
                vec![Some(vec![0, 0, 4, 0]), Some("日本".as_bytes().to_vec())],
                vec![Some(vec![0, 0, 0, 1]), None],
            ],
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        assert_eq!(
            aligned(&sample(), true, false),
            [" pk   | v", "------+------", " 1024 | 日本", "    1 | null",]
        );
        assert_eq!(aligned(&sample(), false, false).len(), 2);
    }

    #[test]
    fn colours_do_not_change_the_alignment() {
        let colored = aligned(&sample(), true, true).join("\n");
        let plain = [NAME_COLOR, TEXT_COLOR, NUMBER_COLOR, NULL_COLOR, RESET]
            .iter()
            .fold(colored, |text, code| text.replace(code, ""));
        assert_eq!(plain.lines().nth(2), Some(" 1024 | 日本"));
    }

    #[test]
    fn expanded_rows_are_numbered() {
        assert_eq!(
            expanded(&sample(), 5, false),
            [
                "@ Row 6",
                "----+------",
                " pk | 1024",
                " v  | 日本",
                "",
                "@ Row 7",
                "----+------",
                " pk | 1",
                " v  | null",
                "",
            ]
        );
    }
}
