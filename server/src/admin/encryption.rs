//! The master keys of the node's files: reading them again, and which files need them.
#![allow(
    clippy::disallowed_methods,
    reason = "keys and files are read beside the thread of the shard; simulated nodes have none"
)]

use std::rc::Rc;

use helenus_admin::encryption_keys::EncryptionKeysReport;
use helenus_execution::shard::context::ShardContext;
use helenus_node_files::at_rest::OpenAtRest;

use crate::cluster::own_files;

/// Reads the master keys again, if there are any.
pub(super) async fn reload(context: &ShardContext) -> Result<(), String> {
    let at_rest = context.node.layers.get::<OpenAtRest>().get();
    let read = tokio::task::spawn_blocking(move || at_rest.reload().map_err(|error| error.to_string()));
    read.await.map_err(|error| error.to_string())?
}

/// The master keys, and the files as they are on the disk.
pub(super) async fn report(context: Rc<ShardContext>) -> Result<EncryptionKeysReport, String> {
    let node = &context.node;
    let at_rest = node.layers.get::<OpenAtRest>().get();
    let archive = own_files::archive_of(&node.config, node.host_id);
    let config = node.config.clone();
    let looked = tokio::task::spawn_blocking(move || {
        Ok(EncryptionKeysReport {
            keys: at_rest.key_ids(),
            encrypts_new_files: at_rest.encrypts(),
            encrypts_by_table: at_rest.encrypts_by_table(),
            plain_files_left: own_files::plain(&config, &at_rest)?.len() as u64,
            refuses_plain_files: at_rest.refuses_plain_files(),
            files: own_files::usage(&config, archive)?,
        })
    });
    let looked: Result<_, helenus_engine::io::DiskError> = looked.await.map_err(|error| error.to_string())?;
    looked.map_err(|error| error.to_string())
}
