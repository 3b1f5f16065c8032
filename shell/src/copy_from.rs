//! COPY FROM: CSV into the rows of a table.
//!
//! Rows are bound to one prepared statement, many in flight at a time. A row that cannot be read or written is
//! reported with its line; the others go on.

use std::{
    fs::File,
    io::{self, BufRead, Read},
};

use cql_lite::types::{CqlType, cql_type::quote_identifier};
use futures::stream::{self, StreamExt};
use scylla::{
    frame::response::result::ColumnType,
    serialize::{
        SerializationError,
        value::SerializeValue,
        writers::{CellWriter, WrittenCellProof},
    },
};

use crate::{
    connection::{Connection, Settings, cql_type, driver_consistency},
    copy::{CopyCommand, CopyOptions, CopyProgress, CsvLocation, Table},
    csv::Records,
    error::ShellError,
    field,
};

/// Rows that are being written at a time.
const ROWS_IN_FLIGHT: usize = 128;
/// Rows whose failure is reported one by one.
const REPORTED_FAILURES_MAX: u64 = 10;
/// A line of standard input that ends the data.
const END_OF_INPUT: &[u8] = b"\\.";

/// A value that is bound unchanged: its type was checked when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound(Option<Vec<u8>>);

impl SerializeValue for Bound {
    fn serialize<'b>(
        &self,
        _: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        match &self.0 {
            Some(bytes) => writer.set_value(bytes).map_err(SerializationError::new),
            None => Ok(writer.set_null()),
        }
    }
}

/// The statement that writes a row.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    text: String,
    /// For each of its bind markers the column of the CSV.
    order: Vec<usize>,
}

impl Import {
    /// An INSERT, or an UPDATE that adds to the counters of a counter table.
    fn new(table: &Table) -> Self {
        if !table.columns.iter().any(|column| column.is_counter) {
            let markers = vec!["?"; table.columns.len()].join(", ");
            let text = format!(
                "INSERT INTO {} ({}) VALUES ({markers})",
                table.name,
                table.column_names().join(", ")
            );
            return Self { text, order: (0..table.columns.len()).collect() };
        }
        let (keys, counters): (Vec<usize>, Vec<usize>) = (0..table.columns.len())
            .partition(|&index| table.columns.get(index).is_some_and(|column| column.is_key));
        let clauses = |indexes: &[usize], clause: &dyn Fn(&str) -> String, separator: &str| {
            let columns = indexes.iter().filter_map(|&index| table.columns.get(index));
            columns.map(|column| clause(&quote_identifier(&column.name))).collect::<Vec<_>>().join(separator)
        };
        let set = clauses(&counters, &|name| format!("{name} = {name} + ?"), ", ");
        let condition = clauses(&keys, &|name| format!("{name} = ?"), " AND ");
        let text = format!("UPDATE {} SET {set} WHERE {condition}", table.name);
        Self { text, order: [counters, keys].concat() }
    }
}

/// Imports rows; returns the closing sentence.
pub fn run(
    connection: &Connection,
    settings: &Settings,
    command: &CopyCommand,
) -> Result<String, ShellError> {
    let table = Table::find(connection, settings, command)?;
    let import = Import::new(&table);
    let session = connection.session();
    let mut prepared = connection.wait(session.prepare(import.text.as_str()))?;
    prepared.set_consistency(driver_consistency(settings.consistency)?);
    let types: Vec<CqlType> = prepared
        .get_variable_col_specs()
        .iter()
        .map(|spec| cql_type(spec.typ()))
        .collect::<Result<_, _>>()?;
    let source: Box<dyn Read> = match &command.location {
        CsvLocation::File(path) => {
            Box::new(File::open(path).map_err(|source| ShellError::File { path: path.clone(), source })?)
        }
        CsvLocation::Standard => Box::new(io::Cursor::new(read_standard_input(connection)?)),
    };
    let rows = read_rows(source, &types, &import.order, &command.options);
    let mut progress = CopyProgress::start();
    let failures = connection.block_on(async {
        let prepared = &prepared;
        let mut outcomes = stream::iter(rows)
            .map(|(line, row)| async move {
                let failed = |reason| (line, reason);
                let row = row.map_err(failed)?;
                let written = session.execute_unpaged(prepared, row).await;
                written.map(|_| ()).map_err(|error| failed(ShellError::from(error).to_string()))
            })
            .buffer_unordered(ROWS_IN_FLIGHT);
        let mut failures = 0;
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(()) => progress.add(1),
                Err((line, reason)) => {
                    failures += 1;
                    // A row that cannot be read has no wait, so Ctrl-C is noticed here.
                    tokio::task::yield_now().await;
                    if failures <= REPORTED_FAILURES_MAX {
                        eprintln!("line {line}: {reason}");
                    }
                }
            }
        }
        failures
    });
    let failures = match failures {
        Ok(failures) => failures,
        Err(error) => {
            eprintln!("{}", progress.summary("imported"));
            return Err(error);
        }
    };
    let summary = progress.summary("imported");
    if failures == 0 {
        Ok(summary)
    } else {
        Err(ShellError::Statement(format!("{summary} {failures} could not be imported.")))
    }
}

