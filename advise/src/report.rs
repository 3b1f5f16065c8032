//! Advice as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::advice::{Advice, Advised, Report};

/// Characters of a statement in the table.
const STATEMENT_CHARACTERS: usize = 100;

impl Report {
    /// For people: a line for each request, and below it what is advised.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let head = ["line", "access", "charge", "requests", "statement"].map(str::to_owned);
        let rows: Vec<[String; 5]> = self.requests.iter().map(row).collect();
        let width = |column: usize| {
            let of_rows = rows.iter().map(|row| row[column].chars().count());
            of_rows.chain([head[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; 4] = std::array::from_fn(width);
        put_row(&mut text, &head, &widths);
        for (row, request) in rows.iter().zip(&self.requests) {
            put_row(&mut text, row, &widths);
            for advice in &request.advice {
                put_advice(&mut text, advice);
            }
        }
        for table in &self.tables {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n{}", table.table);
            for advice in &table.advice {
                put_advice(&mut text, advice);
            }
        }
        if self.has_no_advice() {
            text += "\nEvery request is served by a key or an index.\n";
        }
        text
    }

    fn has_no_advice(&self) -> bool {
        self.tables.is_empty() && self.requests.iter().all(|request| request.advice.is_empty())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let requests = self.requests.iter().map(|request| {
            json!({
                "line": request.line,
                "statement": request.text,
                "access": request.access,
                "charge": request.charge,
                "requests": request.requests,
                "advice": request.advice.iter().map(document).collect::<Vec<_>>(),
            })
        });
        let tables = self.tables.iter().map(|table| {
            json!({ "table": table.table, "advice": table.advice.iter().map(document).collect::<Vec<_>>() })
        });
        json!({ "requests": requests.collect::<Vec<_>>(), "tables": tables.collect::<Vec<_>>() })
    }
}

fn document(advice: &Advice) -> Value {
    json!({
        "kind": advice.kind.name(),
        "recommended": advice.is_recommended,
        "reason": advice.reason,
        "statements": advice.statements,
        "request": advice.request,
        "charge": advice.charge,
        "writes_more": advice.writes_more,
    })
}

fn row(request: &Advised) -> [String; 5] {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut statement: String = request.text.chars().take(STATEMENT_CHARACTERS).collect();
    if statement.len() < request.text.len() {
        statement.push('…');
    }
    [
        request.line.to_string(),
        request.access.to_owned(),
        number(request.charge),
        number(request.requests),
        statement,
    ]
}

fn put_row(text: &mut String, row: &[String; 5], widths: &[usize; 4]) {
    for (cell, width) in row.iter().zip(widths) {
        let _ = write!(text, "{cell:<width$}  ");
    }
    *text += &row[4];
    text.push('\n');
}

fn put_advice(text: &mut String, advice: &Advice) {
    let alternative = if advice.is_recommended { "" } else { "or " };
    let _ = writeln!(text, "    {alternative}{}: {}", advice.kind.name(), advice.reason);
    for statement in &advice.statements {
        let _ = writeln!(text, "        {statement};");
    }
    if let Some(request) = &advice.request {
        let _ = writeln!(text, "        {request};");
    }
    match (advice.charge, advice.writes_more) {
        (Some(charge), Some(more)) => {
            let _ = writeln!(text, "        charge {charge}, and {more} more for each of these writes");
        }
        (Some(charge), None) => {
            let _ = writeln!(text, "        charge {charge}");
        }
        (None, _) => {}
    }
}
