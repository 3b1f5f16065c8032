//! The definition of a view in the document of a catalog: its statement as CQL.

use cql_lite::syntax::ast::Statement;
use cql_lite::syntax::parse;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::schema::view::View;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ViewDocument {
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joined: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    statement: String,
}

impl ViewDocument {
    pub fn of(view: &View) -> Self {
        Self {
            base: view.base.to_string(),
            joined: view.joined.as_ref().map(Uuid::to_string),
            build: view.build.as_ref().map(Uuid::to_string),
            statement: view.statement.to_string(),
        }
    }

    /// The definition; `None`: the bytes have another meaning.
    pub fn view(&self) -> Option<View> {
        let Ok(Statement::CreateView(statement)) = parse(&self.statement) else { return None };
        let optional = |id: &Option<String>| id.as_deref().map(Uuid::parse_str).transpose().ok();
        Some(View {
            base: Uuid::parse_str(&self.base).ok()?,
            joined: optional(&self.joined)?,
            build: optional(&self.build)?,
            statement,
        })
    }

    /// The statement, for errors.
    pub fn text(&self) -> &str {
        &self.statement
    }
}
