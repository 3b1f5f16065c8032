//! The file of an application: its schema, its statements, and what is known of its data.
//!
//! Statements are as for the shell, with `CONSISTENCY level` for those that follow. Comments above a statement that begin with a known name and
//! a colon are facts; others are comments:
//!
//! ```text
//! -- rows: 1000000, partitions: 2000, row_bytes: 120
//! CREATE TABLE shop.orders (…);
//! -- requests: 50, rows: 20
//! SELECT item FROM shop.orders WHERE customer = ?;
//! ```
//!
//! Invariant: nothing is taken and ignored. A fact without a meaning for its statement is an error, as is a statement that is neither of the
//! schema nor a read or write.

use std::collections::{BTreeMap, BTreeSet};

use cql_lite::frame::Consistency;
use cql_lite::syntax::{self, ast};
use helenus_query::schema::catalog::Table;
use helenus_shell::splitter::{self, Piece};

use crate::error::AdviseError;
use crate::schema::Schema;

/// The names of facts.
const NAMES: [&str; 5] = ["rows", "partitions", "row_bytes", "elements", "requests"];
/// The facts of a table.
const OF_TABLES: [&str; 4] = ["rows", "partitions", "row_bytes", "elements"];
/// The facts of a SELECT.
const OF_SELECTS: [&str; 2] = ["requests", "rows"];
/// The facts of a statement that writes.
const OF_WRITES: [&str; 1] = ["requests"];
/// Bytes of a file, above which it is none for people.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// What a file says of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableFacts {
    pub rows: Option<u64>,
    pub partitions: Option<u64>,
    /// Of a row.
    pub row_bytes: Option<u64>,
    /// Of each collection of a row.
    pub elements: Option<u64>,
}

/// A read or write of the application.
#[derive(Debug, Clone)]
pub struct Request {
    pub line: usize,
    pub text: String,
    pub statement: ast::Statement,
    pub consistency: Consistency,
    /// A second, or in any other time that is the same for all statements.
    pub requests: Option<u64>,
    /// Rows that a request finds.
    pub rows: Option<u64>,
}

/// What an application has and asks for.
#[derive(Debug)]
pub struct Workload {
    pub schema: Schema,
    /// By keyspace and table.
    pub facts: BTreeMap<(String, String), TableFacts>,
    pub requests: Vec<Request>,
}

