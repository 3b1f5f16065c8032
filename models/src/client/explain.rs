//! What the server says beforehand of a request: `EXPLAIN`.

use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::Client;
use crate::error::Error;
use crate::report::{Group, Table, grouped};

/// What is shown besides the statement's own line: how rows are found, and what may become expensive.
const SHOWN: [&str; 9] = ["SELECT", "INSERT", "UPDATE", "KEYS", "SCAN", "INDEX", "FILTER", "SORT", "WARNING"];

/// A step of a plan: its number, operation, target, detail, and the rows and the charge that are expected.
type Step = (i32, String, Option<String>, Option<String>, Option<i64>, Option<i64>);

impl Client {
    /// The lines of [`explained_table`] for a request; none where the server knows no EXPLAIN.
    pub async fn explain(
        &self,
        request: &str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<Vec<String>>, Error> {
        if !self.has_extensions() {
            return Ok(Vec::new());
        }
        let explain = self.prepare(&format!("EXPLAIN {}", statement.get_statement())).await?;
        let steps = self.select::<Step>(&explain, values).await?.value;
        let shown = steps.into_iter().filter(|(_, operation, ..)| SHOWN.contains(&operation.as_str()));
        let expected = |number: Option<i64>| number.map_or_else(String::new, |n| grouped(n.max(0) as u64));
        let lines = shown.enumerate().map(|(line, (_, operation, target, detail, rows, charge))| {
            let request = if line == 0 { request.to_owned() } else { String::new() };
            let texts = [request, operation, target.unwrap_or_default()];
            texts.into_iter().chain([expected(rows), expected(charge), detail.unwrap_or_default()]).collect()
        });
        Ok(lines.collect())
    }
}

/// A table of explained requests.
pub fn explained_table(title: &str, lines: Vec<Vec<String>>) -> Option<Table> {
    let row = |mut cells: Vec<String>| {
        let detail = cells.split_off(5);
        let expected = cells.split_off(3);
        vec![cells, expected, detail]
    };
    (!lines.is_empty()).then(|| Table {
        title: format!("{title}: what EXPLAIN says of the requests"),
        groups: vec![
            Group::new("", &["request", "operation", "target"]),
            Group::new("expected", &["rows", "charge"]),
            Group::new("", &["detail", ""]),
        ],
        text_columns: 3,
        rows: lines.into_iter().map(row).collect(),
        notes: Vec::new(),
    })
}
