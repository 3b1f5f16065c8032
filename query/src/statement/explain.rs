//! EXPLAIN: a statement about a statement.
//!
//! Invariant: the markers, the table and the functions are those of the statement that is explained. It has a text of its own, so that it can
//! be planned again and sent to other nodes like any other.

use std::sync::{Arc, OnceLock};

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::{Description, Prepared, Statement, metadata_id, statement_id};
use crate::error::Result;
use crate::plan::selection::ResultColumn;
use crate::schema::catalog::CatalogView;

/// A planned EXPLAIN.
#[derive(Debug)]
pub struct ExplainPlan {
    /// The statement is executed, too.
    pub analyze: bool,
    /// The answer is one document of JSON.
    pub json: bool,
    /// A SELECT, a modification or a batch.
    pub statement: Statement,
}

impl ExplainPlan {
    /// The columns of the answer.
    fn result_columns(json: bool) -> Vec<ResultColumn> {
        let column =
            |(name, column_type): (&str, CqlType)| ResultColumn { name: name.to_owned(), column_type };
        if json {
            return vec![column(("[json]", CqlType::Text))];
        }
        let columns = [
            ("step", CqlType::Int),
            ("operation", CqlType::Text),
            ("target", CqlType::Text),
            ("detail", CqlType::Text),
            ("rows", CqlType::Bigint),
            ("charge", CqlType::Bigint),
        ];
        columns.into_iter().map(column).collect()
    }
}

impl Statement {
    /// Plans an EXPLAIN. `text`: the whole of it.
    pub(super) fn explain(
        text: &str,
        explain: &ast::Explain,
        keyspace: Option<&str>,
        catalog: &CatalogView,
    ) -> Result<Self> {
        let statement = Self::new(&explain.statement.to_string(), keyspace, catalog)?;
        let result_columns = ExplainPlan::result_columns(explain.json);
        let id = statement_id(text, keyspace);
        let description = Description {
            fingerprint: u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
            id,
            text: text.into(),
            metadata_id: metadata_id(&result_columns),
            result_columns,
            encoded: [OnceLock::new(), OnceLock::new(), OnceLock::new()],
            masked: OnceLock::new(),
            ..Description::clone(&statement)
        };
        let plan = ExplainPlan { analyze: explain.analyze, json: explain.json, statement };
        Ok(Self::Explain(Arc::new(Prepared { description, plan })))
    }
}
