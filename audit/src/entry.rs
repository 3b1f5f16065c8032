//! An entry of the audit log, and its two forms: Cassandra's text, and JSON.
//!
//! Invariant: an entry is one line. What would break it, or pass for another field, is escaped.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use serde_json::json;
use uuid::Uuid;

/// The categories of entries, by which they are filtered. Cassandra's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Category {
    Query,
    Dml,
    Ddl,
    Dcl,
    Other,
    Auth,
    Error,
    Prepare,
}

impl Category {
    pub const ALL: [Self; 8] =
        [Self::Query, Self::Dml, Self::Ddl, Self::Dcl, Self::Other, Self::Auth, Self::Error, Self::Prepare];

    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "QUERY",
            Self::Dml => "DML",
            Self::Ddl => "DDL",
            Self::Dcl => "DCL",
            Self::Other => "OTHER",
            Self::Auth => "AUTH",
            Self::Error => "ERROR",
            Self::Prepare => "PREPARE",
        }
    }
}

macro_rules! entry_types {
    ($($variant:ident $name:literal $category:ident;)+) => {
        /// What an entry is about. Cassandra's types, [`EntryType::CheckView`] and [`EntryType::EntriesDropped`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EntryType {
            $($variant,)+
        }

        impl EntryType {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            pub fn category(self) -> Category {
                match self {
                    $(Self::$variant => Category::$category,)+
                }
            }
        }
    };
}

entry_types! {
    Select "SELECT" Query;
    Update "UPDATE" Dml;
    Delete "DELETE" Dml;
    Batch "BATCH" Dml;
    Transaction "TRANSACTION" Dml;
    Truncate "TRUNCATE" Ddl;
    CreateKeyspace "CREATE_KEYSPACE" Ddl;
    AlterKeyspace "ALTER_KEYSPACE" Ddl;
    DropKeyspace "DROP_KEYSPACE" Ddl;
    CreateTable "CREATE_TABLE" Ddl;
    AlterTable "ALTER_TABLE" Ddl;
    DropTable "DROP_TABLE" Ddl;
    CreateIndex "CREATE_INDEX" Ddl;
    DropIndex "DROP_INDEX" Ddl;
    CreateType "CREATE_TYPE" Ddl;
    AlterType "ALTER_TYPE" Ddl;
    DropType "DROP_TYPE" Ddl;
    CreateView "CREATE_VIEW" Ddl;
    AlterView "ALTER_VIEW" Ddl;
    DropView "DROP_VIEW" Ddl;
    CheckView "CHECK_VIEW" Other;
    CreateFunction "CREATE_FUNCTION" Ddl;
    DropFunction "DROP_FUNCTION" Ddl;
    CreateAggregate "CREATE_AGGREGATE" Ddl;
    DropAggregate "DROP_AGGREGATE" Ddl;
    CreateTrigger "CREATE_TRIGGER" Ddl;
    DropTrigger "DROP_TRIGGER" Ddl;
    CreateRole "CREATE_ROLE" Dcl;
    AlterRole "ALTER_ROLE" Dcl;
    DropRole "DROP_ROLE" Dcl;
    CreateIdentity "CREATE_IDENTITY" Dcl;
    DropIdentity "DROP_IDENTITY" Dcl;
    Grant "GRANT" Dcl;
    Revoke "REVOKE" Dcl;
    ListRoles "LIST_ROLES" Dcl;
    ListUsers "LIST_USERS" Dcl;
    ListSuperusers "LIST_SUPERUSERS" Dcl;
    ListPermissions "LIST_PERMISSIONS" Dcl;
    UseKeyspace "USE_KEYSPACE" Other;
    Describe "DESCRIBE" Other;
    PrepareStatement "PREPARE_STATEMENT" Prepare;
    RequestFailure "REQUEST_FAILURE" Error;
    UnauthorizedAttempt "UNAUTHORIZED_ATTEMPT" Auth;
    LoginSuccess "LOGIN_SUCCESS" Auth;
    LoginError "LOGIN_ERROR" Auth;
    EntriesDropped "ENTRIES_DROPPED" Error;
}

impl EntryType {
    /// That of CREATE, ALTER or DROP of something. Users are roles, as in Cassandra.
    pub(crate) fn of_definition(verb: &str, noun: &str) -> Option<Self> {
        let noun = match noun.to_ascii_uppercase().as_str() {
            "COLUMNFAMILY" => "TABLE".to_owned(),
            "SCHEMA" => "KEYSPACE".to_owned(),
            "USER" => "ROLE".to_owned(),
            "PROJECTION" => "VIEW".to_owned(),
            other => other.to_owned(),
        };
        let name = format!("{}_{noun}", verb.to_ascii_uppercase());
        let defines = |own: &&Self| matches!(own.category(), Category::Ddl | Category::Dcl);
        Self::ALL.iter().filter(defines).find(|own| own.name() == name).copied()
    }
}

