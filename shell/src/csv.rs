//! Records of CSV, as cqlsh's COPY writes and reads them: Python's `csv` with an escape character.
//!
//! The crate `csv` does not do: it escapes quotes but not the escape character, and reads escapes within quotes only,
//! where Python writes them outside too.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};

/// Stands around fields that hold what separates fields or records.
pub const QUOTE: u8 = b'"';

/// The byte order mark that some programs start a file with.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The characters with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    pub delimiter: u8,
    /// Stands before quotes and before itself. [`QUOTE`]: quotes are doubled, as RFC 4180 describes it.
    pub escape: u8,
}

impl Default for Dialect {
    /// That of cqlsh.
    fn default() -> Self {
        Self { delimiter: b',', escape: b'\\' }
    }
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the text is not UTF-8")]
    Encoding,
    #[error("the data ends within quotes")]
    OpenQuotes,
    #[error("the data ends after '{}'", char::from(*escape))]
    OpenEscape { escape: u8 },
    /// Such a pair comes from another program, where it has another meaning: a path, a line break, null.
    #[error(
        "'{escape}{escaped}' escapes nothing (where '{escape}' stands for itself: WITH ESCAPE = '\"')",
        escape = char::from(*escape),
        escaped = char::from(*escaped)
    )]
    NoEscape { escape: u8, escaped: u8 },
    #[error("cannot be read: {0}")]
    Source(#[from] io::Error),
}

/// Writes a record and a line break.
pub fn write_record(
    sink: &mut impl Write,
    dialect: Dialect,
    fields: impl IntoIterator<Item = impl AsRef<str>>,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut is_first = true;
    for field in fields {
        if !is_first {
            line.push(dialect.delimiter);
        }
        is_first = false;
        write_field(&mut line, dialect, field.as_ref());
    }
    if line.is_empty() {
        // A blank line is no record.
        line.extend([QUOTE, QUOTE]);
    }
    line.push(b'\n');
    sink.write_all(&line)
}

fn write_field(line: &mut Vec<u8>, dialect: Dialect, field: &str) {
    let has_meaning = |byte: u8| {
        matches!(byte, QUOTE | b'\n' | b'\r') || byte == dialect.delimiter || byte == dialect.escape
    };
    if !field.bytes().any(has_meaning) && !field.starts_with(BYTE_ORDER_MARK) {
        line.extend_from_slice(field.as_bytes());
        return;
    }
    line.push(QUOTE);
    for byte in field.bytes() {
        if byte == QUOTE || byte == dialect.escape {
            line.push(dialect.escape);
        }
        line.push(byte);
    }
    line.push(QUOTE);
}

/// The records of a source, each with the line that it starts on, counted from 1. A record that is malformed is an
/// error, and the next one follows.
pub struct Records<R> {
    source: BufReader<R>,
    dialect: Dialect,
    line: u64,
    /// Nothing was read yet.
    is_start: bool,
    is_broken: bool,
}