impl Workload {
    /// Reads the text of a file. `replicas`: of keyspaces that the file does not create.
    pub fn read(text: &str, replicas: u32) -> Result<Self, AdviseError> {
        let mut workload =
            Self { schema: Schema::new(replicas), facts: BTreeMap::new(), requests: Vec::new() };
        let split = splitter::split(text);
        if let Some(rest) = split.rest {
            return Err(AdviseError::at(rest.piece.line, "the statement has no end (;)"));
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut consistency = Consistency::One;
        let mut read = BTreeSet::new();
        let mut last_line = 0;
        for piece in &split.pieces {
            let facts = facts_above(&lines, piece, &mut read)?;
            if piece.line == last_line && !facts.0.is_empty() {
                let reason = "two statements on one line: the facts above it would be of both";
                return Err(AdviseError::at(piece.line, reason));
            }
            last_line = piece.line;
            if let Some(level) = level_of(piece)? {
                facts.refuse_but(&[], piece.line)?;
                consistency = level;
                continue;
            }
            workload.take(piece, &facts, consistency)?;
        }
        refuse_misplaced(&lines, &read)?;
        Ok(workload)
    }

    pub fn facts(&self, table: &Table) -> TableFacts {
        self.facts.get(&(table.keyspace.clone(), table.name.clone())).copied().unwrap_or_default()
    }

    fn take(&mut self, piece: &Piece, facts: &Facts, consistency: Consistency) -> Result<(), AdviseError> {
        let line = piece.line;
        let statement =
            syntax::parse(&piece.text).map_err(|error| AdviseError::at(line, error.to_string()))?;
        match &statement {
            ast::Statement::Select(_)
            | ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Batch(_) => {
                let is_select = matches!(statement, ast::Statement::Select(_));
                facts.refuse_but(if is_select { &OF_SELECTS } else { &OF_WRITES }, line)?;
                self.requests.push(Request {
                    line,
                    text: piece.text.split_whitespace().collect::<Vec<_>>().join(" "),
                    statement,
                    consistency,
                    requests: facts.get("requests"),
                    rows: facts.get("rows"),
                });
            }
            ast::Statement::CreateTable(create) => {
                facts.refuse_but(&OF_TABLES, line)?;
                self.schema.change(&statement).map_err(|error| AdviseError::at(line, error.to_string()))?;
                self.keep_facts(&create.table, facts, line)?;
            }
            ast::Statement::CreateView(create) => {
                facts.refuse_but(&OF_TABLES, line)?;
                self.schema.change(&statement).map_err(|error| AdviseError::at(line, error.to_string()))?;
                self.keep_facts(&create.name, facts, line)?;
            }
            ast::Statement::Use(name) => {
                facts.refuse_but(&[], line)?;
                self.schema.use_keyspace(name.as_str());
            }
            ast::Statement::CreateKeyspace(_)
            | ast::Statement::CreateType(_)
            | ast::Statement::CreateIndex(_)
            | ast::Statement::AlterTable(_)
            | ast::Statement::AlterType(_) => {
                facts.refuse_but(&[], line)?;
                self.schema.change(&statement).map_err(|error| AdviseError::at(line, error.to_string()))?;
            }
            _ => {
                let reason = "only CREATE, ALTER of tables and types, USE, CONSISTENCY, SELECT, INSERT, UPDATE, DELETE and BATCH are \
                              advised on";
                return Err(AdviseError::at(line, reason));
            }
        }
        Ok(())
    }

    /// Keeps the facts above the CREATE of a table or view.
    fn keep_facts(
        &mut self,
        name: &ast::QualifiedName,
        facts: &Facts,
        line: usize,
    ) -> Result<(), AdviseError> {
        if facts.0.is_empty() {
            return Ok(());
        }
        let has_collections = self
            .schema
            .table(name)
            .is_some_and(|table| table.columns.iter().any(|column| column.column_type.is_multi_cell()));
        if facts.get("elements").is_some() && !has_collections {
            return Err(AdviseError::at(line, "'elements' says nothing of a table without collections"));
        }
        let of_table = TableFacts {
            rows: facts.get("rows"),
            partitions: facts.get("partitions"),
            row_bytes: facts.get("row_bytes"),
            elements: facts.get("elements"),
        };
        // There may be a second one, with IF NOT EXISTS.
        if self.facts.insert(self.schema.resolved(name), of_table).is_some() {
            return Err(AdviseError::at(line, "the facts of this table are given above"));
        }
        Ok(())
    }
}

/// The level of `CONSISTENCY level`.
fn level_of(piece: &Piece) -> Result<Option<Consistency>, AdviseError> {
    let mut words = piece.text.split_whitespace();
    if !words.next().is_some_and(|word| word.eq_ignore_ascii_case("consistency")) {
        return Ok(None);
    }
    let name = words.next().unwrap_or_default().to_uppercase();
    let level = Consistency::ALL.into_iter().find(|level| level.name() == name);
    match (level, words.next()) {
        (Some(level), None) => Ok(Some(level)),
        _ => Err(AdviseError::at(piece.line, "CONSISTENCY takes one level")),
    }
}

/// The facts above a statement.
#[derive(Debug, Default)]
struct Facts(BTreeMap<&'static str, u64>);

impl Facts {
    fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    fn refuse_but(&self, known: &[&str], line: usize) -> Result<(), AdviseError> {
        match self.0.keys().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(AdviseError::at(line, format!("'{name}' says nothing of this statement"))),
        }
    }
}

/// The facts in the comments between a statement and what is above it. `read`: gets the numbers of these lines, from 0.
fn facts_above(lines: &[&str], piece: &Piece, read: &mut BTreeSet<usize>) -> Result<Facts, AdviseError> {
    let mut facts = Facts::default();
    let above = lines.iter().enumerate().take(piece.line.saturating_sub(1)).rev();
    for (index, line) in above {
        let line = line.trim();
        let comment = line.strip_prefix("--").or_else(|| line.strip_prefix("//"));
        let Some(comment) = comment else {
            if line.is_empty() {
                continue;
            }
            break;
        };
        read_facts(comment.trim(), &mut facts).map_err(|reason| AdviseError::at(index + 1, reason))?;
        read.insert(index);
    }
    Ok(facts)
}

/// Refuses facts that belong to no statement: those behind one, within one, and those at the end.
fn refuse_misplaced(lines: &[&str], read: &BTreeSet<usize>) -> Result<(), AdviseError> {
    let mut in_block = false;
    for (index, line) in lines.iter().enumerate() {
        let starts = ["--", "//", "/*"];
        let mut comments = starts.into_iter().filter_map(|start| line.split_once(start));
        let is_misplaced = !read.contains(&index) && comments.any(|(_, comment)| has_facts(comment));
        // No line that begins with a name and a colon is of a statement.
        if is_misplaced || (in_block && has_facts(line.trim().trim_start_matches('*'))) {
            let reason = "a fact stands in a line of its own above its statement, behind --";
            return Err(AdviseError::at(index + 1, reason));
        }
        let (opened, closed) = (line.rfind("/*"), line.rfind("*/"));
        in_block = if in_block { closed.is_none() || opened > closed } else { opened > closed };
    }
    Ok(())
}

fn known_name(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|known| *known == name.trim())
}

