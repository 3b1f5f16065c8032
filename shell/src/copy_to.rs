//! COPY TO: the rows of a table into CSV.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
};

use crate::{
    connection::{Column, Connection, Settings},
    copy::{CopyCommand, CopyOptions, CopyProgress, CsvLocation, Table},
    csv::write_record,
    error::ShellError,
    format::{Style, format_bytes},
};

/// Rows asked for at a time.
const PAGE_ROWS: i32 = 1000;

/// Exports the table; returns the closing sentence.
pub fn run(
    connection: &Connection,
    settings: &Settings,
    command: &CopyCommand,
) -> Result<String, ShellError> {
    let table = Table::find(connection, settings, command)?;
    let statement = format!("SELECT {} FROM {}", table.column_names().join(", "), table.name);
    let settings = Settings { page_rows: PAGE_ROWS, ..settings.untraced() };
    let mut sink: Box<dyn Write> = match &command.location {
        CsvLocation::File(path) => Box::new(BufWriter::new(
            File::create(path).map_err(|source| ShellError::File { path: path.clone(), source })?,
        )),
        CsvLocation::Standard => Box::new(BufWriter::new(io::stdout())),
    };
    let failed = |source: io::Error| match &command.location {
        CsvLocation::File(path) => ShellError::File { path: path.clone(), source },
        CsvLocation::Standard => ShellError::Output(source),
    };
    let dialect = command.options.dialect;
    if command.options.header {
        write_record(&mut sink, dialect, table.columns.iter().map(|column| &column.name)).map_err(failed)?;
    }
    let mut progress = CopyProgress::start();
    let mut page = None;
    loop {
        let answer = match connection.run(&statement, &settings, page) {
            Ok(answer) => answer,
            Err(error) => {
                sink.flush().map_err(failed)?;
                eprintln!("{}", progress.summary("exported"));
                return Err(error);
            }
        };
        let rows = answer.rows.unwrap_or_default();
        for row in &rows.rows {
            let fields = rows.columns.iter().zip(row);
            let fields = fields.map(|(column, cell)| field(column, cell.as_deref(), &command.options));
            write_record(&mut sink, dialect, fields).map_err(failed)?;
        }
        progress.add(rows.rows.len() as u64);
        page = answer.next_page;
        if page.is_none() {
            break;
        }
    }
    sink.flush().map_err(failed)?;
    Ok(progress.summary("exported"))
}

fn field(column: &Column, cell: Option<&[u8]>, options: &CopyOptions) -> String {
    let style = Style::Csv { null: options.inner_null() };
    cell.map_or_else(|| options.null.clone(), |bytes| format_bytes(&column.cql_type, bytes, style))
}

#[cfg(test)]
mod tests {
    use cql_lite::types::CqlType;

    use super::*;
    use crate::csv::Dialect;

    #[test]
    fn fields_are_quoted_where_needed_and_null_has_its_text() {
        let dialect = Dialect { delimiter: b';', escape: b'\\' };
        let options = CopyOptions { header: false, dialect, null: "NULL".to_owned() };
        let column = Column { name: "v".to_owned(), cql_type: CqlType::Text };
        let mut out = Vec::new();
        let cells = [Some(&b"a;b"[..]), Some(b"say \"x\"\nthen"), None, Some(b"plain, text")];
        write_record(&mut out, dialect, cells.map(|cell| field(&column, cell, &options))).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\"a;b\";\"say \\\"x\\\"\nthen\";NULL;plain, text\n");
    }
}
