//! The definition of a view in the document of a catalog: its statement as CQL.

use cql_lite::syntax::ast::Statement;
use cql_lite::syntax::parse;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DocumentError, uuid};
use crate::schema::view::View;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ViewDocument {
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joined: Option<String>,
    statement: String,
}

impl ViewDocument {
    pub fn of(view: &View) -> Self {
        Self {
            base: view.base.to_string(),
            joined: view.joined.as_ref().map(Uuid::to_string),
            statement: view.statement.to_string(),
        }
    }

    pub fn view(&self) -> Result<View, DocumentError> {
        let Ok(Statement::CreateView(statement)) = parse(&self.statement) else {
            return Err(DocumentError::View { text: self.statement.clone() });
        };
        Ok(View { base: uuid(&self.base)?, joined: self.joined.as_deref().map(uuid).transpose()?, statement })
    }
}