fn has_facts(comment: &str) -> bool {
    comment.split_once(':').is_some_and(|(name, _)| known_name(name).is_some())
}

fn read_facts(comment: &str, facts: &mut Facts) -> Result<(), String> {
    if !has_facts(comment) {
        return Ok(());
    }
    for fact in comment.split(',') {
        let (name, value) = fact.split_once(':').ok_or_else(|| format!("'{fact}' is not NAME: NUMBER"))?;
        let known =
            known_name(name).ok_or_else(|| format!("'{}' is none of {}", name.trim(), NAMES.join(", ")))?;
        let number = value.trim().replace('_', "").parse();
        let number = number.map_err(|_| format!("{known} is a whole number, not '{}'", value.trim()))?;
        if facts.0.insert(known, number).is_some() {
            return Err(format!("{known} is given twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Workload, String> {
        Workload::read(text, 3).map_err(|error| error.to_string())
    }

    #[test]
    fn facts_belong_to_the_statement_below_them() {
        let workload = read(
            "-- a shop\n-- rows: 1_000, partitions: 10\n-- row_bytes: 50\nCREATE TABLE shop.t (a int, b int, PRIMARY KEY (a, b)); -- many rows: 7\n\
             CREATE TABLE shop.u (a int PRIMARY KEY);\n\nCONSISTENCY quorum\n-- requests: 5\n\nSELECT *\n FROM shop.t WHERE a = ?;\n",
        )
        .unwrap();
        let facts = |name: &str| workload.facts[&("shop".to_owned(), name.to_owned())];
        let expected =
            TableFacts { rows: Some(1_000), partitions: Some(10), row_bytes: Some(50), elements: None };
        assert_eq!(facts("t"), expected);
        assert!(!workload.facts.contains_key(&("shop".to_owned(), "u".to_owned())));
        let [request] = &workload.requests[..] else { panic!("one request") };
        assert_eq!((request.line, request.requests, request.rows), (10, Some(5), None));
        assert_eq!(request.text, "SELECT * FROM shop.t WHERE a = ?");
        assert_eq!(request.consistency, Consistency::Quorum);
    }

    #[test]
    fn nothing_is_taken_and_ignored() {
        let table = "CREATE TABLE t (a int PRIMARY KEY);";
        for (text, expected) in [
            (format!("-- rows: many\n{table}"), "line 1: rows is a whole number, not 'many'"),
            (format!("-- rows: 1, size: 2\n{table}"), "line 1: 'size' is none of rows"),
            (format!("-- rows: 1, rows: 2\n{table}"), "line 1: rows is given twice"),
            (format!("-- requests: 1\n{table}"), "line 2: 'requests' says nothing of this statement"),
            (format!("{table}\n-- elements: 1\nSELECT * FROM t;"), "line 3: 'elements' says nothing"),
            (format!("{table} -- rows: 1"), "line 1: a fact stands in a line of its own"),
            (
                "CREATE TABLE t (\n a int PRIMARY KEY, -- rows: 1\n b int);".to_owned(),
                "line 2: a fact stands",
            ),
            (format!("{table}\n-- rows: 1\n"), "line 2: a fact stands"),
            (format!("/* rows: 1 */\n{table}"), "line 1: a fact stands"),
            (format!("/*\n * rows: 1\n */\n{table}"), "line 2: a fact stands"),
            (format!("-- elements: 1\n{table}"), "line 2: 'elements' says nothing of a table without"),
            (format!("{table}\n-- rows: 1\nDELETE FROM t WHERE a = 1;"), "line 3: 'rows' says nothing"),
            (format!("{table}\n-- rows: 1\nSELECT * FROM t; SELECT a FROM t;"), "line 3: two statements"),
            (
                format!("-- rows: 1\n{table}\n-- rows: 2\nCREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY);"),
                "line 4: the facts of this table are given above",
            ),
            ("TRUNCATE t;".to_owned(), "line 1: only CREATE"),
            ("SELECT * FROM t".to_owned(), "line 1: the statement has no end"),
            ("CONSISTENCY MOST\n".to_owned(), "line 1: CONSISTENCY takes one level"),
            ("\nSELEC * FROM t;".to_owned(), "line 2: "),
            ("CREATE TABLE t (a int);".to_owned(), "line 1: "),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let twice = read(&format!("-- rows: 1\n{table}\nCREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY);"));
        assert_eq!(twice.unwrap().facts.values().next().and_then(|facts| facts.rows), Some(1));
        read(&format!("-- notes: rows: many\n{table}")).unwrap();
    }
}
