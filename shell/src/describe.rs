//! The answers to DESCRIBE, in the layout of cqlsh.

use cql_lite::types::Value;

use crate::connection::Rows;

/// Width that names are laid out in.
const LINE_WIDTH: usize = 80;

/// The lines that show what the server answered to the DESCRIBE statement `text`.
pub fn lines(text: &str, rows: &Rows) -> Vec<String> {
    let has = |name: &str| rows.columns.iter().any(|column| column.name == name);
    if has("create_statement") {
        statements(rows)
    } else if has("cluster") {
        cluster(rows)
    } else if text.split_whitespace().nth(1).is_some_and(|what| what.eq_ignore_ascii_case("keyspaces")) {
        let names = (0..rows.rows.len()).map(|row| rows.text(row, "name")).collect::<Vec<_>>();
        let mut lines = vec![String::new()];
        lines.extend(columns(&names));
        lines.push(String::new());
        lines
    } else {
        names_by_keyspace(rows)
    }
}

fn statements(rows: &Rows) -> Vec<String> {
    let mut lines = vec![String::new()];
    for row in 0..rows.rows.len() {
        lines.extend(rows.text(row, "create_statement").lines().map(str::to_owned));
        lines.push(String::new());
    }
    lines
}

fn cluster(rows: &Rows) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("Cluster: {}", rows.text(0, "cluster")),
        format!("Partitioner: {}", rows.text(0, "partitioner")),
        format!("Snitch: {}", rows.text(0, "snitch")),
        String::new(),
    ];
    if let Some(Value::Map(ranges)) = rows.value(0, "range_ownership") {
        lines.push("Range ownership:".to_owned());
        for (token, owners) in ranges {
            if let (Value::Text(token), Value::List(owners)) = (token, owners) {
                let owners: Vec<String> = owners
                    .into_iter()
                    .filter_map(|owner| if let Value::Text(name) = owner { Some(name) } else { None })
                    .collect();
                lines.push(format!(" {token:>39}  [{}]", owners.join(", ")));
            }
        }
        lines.push(String::new());
    }
    lines
}

fn names_by_keyspace(rows: &Rows) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut row = 0;
    while row < rows.rows.len() {
        let keyspace = rows.text(row, "keyspace_name");
        let mut names = Vec::new();
        while row < rows.rows.len() && rows.text(row, "keyspace_name") == keyspace {
            names.push(rows.text(row, "name"));
            row += 1;
        }
        let title = format!("Keyspace {keyspace}");
        lines.push(title.clone());
        lines.push("-".repeat(title.len()));
        lines.extend(columns(&names));
        lines.push(String::new());
    }
    if rows.rows.is_empty() {
        lines.push("<empty>".to_owned());
        lines.push(String::new());
    }
    lines
}

/// Names side by side, with as many per line as fit.
fn columns(names: &[String]) -> Vec<String> {
    let width = names.iter().map(String::len).max().unwrap_or(0) + 2;
    let per_line = (LINE_WIDTH / width).max(1);
    let line = |chunk: &[String]| {
        let padded: Vec<String> = chunk.iter().map(|name| format!("{name:width$}")).collect();
        padded.concat().trim_end().to_owned()
    };
    names.chunks(per_line).map(line).collect()
}

#[cfg(test)]
mod tests {
    use cql_lite::types::CqlType;

    use super::*;
    use crate::connection::Column;

    fn rows(names: &[&str], values: &[&[&str]]) -> Rows {
        let column = |name: &&str| Column { name: (*name).to_owned(), cql_type: CqlType::Text };
        let row = |cells: &&[&str]| cells.iter().map(|cell| Some(cell.as_bytes().to_vec())).collect();
        Rows { columns: names.iter().map(column).collect(), rows: values.iter().map(row).collect() }
    }

    #[test]
    fn statements_are_printed_as_they_are() {
        let rows =
            rows(&["keyspace_name", "create_statement"], &[&["k", "CREATE A\n  B;"], &["k", "CREATE C;"]]);
        assert_eq!(lines("DESC SCHEMA", &rows), ["", "CREATE A", "  B;", "", "CREATE C;", ""]);
    }

    #[test]
    fn names_are_grouped_by_keyspace() {
        let table = rows(
            &["keyspace_name", "type", "name"],
            &[&["a", "table", "t"], &["a", "table", "u"], &["b", "table", "v"]],
        );
        assert_eq!(
            lines("DESC TABLES", &table),
            ["", "Keyspace a", "----------", "t  u", "", "Keyspace b", "----------", "v", ""]
        );
        let keyspaces =
            rows(&["keyspace_name", "type", "name"], &[&["a", "keyspace", "a"], &["b", "keyspace", "b"]]);
        assert_eq!(lines("DESCRIBE keyspaces", &keyspaces), ["", "a  b", ""]);
    }

    #[test]
    fn the_cluster_is_named() {
        let rows = rows(&["cluster", "partitioner", "snitch"], &[&["c", "p", "s"]]);
        assert_eq!(lines("DESC CLUSTER", &rows), ["", "Cluster: c", "Partitioner: p", "Snitch: s", ""]);
    }
}
