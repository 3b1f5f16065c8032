//! What a statement does and to what, by its text alone: also of one that is not valid, or whose table is not known. And its text without
//! passwords.
//!
//! A text is split into tokens as CQL has them: comments are passed over, and nothing within a string or a quoted name is taken for a word.

use std::borrow::Cow;
use std::ops::Range;

use crate::entry::EntryType;

/// What stands for a password.
const HIDDEN: &str = "*******";
const PASSWORD: &str = "password";

/// A part of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A keyword, a name without quotes, or a number.
    Word(&'a str),
    /// A name in double quotes, as it is between them.
    Quoted(&'a str),
    /// A string.
    Text,
    Symbol(char),
    /// A string, a quoted name or a comment that does not end.
    Unfinished,
}

impl Token<'_> {
    fn is(self, word: &str) -> bool {
        matches!(self, Token::Word(own) if own.eq_ignore_ascii_case(word))
    }

    /// As a name: folded to small letters unless it is quoted.
    fn name(self) -> Option<String> {
        match self {
            Token::Word(word) => Some(word.to_lowercase()),
            Token::Quoted(name) => Some(name.replace("\"\"", "\"")),
            _ => None,
        }
    }
}

/// The tokens of a statement with their places.
#[derive(Debug, Clone)]
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Passes over blanks and comments. False: a comment does not end.
    fn skip_blanks(&mut self) -> bool {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start().len();
            self.at += blanks;
            let rest = self.rest();
            if rest.starts_with("--") || rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return false,
                }
            } else {
                return true;
            }
        }
    }

    /// The bytes of what is between two equal quotes at the beginning, a doubled quote within it included; `None`: it does not end.
    fn quoted(rest: &str, quote: char) -> Option<usize> {
        let mut inside = rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = inside.next() {
            if character == quote && inside.next_if(|(_, next)| *next == quote).is_none() {
                return Some(at + 1);
            }
        }
        None
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Token<'a>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let is_whole = self.skip_blanks();
        let (start, rest) = (self.at, self.rest());
        let first = rest.chars().next()?;
        let (token, length) = match first {
            _ if !is_whole => (Token::Unfinished, rest.len()),
            '\'' => match Self::quoted(rest, '\'') {
                Some(length) => (Token::Text, length),
                None => (Token::Unfinished, rest.len()),
            },
            '"' => match Self::quoted(rest, '"') {
                Some(length) => (Token::Quoted(&rest[1..length - 1]), length),
                None => (Token::Unfinished, rest.len()),
            },
            '$' if rest.starts_with("$$") => match rest[2..].find("$$") {
                Some(end) => (Token::Text, end + 4),
                None => (Token::Unfinished, rest.len()),
            },
            _ if first.is_alphanumeric() || first == '_' => {
                let is_outside = |character: char| !(character.is_alphanumeric() || character == '_');
                let length = rest.find(is_outside).unwrap_or(rest.len());
                (Token::Word(&rest[..length]), length)
            }
            _ => (Token::Symbol(first), first.len_utf8()),
        };
        self.at += length;
        Some((token, start..self.at))
    }
}

/// What a statement does, and to what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// `None`: the text is no statement of CQL.
    pub entry_type: Option<EntryType>,
    pub keyspace: Option<String>,
    /// The table, index, type, function or view.
    pub scope: Option<String>,
}

