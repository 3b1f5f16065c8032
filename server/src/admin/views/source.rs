//! What the views of one request are written from.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use helenus_engine::TableId;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::AdminError;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Catalog, Table, TableKind};

use crate::admin::NodeAdmin;

/// The views of one request.
pub struct Views {
    pub admin: NodeAdmin,
    pub context: Rc<ShardContext>,
    pub catalog: Arc<Catalog>,
}

/// The error for the client.
pub fn refused(error: AdminError) -> RequestError {
    match error {
        AdminError::Unknown(message) => RequestError::invalid(message),
        other @ AdminError::Failed(_) => RequestError::Server(other.to_string()),
    }
}

impl Views {
    /// The tables that have rows of their own, ordered by keyspace and name.
    pub fn stored_tables(&self) -> impl Iterator<Item = &Table> {
        let tables = self.catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.map(Arc::as_ref).filter(|table| table.kind == TableKind::Stored)
    }

    /// The keyspace and the name of each of these tables.
    pub fn names(&self) -> BTreeMap<TableId, (&str, &str)> {
        self.stored_tables()
            .map(|table| (table.engine_id(), (table.keyspace.as_str(), table.name.as_str())))
            .collect()
    }

    /// What each shard says of its tables, together.
    pub async fn by_table<T: Default + Send + 'static>(
        &self,
        look: impl Fn(&ShardContext) -> Vec<(TableId, T)> + Clone + Send + 'static,
        add: fn(&mut T, T),
    ) -> Result<BTreeMap<TableId, T>, AdminError> {
        let shards = self
            .admin
            .on_every_shard(move |context| Box::pin(std::future::ready(Ok(look(&context)))))
            .await?;
        let mut tables: BTreeMap<TableId, T> = BTreeMap::new();
        for (id, of_shard) in shards.into_iter().flatten() {
            add(tables.entry(id).or_default(), of_shard);
        }
        Ok(tables)
    }
}
