//! Answers as text.

use std::fmt::Write as _;

use cql_lite::frame::{SchemaChange, SchemaTarget};
use cql_lite::types::literal;
use helenus_query::error::RequestError;
use helenus_query::plan::selection::ResultColumn;

/// Rows of values as CQL literals.
#[derive(Debug, Default)]
pub struct Rows {
    pub names: Vec<String>,
    /// By page.
    pub pages: Vec<Vec<Vec<String>>>,
}

/// What a statement came to.
#[derive(Debug)]
pub enum Answer {
    Void,
    Said(String),
    Rows(Rows),
}

/// Decodes the rows of a page.
pub fn decode(columns: &[ResultColumn], mut bytes: &[u8], row_count: usize) -> Vec<Vec<String>> {
    let mut cell = |column: &ResultColumn| {
        let (length, rest) = bytes.split_first_chunk::<4>().expect("a length");
        bytes = rest;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return "null".to_owned() };
        let (value, rest) = bytes.split_at(length);
        bytes = rest;
        literal::format(&column.column_type, value)
    };
    let rows = (0..row_count).map(|_| columns.iter().map(&mut cell).collect()).collect();
    assert!(bytes.is_empty(), "bytes after the last row");
    rows
}

pub fn schema_change(change: &SchemaChange) -> String {
    let (kind, name) = match &change.target {
        SchemaTarget::Keyspace => ("KEYSPACE", String::new()),
        SchemaTarget::Table { name } => ("TABLE", format!(".{name}")),
        SchemaTarget::Type { name } => ("TYPE", format!(".{name}")),
        SchemaTarget::Function { name, .. } => ("FUNCTION", format!(".{name}")),
        SchemaTarget::Aggregate { name, .. } => ("AGGREGATE", format!(".{name}")),
    };
    format!("schema {} {kind} {}{name}", change.kind.name(), change.keyspace)
}

pub fn error(error: &RequestError) -> String {
    let kind = format!("{error:?}");
    let kind = kind.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    format!("error {kind}: {}", error.to_string().replace('\n', "\\n"))
}

impl Answer {
    /// As a table, or whatever else it is; ends with a line break.
    pub fn long(&self) -> String {
        match self {
            Self::Void => "ok\n".to_owned(),
            Self::Said(text) => format!("{text}\n"),
            Self::Rows(rows) => rows.long(),
        }
    }

    /// As one line.
    pub fn short(&self) -> String {
        match self {
            Self::Void => "ok".to_owned(),
            Self::Said(text) => text.replace('\n', " / "),
            Self::Rows(rows) => rows.short(),
        }
    }
}

impl Rows {
    fn long(&self) -> String {
        if self.pages.iter().flatten().flatten().any(|cell| cell.contains('\n')) {
            return self.down();
        }
        let mut widths: Vec<usize> = self.names.iter().map(|name| name.chars().count()).collect();
        for row in self.pages.iter().flatten() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            format!("{}\n", padded.collect::<Vec<_>>().join(" | ").trim_end())
        };
        let mut text = line(&self.names);
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        text += &rules.join("-+-");
        text.push('\n');
        for (index, page) in self.pages.iter().enumerate() {
            if index > 0 {
                let _ = writeln!(text, "page {}", index + 1);
            }
            text.extend(page.iter().map(|row| line(row)));
        }
        text
    }

    /// Cells with line breaks: a column a line.
    fn down(&self) -> String {
        let mut text = String::new();
        for row in self.pages.iter().flatten() {
            for (name, cell) in self.names.iter().zip(row) {
                let _ = writeln!(text, "{name}: {cell}");
            }
        }
        text
    }

    fn short(&self) -> String {
        let page =
            |page: &Vec<Vec<String>>| page.iter().map(|row| row.join(", ")).collect::<Vec<_>>().join("; ");
        match &self.pages.iter().map(page).collect::<Vec<_>>()[..] {
            [only] if only.is_empty() && self.pages[0].is_empty() => "no rows".to_owned(),
            pages => pages.join(" / "),
        }
    }
}