/// What was done, by whom, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `None`: nobody has logged in.
    pub user: Option<String>,
    /// The client's address.
    pub source: SocketAddr,
    /// Milliseconds since the epoch.
    pub millis: i64,
    pub entry_type: EntryType,
    /// Of all entries of one batch.
    pub batch: Option<Uuid>,
    /// The keyspace that is shown: that of the client's connection for what names none.
    pub keyspace: Option<String>,
    pub scope: Option<String>,
    /// The keyspaces of what the request reads and changes, by which it is filtered. Empty: no filter of keyspaces leaves it out.
    pub keyspaces: BTreeSet<String>,
    /// The text of the statement; of one that was refused, with the reason behind it.
    pub operation: String,
    /// `None`: it was carried out.
    pub error: Option<String>,
}

/// The name of a client that has not logged in.
pub const ANONYMOUS: &str = "anonymous";

impl Entry {
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(ANONYMOUS)
    }

    /// The operation with the reason why it failed.
    fn whole_operation(&self) -> String {
        match &self.error {
            None => self.operation.clone(),
            Some(error) if self.operation.is_empty() => error.clone(),
            Some(error) => format!("{}; {error}", self.operation),
        }
    }

    /// As Cassandra's `FileAuditLogger` writes it, with the end of the line. `host`: the address of this node.
    pub fn text(&self, host: SocketAddr) -> String {
        let mut line = String::with_capacity(160 + self.operation.len());
        // Writing to a string does not fail.
        let _ = write!(line, "user:{}|host:/{host}|source:/{}", field(self.user()), self.source.ip());
        let _ = write!(line, "|port:{}|timestamp:{}", self.source.port(), self.millis);
        let _ =
            write!(line, "|type:{}|category:{}", self.entry_type.name(), self.entry_type.category().name());
        if let Some(batch) = &self.batch {
            let _ = write!(line, "|batch:{batch}");
        }
        for (name, value) in [("ks", &self.keyspace), ("scope", &self.scope)] {
            if let Some(value) = value.as_ref().filter(|value| !value.trim().is_empty()) {
                let _ = write!(line, "|{name}:{}", field(value));
            }
        }
        let operation = self.whole_operation();
        if !operation.trim().is_empty() {
            line.push_str("|operation:");
            escape(&mut line, &operation, false);
        }
        line.push('\n');
        line
    }

    /// As a line of JSON.
    pub fn json(&self, host: SocketAddr) -> String {
        let mut object = serde_json::Map::new();
        let mut put = |name: &str, value| object.insert(name.to_owned(), value);
        put("user", json!(self.user()));
        put("host", json!(host.to_string()));
        put("source", json!(self.source.ip().to_string()));
        put("port", json!(self.source.port()));
        put("timestamp", json!(self.millis));
        put("type", json!(self.entry_type.name()));
        put("category", json!(self.entry_type.category().name()));
        if let Some(batch) = &self.batch {
            put("batch", json!(batch.to_string()));
        }
        for (name, value) in [("ks", &self.keyspace), ("scope", &self.scope)] {
            if let Some(value) = value {
                put(name, json!(value));
            }
        }
        put("operation", json!(self.operation));
        put("result", json!(self.error.as_deref().unwrap_or("success")));
        let mut line = serde_json::Value::Object(object).to_string();
        line.push('\n');
        line
    }
}

/// A field that another one follows.
fn field(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    escape(&mut escaped, text, true);
    escaped
}

fn escape(line: &mut String, text: &str, is_followed: bool) {
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '|' if is_followed => line.push_str("\\|"),
            _ if character.is_control() && character != '\t' => {
                let _ = write!(line, "\\u{{{:x}}}", character as u32);
            }
            _ => line.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            user: Some("al|ice".to_owned()),
            source: "10.0.0.7:4711".parse().unwrap(),
            millis: 1_700_000_000_123,
            entry_type: EntryType::Select,
            batch: None,
            keyspace: Some("ks".to_owned()),
            scope: Some("t".to_owned()),
            keyspaces: BTreeSet::new(),
            operation: "SELECT *\nFROM t".to_owned(),
            error: None,
        }
    }

    #[test]
    fn an_entry_is_one_line_of_cassandras_text() {
        let host = "10.0.0.1:7000".parse().unwrap();
        assert_eq!(
            entry().text(host),
            "user:al\\|ice|host:/10.0.0.1:7000|source:/10.0.0.7|port:4711|timestamp:1700000000123|type:SELECT|category:QUERY\
             |ks:ks|scope:t|operation:SELECT *\\nFROM t\n"
        );
        let failed = Entry {
            user: None,
            entry_type: EntryType::RequestFailure,
            keyspace: None,
            scope: None,
            batch: Some(Uuid::from_u128(7)),
            error: Some("no such table".to_owned()),
            ..entry()
        };
        assert_eq!(
            failed.text(host),
            "user:anonymous|host:/10.0.0.1:7000|source:/10.0.0.7|port:4711|timestamp:1700000000123|type:REQUEST_FAILURE\
             |category:ERROR|batch:00000000-0000-0000-0000-000000000007|operation:SELECT *\\nFROM t; no such table\n"
        );
    }

    #[test]
    fn an_entry_is_one_line_of_json() {
        let line = entry().json("[::1]:7000".parse().unwrap());
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["operation"], "SELECT *\nFROM t");
        assert_eq!((&read["result"], &read["type"]), (&json!("success"), &json!("SELECT")));
    }

    #[test]
    fn every_type_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = EntryType::ALL.iter().map(|own| own.name()).collect();
        assert_eq!(names.len(), EntryType::ALL.len());
    }
}
