//! Completion of keywords and of names in the schema, by what precedes the cursor.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cql_lite::{frame::Consistency, types::cql_type::quote_identifier};
use reedline::{Completer, CompletionResult, Span, Suggestion};
use scylla::client::session::Session;
use tokio::runtime::Handle;

use crate::connection::Connection;

/// How long a completion waits for the names of the schema.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(1);

/// Words that statements and commands start with.
const FIRST_WORDS: [&str; 35] = [
    "ALTER",
    "APPLY",
    "BEGIN",
    "CAPTURE",
    "CHECK PROJECTION",
    "CLEAR",
    "CONSISTENCY",
    "COPY",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DROP",
    "EXIT",
    "EXPAND",
    "EXPLAIN",
    "GRANT",
    "HELP",
    "INSERT",
    "LIST",
    "LOGIN",
    "PAGING",
    "QUIT",
    "RECEIPT",
    "REVOKE",
    "SELECT",
    "SERIAL",
    "SHOW",
    "SOURCE",
    "TAIL",
    "TRACING",
    "TRUNCATE",
    "UPDATE",
    "USE",
    "EXECUTE",
    "DESC",
];
/// Words within statements.
const KEYWORDS: [&str; 80] = [
    "ADD",
    "AGGREGATE",
    "ALL",
    "ALLOW FILTERING",
    "AND",
    "AS",
    "ASC",
    "BATCH",
    "BY",
    "CALLED",
    "CLUSTER",
    "CLUSTERING ORDER BY",
    "CONTAINS",
    "COUNT",
    "COUNTER",
    "CUSTOM",
    "DESC",
    "DISTINCT",
    "EXISTS",
    "FALSE",
    "FILTERING",
    "FROM",
    "FULL",
    "FUNCTION",
    "FUNCTIONS",
    "GROUP BY",
    "HOST",
    "IF",
    "IN",
    "INDEX",
    "INTO",
    "IS",
    "JOIN",
    "JSON",
    "KEY",
    "KEYS",
    "KEYSPACE",
    "KEYSPACES",
    "LIKE",
    "LIMIT",
    "LOGGED",
    "MATERIALIZED VIEW",
    "NOT",
    "NULL",
    "OFF",
    "ON",
    "OR",
    "ORDER BY",
    "PARTITION",
    "PASSWORD",
    "PER PARTITION LIMIT",
    "PERMISSIONS",
    "PRIMARY KEY",
    "PROJECTION",
    "RENAME",
    "REPAIR",
    "REPLACE",
    "REPLICATION",
    "ROLE",
    "ROLES",
    "SCHEMA",
    "SESSION",
    "SET",
    "STATIC",
    "TABLE",
    "TABLES",
    "TIMESTAMP",
    "TO",
    "TOKEN",
    "TRUE",
    "TTL",
    "TYPE",
    "TYPES",
    "UNLOGGED",
    "USER",
    "USING",
    "VALUES",
    "WHERE",
    "WITH",
    "WITH FRESHNESS",
];
/// Words that a keyspace follows.
const BEFORE_KEYSPACE: [&str; 2] = ["USE", "KEYSPACE"];
/// Words that a table follows.
const BEFORE_TABLE: [&str; 13] = [
    "FROM",
    "INTO",
    "JOIN",
    "UPDATE",
    "TABLE",
    "VIEW",
    "PROJECTION",
    "COPY",
    "TAIL",
    "TRUNCATE",
    "ON",
    "DESCRIBE",
    "DESC",
];

/// Keyspaces with their tables with their columns, and the current keyspace.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub keyspaces: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    pub current: Option<String>,
}

impl Schema {
    fn tables(&self, keyspace: Option<&str>) -> impl Iterator<Item = &String> {
        keyspace.and_then(|name| self.keyspaces.get(name)).into_iter().flat_map(BTreeMap::keys)
    }

