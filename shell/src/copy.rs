//! COPY: its syntax, the table it is about, and its progress.
//!
//! ```text
//! COPY [keyspace.]table [(column, …)] TO | FROM 'file' | STDOUT | STDIN
//!     [WITH HEADER = true|false AND DELIMITER = ',' AND ESCAPE = '\' AND NULL = '']
//! ```
//!
//! Files are CSV in UTF-8; by default that of cqlsh, where a backslash escapes quotes and backslashes. With the quote as
//! the escape it is what RFC 4180 describes.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use cql_lite::types::{Value, cql_type::quote_identifier, literal::quote_text};

use crate::{
    connection::{Connection, Settings},
    csv::{Dialect, QUOTE},
    error::ShellError,
    format::SEPARATORS,
    token::Token,
};

const USAGE: &str = "COPY [<keyspace>.]<table> [(<column>, ...)] TO|FROM '<file>'|STDOUT|STDIN \
    [WITH HEADER = true|false AND DELIMITER = '<character>' AND ESCAPE = '<character>' \
    AND NULL = '<text>']";

/// How often the progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// A COPY command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCommand {
    pub keyspace: Option<String>,
    pub table: String,
    /// Empty: all columns.
    pub columns: Vec<String>,
    pub direction: Direction,
    pub location: CsvLocation,
    pub options: CopyOptions,
}

/// Which way the rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    From,
    To,
}

/// The location of the CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CsvLocation {
    File(PathBuf),
    /// Standard input or output.
    Standard,
}

/// The format of the CSV.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// The first line holds the names of the columns.
    pub header: bool,
    pub dialect: Dialect,
    /// The text that stands for null.
    pub null: String,
}

