//! What was uploaded, and the removal of it.
//!
//! Invariants of a removal:
//! * The manifest goes first. So a removal that was cut off leaves no upload that lacks files.
//! * No object goes that another manifest of the same host names. If one of these cannot be read, nothing is removed.
//! * Objects that no manifest names go too: those of uploads and removals that were cut off. Nobody else may upload for that host meanwhile.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};

use crate::download::hosts;
use crate::error::StoreError;
use crate::manifest::Manifest;
use crate::name::HostFolder;
use crate::transfer::Transfer;

/// A host's upload of a snapshot.
#[derive(Debug)]
pub struct ListedUpload {
    pub host_id: String,
    pub snapshot: String,
    /// When it was made, and its tables; or why they are not known.
    pub tables: Result<(String, Vec<ListedTable>), StoreError>,
}

/// A table of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTable {
    pub keyspace: String,
    pub name: String,
    pub id: String,
    pub created_at: String,
    pub files: u64,
    pub bytes: u64,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub objects: u64,
    pub bytes: u64,
}

/// The uploads of all hosts of a cluster, by host and snapshot.
pub async fn list(transfer: &Transfer<'_>, cluster: &str) -> Result<Vec<ListedUpload>, StoreError> {
    let mut listed = Vec::new();
    for host_id in hosts(transfer, cluster).await? {
        let folder = HostFolder::new(cluster, &host_id);
        for snapshot in transfer.snapshots(&folder).await? {
            let tables = match transfer.manifest(&folder, &snapshot).await {
                Ok(manifest) => Ok((manifest.uploaded_at.clone(), summary(&manifest))),
                Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => Err(error),
                // It was removed meanwhile.
                Err(StoreError::Missing { .. }) => continue,
                Err(error) => return Err(error),
            };
            listed.push(ListedUpload { host_id: host_id.clone(), snapshot, tables });
        }
    }
    Ok(listed)
}

fn summary(manifest: &Manifest) -> Vec<ListedTable> {
    let tables = manifest.tables.iter().map(|table| ListedTable {
        keyspace: table.keyspace.clone(),
        name: table.name.clone(),
        id: table.id.clone(),
        created_at: table.created_at.clone(),
        files: table.files.len() as u64,
        bytes: table.files.iter().map(|file| file.bytes).sum(),
    });
    tables.collect()
}

/// Removes a host's upload of a snapshot, and what no upload of that host needs.
pub async fn remove(
    transfer: &Transfer<'_>,
    cluster: &str,
    host_id: &str,
    snapshot: &str,
) -> Result<Removed, StoreError> {
    let folder = HostFolder::new(cluster, host_id);
    let mut needed = BTreeSet::new();
    let mut was_there = false;
    for name in transfer.snapshots(&folder).await? {
        if name == snapshot {
            was_there = true;
        } else {
            needed.extend(transfer.manifest(&folder, &name).await?.objects(&folder));
        }
    }
    transfer.store.delete(&folder.manifest(snapshot)).await?;
    let all = transfer.store.list(folder.all()).await?;
    let unneeded =
        all.into_iter().filter(|object| folder.is_file(&object.name) && !needed.contains(&object.name));
    let unneeded: Vec<_> = unneeded.collect();
    transfer.progress.files.add(unneeded.len() as u64);
    transfer.progress.bytes.add(unneeded.iter().map(|object| object.bytes).sum());
    let removed = unneeded.iter().map(|object| async move {
        transfer.store.delete(&object.name).await?;
        Ok::<u64, StoreError>(object.bytes)
    });
    let mut removed =
        std::pin::pin!(futures::stream::iter(removed).buffer_unordered(transfer.parallel.max(1)));
    let mut total = Removed::default();
    while let Some(bytes) = removed.try_next().await? {
        total.objects += 1;
        total.bytes += bytes;
        transfer.progress.files_done.add(1);
        transfer.progress.bytes_done.add(bytes);
    }
    if was_there || total.objects > 0 {
        Ok(total)
    } else {
        Err(transfer.unknown(snapshot, format!("by the host {host_id} of the cluster '{cluster}'")))
    }
}
