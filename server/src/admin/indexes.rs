//! Making the index files of the node anew.

use helenus_engine::secondary_index::IndexId;
use helenus_observe::AdminError;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::index_terms;

use super::NodeAdmin;

/// The indexes that are named, as `NAME`, or as nodetool also takes them: `TABLE.NAME`, `KEYSPACE.TABLE.NAME`.
fn named(table: &Table, names: &[String]) -> Result<Vec<IndexId>, AdminError> {
    let id_of = |name: &String| {
        let prefixes = [format!("{}.{}.", table.keyspace, table.name), format!("{}.", table.name)];
        let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())).unwrap_or(name);
        let index = table.indexes.iter().find(|index| index.name == short);
        let unknown = || AdminError::Unknown(format!("table '{}' has no index '{name}'", table.full_name()));
        index.and_then(|index| index_terms::id_of(table, index)).ok_or_else(unknown)
    };
    names.iter().map(id_of).collect()
}

impl NodeAdmin {
    pub(super) async fn rebuild(
        &self,
        keyspace: String,
        table: String,
        names: Vec<String>,
    ) -> Result<(), AdminError> {
        let targets = self.targets(Some(&keyspace), Some(&table)).await?;
        // All names are checked before anything is made.
        let wanted = targets
            .into_iter()
            .map(|target| Ok((target.engine_id(), named(&target, &names)?)))
            .collect::<Result<Vec<_>, AdminError>>()?;
        self.on_every_shard(move |context| {
            let wanted = wanted.clone();
            Box::pin(async move {
                for (table, indexes) in wanted {
                    context.shard.rebuild_indexes(table, &indexes).await?;
                }
                Ok(())
            })
        })
        .await
        .map(drop)
    }
}