/// Takes tokens from the front.
struct Tokens<'a>(&'a [Token]);

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Result<&'a Token, ShellError> {
        let (first, rest) = self.0.split_first().ok_or_else(usage)?;
        self.0 = rest;
        Ok(first)
    }

    fn accept(&mut self, symbol: char) -> bool {
        match self.0.split_first() {
            Some((Token::Symbol(first), rest)) if *first == symbol => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// An identifier: folded to lower case unless it was quoted.
    fn name(&mut self) -> Result<String, ShellError> {
        match self.next()? {
            Token::Word(word) => Ok(word.to_lowercase()),
            Token::Name(name) => Ok(name.clone()),
            _ => Err(usage()),
        }
    }
}

fn usage() -> ShellError {
    ShellError::Usage(format!("Improper COPY command. Usage: {USAGE}"))
}

impl CopyCommand {
    /// Reads the command from what follows COPY.
    pub fn parse(arguments: &[Token]) -> Result<Self, ShellError> {
        let mut tokens = Tokens(arguments);
        let first = tokens.name()?;
        let (keyspace, table) =
            if tokens.accept('.') { (Some(first), tokens.name()?) } else { (None, first) };
        let mut columns = Vec::new();
        if tokens.accept('(') {
            loop {
                columns.push(tokens.name()?);
                if tokens.accept(')') {
                    break;
                }
                if !tokens.accept(',') {
                    return Err(usage());
                }
            }
        }
        let direction = match tokens.next()? {
            from if from.is("FROM") => Direction::From,
            to if to.is("TO") => Direction::To,
            _ => return Err(usage()),
        };
        let location = match (tokens.next()?, direction) {
            (Token::Text(path), _) => CsvLocation::File(path.into()),
            (standard, Direction::From) if standard.is("STDIN") => CsvLocation::Standard,
            (standard, Direction::To) if standard.is("STDOUT") => CsvLocation::Standard,
            _ => return Err(usage()),
        };
        let mut options = CopyOptions::default();
        if !tokens.0.is_empty() {
            if !tokens.next()?.is("WITH") {
                return Err(usage());
            }
            loop {
                let name = tokens.name()?;
                if !tokens.accept('=') {
                    return Err(usage());
                }
                options.set(&name, tokens.next()?.text().ok_or_else(usage)?)?;
                if tokens.0.is_empty() {
                    break;
                }
                if !tokens.next()?.is("AND") {
                    return Err(usage());
                }
            }
            options.check()?;
        }
        Ok(Self { keyspace, table, columns, direction, location, options })
    }
}

impl CopyOptions {
    /// The text that stands for null within tuples and user types: that of NULL, as in cqlsh, unless it would structure
    /// them.
    pub fn inner_null(&self) -> &str {
        let is_plain =
            self.null.trim() == self.null && !self.null.contains(SEPARATORS) && !self.null.contains('\'');
        if is_plain { &self.null } else { "null" }
    }

    fn check(&self) -> Result<(), ShellError> {
        if self.dialect.delimiter == self.dialect.escape {
            return Err(ShellError::Usage("DELIMITER and ESCAPE are the same".to_owned()));
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ShellError> {
        let refuse = |reason: String| Err(ShellError::Usage(reason));
        match name {
            "header" if value.eq_ignore_ascii_case("true") => self.header = true,
            "header" if value.eq_ignore_ascii_case("false") => self.header = false,
            "header" => return refuse(format!("HEADER is true or false, not '{value}'")),
            "delimiter" => match *value.as_bytes() {
                [delimiter] if !matches!(delimiter, QUOTE | b'\n' | b'\r') => {
                    self.dialect.delimiter = delimiter;
                }
                [b'\\', b't'] => self.dialect.delimiter = b'\t',
                _ => return refuse(format!("DELIMITER is one ASCII character, not '{value}'")),
            },
            "escape" => match *value.as_bytes() {
                [escape] if !matches!(escape, b'\n' | b'\r') => self.dialect.escape = escape,
                _ => return refuse(format!("ESCAPE is one ASCII character, not '{value}'")),
            },
            "null" | "nullval" => value.clone_into(&mut self.null),
            other => {
                return refuse(format!(
                    "The COPY option {} is not supported; supported are HEADER, DELIMITER, ESCAPE and NULL",
                    other.to_uppercase()
                ));
            }
        }
        Ok(())
    }
}

/// A column of the table that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub is_key: bool,
    pub is_counter: bool,
}

/// The table that is copied, and the columns that are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Keyspace and table as CQL.
    pub name: String,
    pub columns: Vec<TableColumn>,
}

impl Table {
    /// Looks up the table and the chosen columns, or all: the primary key, then the others by name.
    pub fn find(
        connection: &Connection,
        settings: &Settings,
        command: &CopyCommand,
    ) -> Result<Self, ShellError> {
        let keyspace = command.keyspace.clone().or_else(|| connection.keyspace()).ok_or_else(|| {
            ShellError::Usage("No keyspace: write keyspace.table, or USE a keyspace first".to_owned())
        })?;
        let statement = format!(
            "SELECT column_name, kind, position, type FROM system_schema.columns \
            WHERE keyspace_name = {} AND table_name = {}",
            quote_text(&keyspace),
            quote_text(&command.table)
        );
        let settings = settings.untraced();
        let rows = connection.run_to_end(&statement, &settings)?;
        // Ordered by kind, position and name.
        let mut columns = BTreeMap::new();
        for row in 0..rows.rows.len() {
            let name = rows.text(row, "column_name");
            let rank = match rows.text(row, "kind").as_str() {
                "partition_key" => 0,
                "clustering" => 1,
                _ => 2,
            };
            let position = match rows.value(row, "position") {
                Some(Value::Int(position)) => position,
                _ => -1,
            };
            let is_counter = rows.text(row, "type") == "counter";
            let column = TableColumn { name: name.clone(), is_key: rank < 2, is_counter };
            columns.insert((rank, position, name), column);
        }
        let mut columns: Vec<TableColumn> = columns.into_values().collect();
        if columns.is_empty() {
            let table = &command.table;
            return Err(ShellError::Statement(format!("Table '{keyspace}.{table}' not found")));
        }
        if !command.columns.is_empty() {
            columns = command
                .columns
                .iter()
                .map(|wanted| {
                    let found = columns.iter().find(|column| column.name == *wanted).cloned();
                    found.ok_or_else(|| ShellError::Statement(format!("Invalid column name {wanted}")))
                })
                .collect::<Result<_, _>>()?;
        }
        let name = format!("{}.{}", quote_identifier(&keyspace), quote_identifier(&command.table));
        Ok(Self { name, columns })
    }

    /// The chosen columns as CQL.
    pub fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(|column| quote_identifier(&column.name).into_owned()).collect()
    }
}