/// The words of a statement, read one after the other.
struct Words<'a> {
    tokens: std::iter::Peekable<Tokens<'a>>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        self.tokens.next().map(|(token, _)| token)
    }

    fn peek(&mut self) -> Option<Token<'a>> {
        self.tokens.peek().map(|(token, _)| *token)
    }

    /// Takes the next token if it is one of these words.
    fn take(&mut self, words: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|token| words.iter().any(|word| token.is(word)));
        if is_one {
            self.next();
        }
        is_one
    }

    /// Goes on behind a word that stands outside of brackets.
    fn find(&mut self, word: &str) -> bool {
        let mut depth = 0_u32;
        while let Some(token) = self.next() {
            match token {
                Token::Symbol('(' | '[' | '{') => depth += 1,
                Token::Symbol(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ if depth == 0 && token.is(word) => return true,
                _ => {}
            }
        }
        false
    }

    fn skip_existence(&mut self) {
        if self.take(&["if"]) {
            self.take(&["not"]);
            self.take(&["exists"]);
        }
    }

    /// `NAME` or `KEYSPACE.NAME`.
    fn name(&mut self) -> (Option<String>, Option<String>) {
        let Some(first) = self.peek().and_then(Token::name) else { return (None, None) };
        self.next();
        if self.peek() == Some(Token::Symbol('.')) {
            self.next();
            return (Some(first), self.next().and_then(Token::name));
        }
        (None, Some(first))
    }
}

/// Describes a statement. `default_keyspace`: that of names without one.
pub fn describe(text: &str, default_keyspace: Option<&str>) -> Described {
    let mut words = Words { tokens: Tokens::new(text).peekable() };
    let mut first = words.next();
    if first.is_some_and(|first| first.is("explain")) {
        // It counts as the statement in it.
        words.take(&["analyze"]);
        if words.take(&["format"]) {
            words.take(&["json"]);
        }
        first = words.next();
    }
    let Some(first) = first else { return Described::default() };
    let Token::Word(verb) = first else { return Described::default() };
    let mut on_table = |entry_type, words: &mut Words<'_>| {
        let (keyspace, scope) = words.name();
        let keyspace = keyspace.or_else(|| default_keyspace.map(str::to_owned));
        Described { entry_type: Some(entry_type), keyspace, scope }
    };
    let only = |entry_type| Described { entry_type: Some(entry_type), ..Described::default() };
    match verb.to_ascii_uppercase().as_str() {
        "SELECT" => {
            words.find("from");
            on_table(EntryType::Select, &mut words)
        }
        "INSERT" => {
            words.take(&["into"]);
            on_table(EntryType::Update, &mut words)
        }
        "UPDATE" => on_table(EntryType::Update, &mut words),
        "DELETE" => {
            words.find("from");
            on_table(EntryType::Delete, &mut words)
        }
        "BEGIN" if words.take(&["transaction"]) => only(EntryType::Transaction),
        "BEGIN" => only(EntryType::Batch),
        "TRUNCATE" => {
            words.take(&["table", "columnfamily"]);
            on_table(EntryType::Truncate, &mut words)
        }
        "USE" => {
            let (_, keyspace) = words.name();
            Described { entry_type: Some(EntryType::UseKeyspace), keyspace, scope: None }
        }
        "DESCRIBE" | "DESC" => only(EntryType::Describe),
        "GRANT" | "REVOKE" => {
            let entry_type = if first.is("grant") { EntryType::Grant } else { EntryType::Revoke };
            if !words.find("on") {
                return only(entry_type);
            }
            on_resource(entry_type, &mut words, default_keyspace)
        }
        "LIST" => {
            let subject = words.next();
            only(match subject {
                Some(token) if token.is("roles") => EntryType::ListRoles,
                Some(token) if token.is("users") => EntryType::ListUsers,
                Some(token) if token.is("superusers") => EntryType::ListSuperusers,
                _ => EntryType::ListPermissions,
            })
        }
        "ADD" if words.take(&["identity"]) => only(EntryType::CreateIdentity),
        "CHECK" if words.take(&["projection"]) => on_table(EntryType::CheckView, &mut words),
        "CREATE" | "ALTER" | "DROP" => of_definition(verb, &mut words, &mut on_table),
        _ => Described::default(),
    }
}

