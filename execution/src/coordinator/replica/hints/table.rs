//! The table of hints.

use helenus_engine::TableId;
use helenus_query::error::RequestError;

use crate::shard::private_table::PrivateTable;

/// The engine's id of the hints table.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-hints---"));

/// The error of a row that cannot be read.
pub(super) fn damaged(what: &str) -> RequestError {
    RequestError::Server(format!("the stored hints are damaged: {what} cannot be read"))
}
