//! Downloads what is kept of a snapshot into a directory that an import can read: `<host id>/shard-<n>/<table id>/<file>`.
//!
//! Invariants:
//! * A file has its name only when its size and checksum are those of the manifest, durably. A download that was cut off goes on where it
//!   stopped.
//! * No file is replaced that is there with other contents.

use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};

use crate::error::StoreError;
use crate::local_file::{self, FileWriter};
use crate::manifest::{Manifest, ManifestFile};
use crate::name::{HostFolder, cluster_folder, decoded, encoded};
use crate::transfer::Transfer;

/// What is downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadOrder {
    pub cluster: String,
    pub snapshot: String,
    /// All hosts that have uploaded the snapshot without one.
    pub host_id: Option<String>,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
    pub into: PathBuf,
}

/// What was downloaded, and how much of it was not there before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Downloaded {
    pub hosts: Vec<String>,
    pub files: u64,
    pub bytes: u64,
    pub new_files: u64,
    pub new_bytes: u64,
}

/// Downloads a snapshot.
pub async fn download(transfer: &Transfer<'_>, order: DownloadOrder) -> Result<Downloaded, StoreError> {
    let hosts = match &order.host_id {
        Some(host_id) => vec![host_id.clone()],
        None => hosts(transfer, &order.cluster).await?,
    };
    let mut downloaded = Downloaded::default();
    let mut wanted = Vec::new();
    for host_id in hosts {
        let folder = HostFolder::new(&order.cluster, &host_id);
        if transfer.store.size(&folder.manifest(&order.snapshot)).await?.is_none() {
            continue;
        }
        let manifest = transfer.manifest(&folder, &order.snapshot).await?;
        let into = order.into.join(encoded(&host_id));
        let count = wanted.len();
        wanted.extend(files(manifest, &order).map(|file| (folder.clone(), into.clone(), file)));
        if wanted.len() > count {
            downloaded.hosts.push(host_id);
        }
    }
    if wanted.is_empty() {
        return Err(transfer.unknown(&order.snapshot, scope(&order)));
    }
    for (_, _, file) in &wanted {
        transfer.progress.files.add(1);
        transfer.progress.bytes.add(file.bytes);
    }
    let got = wanted.iter().map(|(folder, into, file)| get_file(transfer, folder, into, file));
    let mut got = std::pin::pin!(futures::stream::iter(got).buffer_unordered(transfer.parallel.max(1)));
    while let Some((bytes, is_new)) = got.try_next().await? {
        downloaded.files += 1;
        downloaded.bytes += bytes;
        if is_new {
            downloaded.new_files += 1;
            downloaded.new_bytes += bytes;
        }
        transfer.progress.files_done.add(1);
        transfer.progress.bytes_done.add(bytes);
    }
    Ok(downloaded)
}

/// The hosts that have uploaded anything.
pub(crate) async fn hosts(transfer: &Transfer<'_>, cluster: &str) -> Result<Vec<String>, StoreError> {
    let folders = transfer.store.folders(&cluster_folder(cluster)).await?;
    Ok(folders.iter().filter_map(|folder| decoded(folder)).collect())
}

/// The wanted files of a manifest.
fn files(manifest: Manifest, order: &DownloadOrder) -> impl Iterator<Item = ManifestFile> {
    let is_named =
        |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
    let tables = manifest.tables.into_iter();
    tables
        .filter(move |table| {
            is_named(&order.keyspace, &table.keyspace) && is_named(&order.table, &table.name)
        })
        .flat_map(|table| table.files)
}

/// What was asked for, for an error.
fn scope(order: &DownloadOrder) -> String {
    let tables = match (&order.keyspace, &order.table) {
        (Some(keyspace), Some(table)) => format!("with the table {keyspace}.{table} "),
        (Some(keyspace), None) => format!("with the keyspace {keyspace} "),
        (None, _) => String::new(),
    };
    let host = order.host_id.as_ref().map_or_else(String::new, |host_id| format!("by the host {host_id} "));
    format!("{tables}{host}of the cluster '{}'", order.cluster)
}

/// Gets a file unless it is there. Returns its bytes, and whether it was got.
async fn get_file(
    transfer: &Transfer<'_>,
    folder: &HostFolder,
    into: &Path,
    file: &ManifestFile,
) -> Result<(u64, bool), StoreError> {
    let path = into.join(&file.path);
    if let Some(present) = local_file::look_at(path.clone()).await? {
        let is_same = present.bytes == file.bytes && local_file::checksum(&present).await? == file.crc32;
        return if is_same { Ok((file.bytes, false)) } else { Err(StoreError::Occupied { path }) };
    }
    let object = file.object(folder);
    let damaged = |reason: String| StoreError::Damaged {
        object: object.clone(),
        store: transfer.store.address().to_owned(),
        reason,
    };
    let mut pieces = transfer.store.get(&object).await?;
    let mut writer = FileWriter::create(path).await?;
    while let Some(piece) = pieces.try_next().await? {
        transfer.spend(piece.len() as u64).await;
        writer = writer.write(piece).await?;
        let (bytes, _) = writer.sum();
        if bytes > file.bytes {
            return Err(damaged(format!("it has more than the {} bytes that it should have", file.bytes)));
        }
    }
    let (bytes, crc32) = writer.sum();
    if bytes != file.bytes {
        return Err(damaged(format!("it has {bytes} bytes in place of {}", file.bytes)));
    }
    if crc32 != file.crc32 {
        return Err(damaged(format!("its checksum is {crc32:08x} in place of {:08x}", file.crc32)));
    }
    writer.finish().await?;
    Ok((bytes, true))
}