/// The resource of GRANT and REVOKE.
fn on_resource(entry_type: EntryType, words: &mut Words<'_>, default_keyspace: Option<&str>) -> Described {
    let described = |keyspace, scope| Described { entry_type: Some(entry_type), keyspace, scope };
    if words.take(&["keyspace"]) {
        let (_, keyspace) = words.name();
        return described(keyspace.clone(), keyspace);
    }
    if words.take(&["all", "role", "mbean", "mbeans"]) {
        return described(None, None);
    }
    words.take(&["table", "function"]);
    let (keyspace, scope) = words.name();
    described(keyspace.or_else(|| default_keyspace.map(str::to_owned)), scope)
}

/// CREATE, ALTER and DROP.
fn of_definition(
    verb: &str,
    words: &mut Words<'_>,
    on_table: &mut impl FnMut(EntryType, &mut Words<'_>) -> Described,
) -> Described {
    if words.take(&["or"]) {
        words.take(&["replace"]);
    }
    words.take(&["custom", "materialized"]);
    let Some(Token::Word(noun)) = words.next() else { return Described::default() };
    let Some(entry_type) = EntryType::of_definition(verb, noun) else { return Described::default() };
    words.skip_existence();
    match noun.to_ascii_uppercase().as_str() {
        "ROLE" | "USER" | "IDENTITY" => Described { entry_type: Some(entry_type), ..Described::default() },
        "KEYSPACE" | "SCHEMA" => {
            let (_, keyspace) = words.name();
            Described { entry_type: Some(entry_type), keyspace, scope: None }
        }
        "INDEX" if entry_type == EntryType::CreateIndex => {
            let index = if words.peek().is_some_and(|token| token.is("on")) { None } else { words.name().1 };
            words.find("on");
            Described { scope: index, ..on_table(entry_type, words) }
        }
        "TRIGGER" => {
            let (_, trigger) = words.name();
            words.find("on");
            Described { scope: trigger, ..on_table(entry_type, words) }
        }
        _ => on_table(entry_type, words),
    }
}

/// Whether a statement is about roles or users, so that it may have a password.
pub fn is_about_roles(text: &str) -> bool {
    let mut words = Words { tokens: Tokens::new(text).peekable() };
    words.take(&["create", "alter", "drop"]) && words.take(&["role", "user"])
}

/// The text of a statement without the passwords that it has. A statement that was `refused` may have one anywhere: of it nothing is left
/// behind the first word `password`, unless it reads or writes rows.
pub fn without_passwords(text: &str, is_refused: bool) -> Cow<'_, str> {
    let is_about_roles = is_about_roles(text);
    if !is_about_roles && !is_refused {
        return Cow::Borrowed(text);
    }
    let Some(at) = find_ignoring_case(text, PASSWORD) else { return Cow::Borrowed(text) };
    let cut = || Cow::Owned(format!("{} {HIDDEN}", &text[..at + PASSWORD.len()]));
    if !is_about_roles {
        let of_rows = [
            EntryType::Select,
            EntryType::Update,
            EntryType::Delete,
            EntryType::Batch,
            EntryType::Transaction,
        ];
        let is_of_rows = describe(text, None).entry_type.is_some_and(|own| of_rows.contains(&own));
        return if is_of_rows { Cow::Borrowed(text) } else { cut() };
    }
    if is_refused {
        return cut();
    }
    let mut shown = String::with_capacity(text.len());
    // Whether a password is next, and whether the word before says that there is none.
    let (mut kept_to, mut is_next, mut is_generated) = (0, false, false);
    for (token, place) in Tokens::new(text) {
        match token {
            Token::Symbol(_) => continue,
            Token::Unfinished => return cut(),
            _ if is_next => {
                shown.push_str(&text[kept_to..place.start]);
                shown.extend(["'", HIDDEN, "'"]);
                (kept_to, is_next) = (place.end, false);
            }
            _ => is_next = token.is(PASSWORD) && !is_generated,
        }
        is_generated = token.is("generated");
    }
    shown.push_str(&text[kept_to..]);
    Cow::Owned(shown)
}

