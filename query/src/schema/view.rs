//! What makes a table a view: its rows are computed of those of a base table, and kept true by the node.
//!
//! Beside a view there are tables that clients do not see. Their names have a `$`, which no name of a user's table has:
//!
//! | table | holds |
//! |---|---|
//! | `base$changes` | the log of what changes in the base table, in the format of a change feed with keys only; one for all views of the table |
//! | `view$rows` | which rows of the view come from which rows of the base table |
//! | `view$lookups` | which rows of the base table have looked up which rows of a joined table |

use cql_lite::syntax::ast::CreateView;
use uuid::Uuid;

/// Separates the name of a table from what is kept beside it.
const MARK: char = '$';
const LOG: &str = "changes";
const ROWS: &str = "rows";
const LOOKUPS: &str = "lookups";

/// How long the entries of `base$changes` are kept, in seconds. Views that are behind by more have to be built anew.
pub const CHANGES_TTL_SECONDS: u32 = 86_400;

/// The definition of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The id of the base table. It is in the keyspace of the view.
    pub base: Uuid,
    /// The id of the joined table, which may be in another keyspace.
    pub joined: Option<Uuid>,
    /// The id of the present build, if the view was built again since it was created: see [`View::built_again`].
    pub build: Option<Uuid>,
    /// The statement that creates it, without IF NOT EXISTS and options. All tables have their keyspaces, columns the names of now.
    pub statement: CreateView,
}

impl View {
    /// The same view, to be built again over what it has: rows have come or gone without entries in the log. `id`: no build has it yet.
    #[must_use]
    pub fn built_again(&self, id: Uuid) -> Self {
        Self { build: Some(id), ..self.clone() }
    }

    /// The conditions as they stand behind WHERE; empty if there are none.
    pub fn where_clause(&self) -> String {
        let relations = self.statement.relations.iter().map(ToString::to_string);
        relations.collect::<Vec<_>>().join(" AND ")
    }
}

/// The name of the log of changes of a base table.
pub fn log_name(base: &str) -> String {
    beside(base, LOG)
}

/// The name of the table of origins of a view's rows.
pub fn rows_name(view: &str) -> String {
    beside(view, ROWS)
}

/// The name of the table of what a view has looked up.
pub fn lookups_name(view: &str) -> String {
    beside(view, LOOKUPS)
}

/// Whether a table holds what views need beside their rows.
pub fn is_hidden(name: &str) -> bool {
    name.contains(MARK)
}

/// The table beside which a hidden one is kept.
pub fn owner_name(hidden: &str) -> Option<&str> {
    hidden.split_once(MARK).map(|(owner, _)| owner)
}

fn beside(table: &str, what: &str) -> String {
    format!("{table}{MARK}{what}")
}