impl<R: Read> Records<R> {
    /// Reads from the start of the source.
    pub fn new(source: R, dialect: Dialect) -> Self {
        Self { source: BufReader::new(source), dialect, line: 1, is_start: true, is_broken: false }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.source.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<u8>> {
        let byte = self.peek()?;
        if byte.is_some() {
            self.source.consume(1);
        }
        if byte == Some(b'\n') {
            self.line += 1;
        }
        Ok(byte)
    }

    fn accept(&mut self, byte: u8) -> io::Result<bool> {
        let is_next = self.peek()? == Some(byte);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    /// Passes blank lines; returns whether there is a record.
    fn find_record(&mut self) -> io::Result<bool> {
        if self.is_start {
            self.is_start = false;
            let mark = BYTE_ORDER_MARK.as_bytes();
            self.peek()?;
            if self.source.buffer().starts_with(mark) {
                self.source.consume(mark.len());
            }
        }
        while matches!(self.peek()?, Some(b'\n' | b'\r')) {
            self.take()?;
        }
        Ok(self.peek()?.is_some())
    }

    fn record(&mut self) -> Result<Vec<String>, RecordError> {
        let mut fields = Vec::new();
        let mut problem = None;
        loop {
            let (field, is_last) = self.field(&mut problem)?;
            match String::from_utf8(field) {
                Ok(text) => fields.push(text),
                Err(_) => problem = problem.or(Some(RecordError::Encoding)),
            }
            if is_last {
                return problem.map_or(Ok(fields), Err);
            }
        }
    }

    /// Reads a field, and whether it is the last of its record. Its first error goes into `problem`: the end of the record must
    /// still be found.
    fn field(&mut self, problem: &mut Option<RecordError>) -> io::Result<(Vec<u8>, bool)> {
        let Dialect { delimiter, escape } = self.dialect;
        let mut field = Vec::new();
        let mut in_quotes = self.accept(QUOTE)?;
        while let Some(byte) = self.take()? {
            match byte {
                // Doubled quotes within quotes have no other meaning, so reading them needs no option.
                QUOTE if in_quotes => {
                    in_quotes = self.accept(QUOTE)?;
                    if in_quotes {
                        field.push(QUOTE);
                    }
                }
                _ if byte == escape && escape != QUOTE => match self.take()? {
                    Some(escaped)
                        if matches!(escaped, QUOTE | b'\n' | b'\r')
                            || escaped == delimiter
                            || escaped == escape =>
                    {
                        field.push(escaped);
                    }
                    Some(escaped) => {
                        problem.get_or_insert(RecordError::NoEscape { escape, escaped });
                    }
                    None => {
                        problem.get_or_insert(RecordError::OpenEscape { escape });
                    }
                },
                _ if in_quotes => field.push(byte),
                b'\n' => return Ok((field, true)),
                b'\r' => {
                    self.accept(b'\n')?;
                    return Ok((field, true));
                }
                _ if byte == delimiter => return Ok((field, false)),
                _ => field.push(byte),
            }
        }
        if in_quotes {
            problem.get_or_insert(RecordError::OpenQuotes);
        }
        Ok((field, true))
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = (u64, Result<Vec<String>, RecordError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return None;
        }
        let found = self.find_record();
        let line = self.line;
        let record = match found {
            Ok(false) => return None,
            Ok(true) => self.record(),
            Err(error) => Err(error.into()),
        };
        self.is_broken = matches!(record, Err(RecordError::Source(_)));
        Some((line, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RFC_4180: Dialect = Dialect { delimiter: b',', escape: QUOTE };

    fn write(dialect: Dialect, fields: &[&str]) -> String {
        let mut out = Vec::new();
        write_record(&mut out, dialect, fields).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn read(dialect: Dialect, text: &str) -> Vec<Vec<String>> {
        Records::new(text.as_bytes(), dialect).map(|(_, record)| record.unwrap()).collect()
    }

    fn problem(text: &[u8]) -> String {
        let mut records = Records::new(text, Dialect::default());
        records.find_map(|(_, record)| record.err()).unwrap().to_string()
    }

    #[test]
    fn what_is_written_is_read_in_every_dialect() {
        let fields = [
            "plain",
            "",
            "a,b",
            "say \"x\"",
            "\"",
            "\\",
            "a\\b\\",
            "\\\"",
            "two\nlines",
            "two\r\nlines",
            "\r",
            " x ",
            "'",
            "a|b",
            "\u{feff}é",
            "\\n",
        ];
        for dialect in [Dialect::default(), RFC_4180, Dialect { delimiter: b'|', escape: b'x' }] {
            assert_eq!(read(dialect, &write(dialect, &fields)), [fields], "{dialect:?}");
            for field in fields {
                assert_eq!(read(dialect, &write(dialect, &[field])), [[field]], "{dialect:?}");
            }
        }
        assert_eq!(write(Dialect::default(), &["a\\b", "\"", "c,d"]), "\"a\\\\b\",\"\\\"\",\"c,d\"\n");
        assert_eq!(write(RFC_4180, &["a\\b", "\"", "c,d"]), "a\\b,\"\"\"\",\"c,d\"\n");
    }

    /// Written by Python 3.11: `csv.writer(out, quotechar='"', escapechar='\\', doublequote=False)`.
    #[test]
    fn what_cqlsh_writes_is_read() {
        let text = "a\\\\b,say \\\"x\\\",\"c,d\",\"two\nlines\",\"\\\\,\\\"\"\r\n\\\"all\\\",,\\\\\r\n";
        let expected = [vec!["a\\b", "say \"x\"", "c,d", "two\nlines", "\\,\""], vec!["\"all\"", "", "\\"]];
        assert_eq!(read(Dialect::default(), text), expected);
    }

    #[test]
    fn doubled_quotes_are_read_without_an_option() {
        assert_eq!(read(Dialect::default(), "\"say \"\"x\"\"\",\"\"\"\"\n"), [["say \"x\"", "\""]]);
    }

    #[test]
    fn records_have_the_line_they_start_on() {
        let text = "\u{feff}a\n\n\"b\nb\"\r\n\\d,x\nc";
        let lines: Vec<_> = Records::new(text.as_bytes(), Dialect::default())
            .map(|(line, record)| (line, record.ok().map(|fields| fields.join("|"))))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(lines, [(1, some("a")), (3, some("b\nb")), (5, None), (6, some("c"))]);
    }

    #[test]
    fn what_would_be_read_otherwise_than_meant_is_refused() {
        assert_eq!(
            problem(b"x,C:\\dir\n"),
            "'\\d' escapes nothing (where '\\' stands for itself: WITH ESCAPE = '\"')"
        );
        assert!(problem(b"C:\\_tmp\n").starts_with("'\\_' escapes nothing"));
        assert_eq!(problem(b"a,\"b\nc\n"), "the data ends within quotes");
        assert_eq!(problem(b"a\\"), "the data ends after '\\'");
        assert_eq!(problem(b"a,\xff\n"), "the text is not UTF-8");
        assert_eq!(read(RFC_4180, "C:\\dir\n"), [["C:\\dir"]]);
    }
}