/// A message about a refused statement, without what it may repeat of its password.
pub fn message_without_passwords<'m>(message: &'m str, text: &str, is_syntax: bool) -> Cow<'m, str> {
    if is_syntax && find_ignoring_case(text, PASSWORD).is_some() {
        return Cow::Borrowed("Syntax Exception. Obscured for security reasons.");
    }
    if is_about_roles(text)
        && let Some(at) = find_ignoring_case(message, PASSWORD)
    {
        return Cow::Owned(format!("{} {HIDDEN}", &message[..at + PASSWORD.len()]));
    }
    Cow::Borrowed(message)
}

/// The place of an ASCII word.
fn find_ignoring_case(text: &str, word: &str) -> Option<usize> {
    text.as_bytes().windows(word.len()).position(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str) -> String {
        let described = describe(text, Some("here"));
        let part = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        let name = described.entry_type.map_or("-", EntryType::name);
        format!("{name} {} {}", part(described.keyspace), part(described.scope))
    }

    #[test]
    fn statements_are_known_by_their_words() {
        for (text, expected) in [
            ("SELECT a, f(x) FROM ks.T WHERE k = 'from u'", "SELECT ks t"),
            ("select json * from \"My\".\"Ta\"\"ble\"", "SELECT My Ta\"ble"),
            ("/* c */ INSERT INTO t (k) VALUES (1) -- x", "UPDATE here t"),
            ("INSERT INTO t JSON '{}'", "UPDATE here t"),
            ("UPDATE ks.t USING TTL 3 SET v = 1 WHERE k = 1", "UPDATE ks t"),
            ("DELETE a[(SELECT)] FROM t WHERE k = 1", "DELETE here t"),
            ("EXPLAIN SELECT * FROM ks.t", "SELECT ks t"),
            ("explain analyze format json UPDATE t SET v = 1 WHERE k = 1", "UPDATE here t"),
            ("EXPLAIN", "- - -"),
            ("BEGIN UNLOGGED BATCH UPDATE t SET v = 1 WHERE k = 1; APPLY BATCH", "BATCH - -"),
            ("BEGIN TRANSACTION UPDATE t SET v = 1 WHERE k = 1; COMMIT TRANSACTION", "TRANSACTION - -"),
            (
                "BEGIN TRANSACTION USING TOKEN ? UPDATE t SET v = 1 WHERE k = 1; COMMIT TRANSACTION",
                "TRANSACTION - -",
            ),
            ("TRUNCATE TABLE ks.t", "TRUNCATE ks t"),
            ("TRUNCATE t", "TRUNCATE here t"),
            ("USE \"Ks\";", "USE_KEYSPACE Ks -"),
            ("CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {}", "CREATE_KEYSPACE ks -"),
            ("create columnfamily t (k int primary key)", "CREATE_TABLE here t"),
            ("DROP TABLE IF EXISTS ks.t", "DROP_TABLE ks t"),
            ("ALTER TABLE t ADD v int", "ALTER_TABLE here t"),
            ("CREATE CUSTOM INDEX i ON ks.t (v) USING 'sai'", "CREATE_INDEX ks i"),
            ("CREATE INDEX ON t (v)", "CREATE_INDEX here -"),
            ("DROP INDEX ks.i", "DROP_INDEX ks i"),
            ("CREATE MATERIALIZED VIEW v AS SELECT * FROM t", "CREATE_VIEW here v"),
            (
                "create projection if not exists ks.p AS SELECT a FROM t x JOIN u ON x.a = u.a",
                "CREATE_VIEW ks p",
            ),
            ("ALTER PROJECTION p WITH comment = 'x'", "ALTER_VIEW here p"),
            ("DROP PROJECTION IF EXISTS ks.p", "DROP_VIEW ks p"),
            ("CHECK PROJECTION ks.p REPAIR", "CHECK_VIEW ks p"),
            ("CHECK", "- - -"),
            ("CREATE OR REPLACE FUNCTION ks.f (a int) CALLED ON NULL INPUT", "CREATE_FUNCTION ks f"),
            ("CREATE TYPE u (a int)", "CREATE_TYPE here u"),
            ("CREATE ROLE r WITH PASSWORD = 'x'", "CREATE_ROLE - -"),
            ("DROP USER u", "DROP_ROLE - -"),
            ("ADD IDENTITY 'x' TO ROLE 'r'", "CREATE_IDENTITY - -"),
            ("GRANT SELECT ON ks.t TO r", "GRANT ks t"),
            ("GRANT ALL ON KEYSPACE ks TO r", "GRANT ks ks"),
            ("GRANT ALL ON ALL KEYSPACES TO r", "GRANT - -"),
            ("REVOKE r FROM s", "REVOKE - -"),
            ("LIST ROLES", "LIST_ROLES - -"),
            ("LIST ALL PERMISSIONS OF r", "LIST_PERMISSIONS - -"),
            ("DESCRIBE TABLE t", "DESCRIBE - -"),
            ("SELEC 1", "- - -"),
            ("", "- - -"),
            ("SELECT * FROM", "SELECT here -"),
            ("'", "- - -"),
        ] {
            assert_eq!(described(text), expected, "{text}");
        }
    }

    #[test]
    fn passwords_are_hidden() {
        for (text, expected) in [
            (
                "CREATE ROLE r WITH PASSWORD = 'it''s' AND LOGIN = true",
                "CREATE ROLE r WITH PASSWORD = '*******' AND LOGIN = true",
            ),
            ("ALTER USER u WITH PASSWORD 'x'", "ALTER USER u WITH PASSWORD '*******'"),
            (
                "create role r with hashed password = '$2a$10$abc'",
                "create role r with hashed password = '*******'",
            ),
            ("CREATE ROLE r WITH PASSWORD = $$x$$", "CREATE ROLE r WITH PASSWORD = '*******'"),
            (
                "CREATE ROLE r WITH OPTIONS = {'password': 'x'} AND PASSWORD='y'",
                "CREATE ROLE r WITH OPTIONS = {'password': 'x'} AND PASSWORD='*******'",
            ),
            ("CREATE ROLE r WITH PASSWORD = 'x", "CREATE ROLE r WITH PASSWORD *******"),
            ("CREATE ROLE r WITH PASSWORD : x", "CREATE ROLE r WITH PASSWORD : '*******'"),
            (
                "CREATE ROLE r WITH GENERATED PASSWORD AND LOGIN = true",
                "CREATE ROLE r WITH GENERATED PASSWORD AND LOGIN = true",
            ),
            ("SELECT password FROM t", "SELECT password FROM t"),
        ] {
            assert_eq!(without_passwords(text, false), expected);
        }
    }

    #[test]
    fn refused_statements_keep_nothing_behind_the_word() {
        for (text, expected) in [
            ("CREAT ROLE r WITH PASSWORD = 'x'", "CREAT ROLE r WITH PASSWORD *******"),
            (
                "CREATE ROLE r WITH LOGIN = true AND password: 'x'",
                "CREATE ROLE r WITH LOGIN = true AND password *******",
            ),
            ("UPDATE t SET password = 'x'", "UPDATE t SET password = 'x'"),
            ("CREATE TABLE t", "CREATE TABLE t"),
        ] {
            assert_eq!(without_passwords(text, true), expected);
        }
        let text = "CREATE ROLE r WITH PASSWORD 'x'";
        assert_eq!(
            message_without_passwords("line 1:29 mismatched input 'x'", text, true),
            "Syntax Exception. Obscured for security reasons."
        );
        assert_eq!(message_without_passwords("a password 'x' is bad", text, false), "a password *******");
        assert_eq!(message_without_passwords("no such table", "SELECT 1", false), "no such table");
    }
}