/// Counts rows and shows them on standard error, if that is a terminal.
#[derive(Debug)]
pub struct CopyProgress {
    rows: u64,
    started: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl CopyProgress {
    /// Starts at no rows.
    pub fn start() -> Self {
        let now = Instant::now();
        Self { rows: 0, started: now, shown: now, is_terminal: io::stderr().is_terminal() }
    }

    /// More rows are done.
    pub fn add(&mut self, rows: u64) {
        self.rows += rows;
        if self.is_terminal && self.shown.elapsed() >= PROGRESS_INTERVAL {
            self.shown = Instant::now();
            let rate = self.rows as f64 / self.started.elapsed().as_secs_f64();
            eprint!("\rProcessed: {} rows; {rate:.0} rows/s ", self.rows);
            // A progress line that cannot be written is no reason to stop.
            let _ = io::stderr().flush();
        }
    }

    /// The closing sentence, e.g. for `verb` = "exported".
    pub fn summary(&self, verb: &str) -> String {
        if self.is_terminal {
            eprint!("\r{:60}\r", "");
        }
        let plural = if self.rows == 1 { "" } else { "s" };
        format!("{} row{plural} {verb} in {:.3} seconds.", self.rows, self.started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn parse(text: &str) -> Result<CopyCommand, ShellError> {
        CopyCommand::parse(&tokens(text).unwrap())
    }

    #[test]
    fn the_whole_syntax() {
        assert_eq!(
            parse("Ks.\"T\" (a, \"B\") TO 'x y.csv' WITH header = TRUE AND DELIMITER='|' AND null='-' AND escape='!'")
                .unwrap(),
            CopyCommand {
                keyspace: Some("ks".to_owned()),
                table: "T".to_owned(),
                columns: vec!["a".to_owned(), "B".to_owned()],
                direction: Direction::To,
                location: CsvLocation::File("x y.csv".into()),
                options: CopyOptions {
                    header: true,
                    dialect: Dialect { delimiter: b'|', escape: b'!' },
                    null: "-".to_owned()
                },
            }
        );
        let short = parse("t FROM STDIN").unwrap();
        assert_eq!((short.direction, short.location), (Direction::From, CsvLocation::Standard));
        assert_eq!(short.options.dialect, Dialect { delimiter: b',', escape: b'\\' });
        assert_eq!(parse("t TO STDOUT WITH DELIMITER = '\\t'").unwrap().options.dialect.delimiter, b'\t');
        assert_eq!(parse("t TO STDOUT WITH ESCAPE = '\\'").unwrap().options.dialect.escape, b'\\');
        assert_eq!(parse("t TO STDOUT WITH ESCAPE = '\"'").unwrap().options.dialect.escape, QUOTE);
    }

    #[test]
    fn null_within_values_is_told_from_what_structures_them() {
        let inner = |null: &str| {
            CopyOptions { null: null.to_owned(), ..CopyOptions::default() }.inner_null().to_owned()
        };
        assert_eq!(inner(""), "");
        assert_eq!(inner("N/A"), "N/A");
        for null in ["a,b", "(null)", "'", " "] {
            assert_eq!(inner(null), "null");
        }
    }

    #[test]
    fn wrong_use_is_refused() {
        for text in [
            "",
            "t",
            "t TO",
            "t TO STDIN",
            "t FROM STDOUT",
            "t (a TO 'f'",
            "t TO 'f' WITH",
            "t TO 'f' WITH HEADER",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let refused = parse("t TO 'f' WITH CHUNKSIZE = 5").unwrap_err().to_string();
        assert_eq!(
            refused,
            "The COPY option CHUNKSIZE is not supported; supported are HEADER, DELIMITER, ESCAPE and NULL"
        );
        assert!(parse("t TO 'f' WITH ESCAPE = ''").is_err());
        assert!(parse("t TO 'f' WITH ESCAPE = '|' AND DELIMITER = '|'").is_err());
        assert!(parse("t TO 'f' WITH DELIMITER = 'ab'").is_err());
        assert!(parse("t TO 'f' WITH HEADER = maybe").is_err());
    }
}