/// All of standard input, up to a line that ends the data.
fn read_standard_input(connection: &Connection) -> Result<Vec<u8>, ShellError> {
    let mut data = Vec::new();
    let mut input = io::stdin().lock();
    loop {
        let start = data.len();
        let length = input.read_until(b'\n', &mut data)?;
        // A read continues after the signal, so Ctrl-C is noticed at the end of the line.
        if connection.interrupts().take() {
            return Err(ShellError::Interrupted);
        }
        if length == 0 {
            return Ok(data);
        }
        if data.get(start..).is_some_and(|line| line.trim_ascii_end() == END_OF_INPUT) {
            data.truncate(start);
            return Ok(data);
        }
    }
}

/// The rows of CSV with their lines, bound in `order`; `types` are those of the bind markers.
fn read_rows<'a>(
    source: impl Read + 'a,
    types: &'a [CqlType],
    order: &'a [usize],
    options: &'a CopyOptions,
) -> impl Iterator<Item = (u64, Result<Vec<Bound>, String>)> + 'a {
    let records = Records::new(source, options.dialect).skip(usize::from(options.header));
    records.map(move |(line, record)| {
        let row = record.map_err(|error| error.to_string());
        (line, row.and_then(|fields| bind(&fields, types, order, options)))
    })
}

fn bind(
    record: &[String],
    types: &[CqlType],
    order: &[usize],
    options: &CopyOptions,
) -> Result<Vec<Bound>, String> {
    if record.len() != order.len() {
        return Err(format!("{} fields, but the table has {} columns to copy", record.len(), order.len()));
    }
    order
        .iter()
        .zip(types)
        .map(|(&index, cql_type)| {
            let text = record.get(index).map_or("", String::as_str);
            if text == options.null {
                return Ok(Bound(None));
            }
            let bytes = field::parse(cql_type, text, options.inner_null())
                .map_err(|error| format!("field {}: {error}", index + 1))?;
            Ok(Bound(Some(bytes)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::TableColumn;

    fn table(columns: &[(&str, bool, bool)]) -> Table {
        let column = |&(name, is_key, is_counter): &(&str, bool, bool)| TableColumn {
            name: name.to_owned(),
            is_key,
            is_counter,
        };
        Table { name: "ks.t".to_owned(), columns: columns.iter().map(column).collect() }
    }

    #[test]
    fn rows_are_inserted() {
        let import = Import::new(&table(&[("pk", true, false), ("Value", false, false)]));
        assert_eq!(import.text, "INSERT INTO ks.t (pk, \"Value\") VALUES (?, ?)");
        assert_eq!(import.order, [0, 1]);
    }

    #[test]
    fn counters_are_added_to() {
        let import = Import::new(&table(&[
            ("a", true, false),
            ("n", false, true),
            ("b", true, false),
            ("m", false, true),
        ]));
        assert_eq!(import.text, "UPDATE ks.t SET n = n + ?, m = m + ? WHERE a = ? AND b = ?");
        assert_eq!(import.order, [1, 3, 0, 2]);
    }

    #[test]
    fn csv_is_read_with_lines_and_reasons() {
        let options = CopyOptions { header: true, ..CopyOptions::default() };
        let source = "v,n\n\"a\n\\\"b\\\"\",1\n,2\nx,no\nx\n\\d,1\n";
        let types = [CqlType::Int, CqlType::Text];
        let rows: Vec<_> = read_rows(source.as_bytes(), &types, &[1, 0], &options).collect();
        let int = |number: i32| Bound(Some(number.to_be_bytes().to_vec()));
        assert_eq!(rows[0], (2, Ok(vec![int(1), Bound(Some(b"a\n\"b\"".to_vec()))])));
        assert_eq!(rows[1], (4, Ok(vec![int(2), Bound(None)])));
        assert!(rows[2].1.as_ref().unwrap_err().starts_with("field 2: "));
        assert_eq!(rows[3], (6, Err("1 fields, but the table has 2 columns to copy".to_owned())));
        assert_eq!(rows[4].0, 7);
        assert!(rows[4].1.as_ref().unwrap_err().starts_with("'\\d' escapes nothing"));
    }
}