    /// The columns of every table whose name occurs in the text.
    fn columns_near<'a>(&'a self, words: &'a [String]) -> impl Iterator<Item = &'a String> {
        let tables = self.keyspaces.values().flatten();
        tables
            .filter(|(table, _)| words.iter().any(|word| word.eq_ignore_ascii_case(table)))
            .flat_map(|(_, columns)| columns)
    }
}

/// The completions of the word before the cursor: the start of the word, and the words that may replace it.
pub fn candidates(line: &str, cursor: usize, schema: &Schema) -> (usize, Vec<String>) {
    let before = line.get(..cursor).unwrap_or(line);
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '"');
    let start = before.char_indices().rev().take_while(|(_, character)| is_word(*character)).last();
    let start = start.map_or(before.len(), |(at, _)| at);
    let (context, prefix) = before.split_at_checked(start).unwrap_or((before, ""));
    let statement = context.rsplit(';').next().unwrap_or(context);
    let words: Vec<String> = statement
        .split(|character| !is_word(character))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let last = upper.last().map_or("", String::as_str);

    let quoted = |name: &String| quote_identifier(name).into_owned();
    let mut names: Vec<String> = Vec::new();
    let mut keywords: Vec<&str> = Vec::new();
    if statement.trim_end().ends_with('.') {
        let keyspace = words.last().map(|name| name.trim_matches('"'));
        names.extend(schema.tables(keyspace).map(quoted));
    } else if words.is_empty() {
        keywords.extend(FIRST_WORDS);
    } else if BEFORE_KEYSPACE.contains(&last) {
        names.extend(schema.keyspaces.keys().map(quoted));
    } else if last == "CONSISTENCY" {
        keywords.extend(
            Consistency::ALL
                .iter()
                .filter(|level| **level != Consistency::NodeLocal)
                .map(|level| level.name()),
        );
    } else {
        if BEFORE_TABLE.contains(&last) {
            names.extend(schema.tables(schema.current.as_deref()).map(quoted));
            names.extend(schema.keyspaces.keys().map(quoted));
        } else {
            let all: Vec<String> = line.split(|character| !is_word(character)).map(str::to_owned).collect();
            names.extend(schema.columns_near(&all).map(quoted));
        }
        keywords.extend(KEYWORDS);
    }
    let lower_case = prefix.chars().next().is_some_and(char::is_lowercase);
    names.extend(
        keywords
            .into_iter()
            .map(|keyword| if lower_case { keyword.to_lowercase() } else { keyword.to_owned() }),
    );
    let prefix = prefix.to_lowercase();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| name.to_lowercase().starts_with(&prefix) && seen.insert(name.clone()));
    (start, names)
}

/// The schema for completions. It is requested at the first completion after statements were run.
pub struct SchemaCache {
    session: Arc<Session>,
    runtime: Handle,
    schema: Schema,
    is_current: bool,
}

impl SchemaCache {
    /// Asks nothing yet.
    pub fn new(connection: &Connection) -> Self {
        Self {
            session: Arc::clone(connection.session()),
            runtime: connection.runtime().clone(),
            schema: Schema::default(),
            is_current: false,
        }
    }

    /// Statements were run: they may have changed the schema, the keyspace, and with LOGIN the connection.
    pub fn expire(&mut self, connection: &Connection) {
        let schema = std::mem::take(&mut self.schema);
        *self = Self { schema, ..Self::new(connection) };
    }

    fn schema(&mut self) -> &Schema {
        if !self.is_current {
            // This also happens without an answer of the node, so that not every key has to wait for it.
            self.is_current = true;
            let session = &self.session;
            let keyspaces = self
                .runtime
                .block_on(async { tokio::time::timeout(SCHEMA_TIMEOUT, read_schema(session)).await });
            if let Ok(Some(keyspaces)) = keyspaces {
                self.schema.keyspaces = keyspaces;
            }
            self.schema.current = session.get_keyspace().map(|name| name.as_str().to_owned());
        }
        &self.schema
    }
}

/// Keyspaces with their tables with their columns; `None`: the node did not answer.
async fn read_schema(session: &Session) -> Option<BTreeMap<String, BTreeMap<String, Vec<String>>>> {
    let mut keyspaces: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let statement = "SELECT keyspace_name FROM system_schema.keyspaces";
    let answer = session.query_unpaged(statement, &[]).await.ok()?.into_rows_result().ok()?;
    for row in answer.rows::<(String,)>().ok()? {
        keyspaces.entry(row.ok()?.0).or_default();
    }
    let statement = "SELECT keyspace_name, table_name, column_name FROM system_schema.columns";
    let answer = session.query_unpaged(statement, &[]).await.ok()?.into_rows_result().ok()?;
    for row in answer.rows::<(String, String, String)>().ok()? {
        let (keyspace, table, column) = row.ok()?;
        keyspaces.entry(keyspace).or_default().entry(table).or_default().push(column);
    }
    Some(keyspaces)
}

/// The cache as the completer and the shell share it.
pub type SharedSchema = Arc<Mutex<SchemaCache>>;

/// The completer of the line editor.
pub struct SchemaCompleter {
    schema: SharedSchema,
}

impl SchemaCompleter {
    /// Completes from the schema of the moment.
    pub fn new(schema: SharedSchema) -> Self {
        Self { schema }
    }
}

impl Completer for SchemaCompleter {
    fn complete(&mut self, line: &str, cursor: usize) -> CompletionResult {
        let mut cache = self.schema.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, names) = candidates(line, cursor, cache.schema());
        let suggestion = |name| Suggestion {
            value: name,
            span: Span::new(start, cursor),
            append_whitespace: true,
            ..Suggestion::default()
        };
        CompletionResult::fresh(names.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Vec<String> {
        let tables = |names: &[(&str, &[&str])]| {
            names
                .iter()
                .map(|(name, columns)| {
                    ((*name).to_owned(), columns.iter().map(|c| (*c).to_owned()).collect())
                })
                .collect()
        };
        let schema = Schema {
            keyspaces: [
                ("blog".to_owned(), tables(&[("posts", &["id", "title"]), ("Users", &["name"])])),
                ("shop".to_owned(), tables(&[("orders", &["id"])])),
            ]
            .into(),
            current: Some("blog".to_owned()),
        };
        candidates(line, line.len(), &schema).1
    }

    #[test]
    fn statements_start_with_their_keywords() {
        assert_eq!(complete("SEL"), ["SELECT"]);
        assert_eq!(complete("sel"), ["select"]);
        assert_eq!(complete("SELECT 1; TRU"), ["TRUNCATE"]);
    }

    #[test]
    fn names_come_from_the_schema() {
        assert_eq!(complete("SELECT * FROM po"), ["posts"]);
        assert_eq!(complete("SELECT * FROM \"U"), ["\"Users\""]);
        assert_eq!(complete("USE "), ["blog", "shop"]);
        assert_eq!(complete("SELECT * FROM shop."), ["orders"]);
        assert_eq!(complete("TAIL po"), ["posts"]);
        assert_eq!(complete("CHECK PROJECTION po"), ["posts"]);
        assert_eq!(complete("CREATE PROJECTION p AS SELECT * FROM posts JOIN \"U"), ["\"Users\""]);
        assert_eq!(complete("SELECT * FROM shop.or"), ["orders"]);
        assert_eq!(complete("SELECT * FROM posts WHERE ti"), ["title", "timestamp"]);
        assert_eq!(complete("CONSISTENCY LOCAL_Q"), ["LOCAL_QUORUM"]);
    }

    #[test]
    fn the_word_before_the_cursor_is_replaced() {
        assert_eq!(candidates("SELECT x FROM po", 16, &Schema::default()).0, 14);
        assert_eq!(candidates("", 0, &Schema::default()).0, 0);
    }
}
