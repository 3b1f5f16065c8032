//! Uploads a node's part of a snapshot.
//!
//! Steps: find what the manifests of the node know of its files; list the files of the snapshot; put each file whose object is not there; put
//! the manifest. An upload that was cut off goes on where it stopped: the objects that are whole are there under the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use crate::error::StoreError;
use crate::local_file::{self, FileReader, LocalFile};
use crate::manifest::{Manifest, ManifestFile, ManifestTable};
use crate::name::HostFolder;
use crate::store::StoredObject;
use crate::transfer::Transfer;

/// Files up to this size are put in one piece, larger ones in pieces of at least this size.
const PART_BYTES: u64 = 8 << 20;
/// A store takes 10,000 parts of an object.
const PARTS_MAX: u64 = 9_000;

/// What is uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadOrder {
    pub cluster: String,
    pub host_id: String,
    pub snapshot: String,
    /// As `2015-05-21T11:03:02.000Z`.
    pub uploaded_at: String,
    pub parts: Vec<LocalPart>,
}

/// A table's part of a snapshot on one shard. What is not known is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalPart {
    pub keyspace: String,
    pub table: String,
    pub id: String,
    pub shard: usize,
    pub created_at: String,
    /// Those with its files, that of the shard's own directory first.
    pub directories: Vec<PathBuf>,
}

impl LocalPart {
    /// The path of the files of a directory in the manifest.
    fn path(&self, directory: usize) -> String {
        match directory {
            0 => format!("shard-{}/{}", self.shard, self.id),
            _ => format!("shard-{}/directory-{directory}/{}", self.shard, self.id),
        }
    }
}

/// What was uploaded, and how much of it was not there before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "units stand at the end of names")]
pub struct Uploaded {
    pub tables: u64,
    pub files: u64,
    pub bytes: u64,
    pub new_files: u64,
    pub new_bytes: u64,
}

/// The checksums of files by path, size and the time of their last write.
type Checksums = BTreeMap<(String, u64, u64), u32>;

/// A file that is to be there.
struct Wanted {
    local: LocalFile,
    path: String,
    /// The number of its table.
    table: usize,
}

/// Uploads a snapshot.
pub async fn upload(transfer: &Transfer<'_>, order: UploadOrder) -> Result<Uploaded, StoreError> {
    let folder = HostFolder::new(&order.cluster, &order.host_id);
    let (former, known) = former(transfer, &folder, &order.snapshot).await?;
    let mut tables: Vec<ManifestTable> = Vec::new();
    let mut wanted = Vec::new();
    let mut present = BTreeSet::new();
    for part in &order.parts {
        let table = tables.iter().position(|table| table.id == part.id).unwrap_or(tables.len());
        if table == tables.len() {
            tables.push(ManifestTable {
                keyspace: part.keyspace.clone(),
                name: part.table.clone(),
                id: part.id.clone(),
                created_at: part.created_at.clone(),
                files: Vec::new(),
            });
        }
        for (number, directory) in part.directories.iter().enumerate() {
            let path = part.path(number);
            let files = local_file::list(directory.clone()).await?;
            // The first one, the table's own, has the schema of the snapshot at least.
            if files.is_empty() && number == 0 {
                let (snapshot, table) = (order.snapshot.clone(), part.id.clone());
                return Err(StoreError::NoFiles { snapshot, table, path: directory.clone() });
            }
            if !files.is_empty() {
                present.extend(transfer.store.list(&folder.files_at(&path)).await?);
            }
            wanted.extend(files.into_iter().map(|local| {
                transfer.progress.files.add(1);
                transfer.progress.bytes.add(local.bytes);
                Wanted { path: format!("{path}/{}", local.name), local, table }
            }));
        }
    }
    let mut uploaded = Uploaded { tables: tables.len() as u64, ..Uploaded::default() };
    let put = wanted.into_iter().map(|file| put_file(transfer, &folder, &known, &present, file));
    let mut put = std::pin::pin!(futures::stream::iter(put).buffer_unordered(transfer.parallel.max(1)));
    while let Some((table, file, is_new)) = put.try_next().await? {
        uploaded.files += 1;
        uploaded.bytes += file.bytes;
        if is_new {
            uploaded.new_files += 1;
            uploaded.new_bytes += file.bytes;
        }
        transfer.progress.files_done.add(1);
        transfer.progress.bytes_done.add(file.bytes);
        tables[table].files.push(file);
    }
    for table in &mut tables {
        table.files.sort();
    }
    if let Some(former) = &former {
        check_is_whole(former, &tables)?;
    }
    // What was uploaded of the same snapshot before stays.
    let ids: BTreeSet<String> = tables.iter().map(|table| table.id.clone()).collect();
    let others = former.into_iter().flat_map(|manifest| manifest.tables);
    tables.extend(others.filter(|table| !ids.contains(&table.id)));
    tables.sort();
    let UploadOrder { cluster, host_id, snapshot, uploaded_at, .. } = order;
    let object = folder.manifest(&snapshot);
    let manifest = Manifest { cluster, host_id, snapshot, uploaded_at, tables };
    let contents = manifest.encode().map_err(|error| StoreError::Object {
        action: "write",
        object: object.clone(),
        store: transfer.store.address().to_owned(),
        reason: error.to_string(),
    })?;
    transfer.store.put(&object, contents).await?;
    Ok(uploaded)
}

/// Refuses the upload of a snapshot of which files have been removed since it was uploaded before: a backup would lose them.
fn check_is_whole(former: &Manifest, tables: &[ManifestTable]) -> Result<(), StoreError> {
    for table in tables {
        let is_same = |known: &&ManifestTable| known.id == table.id && known.created_at == table.created_at;
        let paths: BTreeSet<&str> = table.files.iter().map(|file| file.path.as_str()).collect();
        let known = former.tables.iter().filter(is_same).flat_map(|known| &known.files);
        if let Some(missing) = known.into_iter().find(|file| !paths.contains(file.path.as_str())) {
            let (snapshot, missing) = (former.snapshot.clone(), missing.path.clone());
            return Err(StoreError::Shrunk { snapshot, missing });
        }
    }
    Ok(())
}

/// The manifest of the snapshot, if a part of it was uploaded before, and what all manifests know of the node's files.
async fn former(
    transfer: &Transfer<'_>,
    folder: &HostFolder,
    snapshot: &str,
) -> Result<(Option<Manifest>, Checksums), StoreError> {
    let mut former = None;
    let mut known = Checksums::new();
    for name in transfer.snapshots(folder).await? {
        let manifest = match transfer.manifest(folder, &name).await {
            Ok(manifest) => manifest,
            // Without it the files are read for their checksums.
            Err(StoreError::Damaged { .. } | StoreError::Newer { .. }) if name != snapshot => continue,
            Err(error) => return Err(error),
        };
        known.extend(
            manifest.files().map(|file| ((file.path.clone(), file.bytes, file.modified_ns), file.crc32)),
        );
        if name == snapshot {
            former = Some(manifest);
        }
    }
    Ok((former, known))
}

/// Puts a file unless its object is there. Returns the number of its table, what the manifest says of it, and whether it was put.
async fn put_file(
    transfer: &Transfer<'_>,
    folder: &HostFolder,
    known: &Checksums,
    present: &BTreeSet<StoredObject>,
    wanted: Wanted,
) -> Result<(usize, ManifestFile, bool), StoreError> {
    let Wanted { local, path, table } = wanted;
    let (bytes, modified_ns) = (local.bytes, local.modified_ns);
    let key = (path, bytes, modified_ns);
    let mut contents = None;
    let crc32 = match known.get(&key) {
        Some(crc32) => *crc32,
        None if bytes <= PART_BYTES => {
            let (piece, reader) = FileReader::open(&local).await?.next(bytes).await?;
            contents = Some(piece);
            reader.crc32()
        }
        None => local_file::checksum(&local).await?,
    };
    let file = ManifestFile { path: key.0, bytes, crc32, modified_ns };
    let object = file.object(folder);
    if present.contains(&StoredObject { name: object.clone(), bytes }) {
        return Ok((table, file, false));
    }
    let contents = match contents {
        None if bytes <= PART_BYTES => {
            let (piece, reader) = FileReader::open(&local).await?.next(bytes).await?;
            check(&local, crc32, reader.crc32())?;
            Some(piece)
        }
        contents => contents,
    };
    match contents {
        Some(contents) => {
            transfer.spend(bytes).await;
            transfer.store.put(&object, contents).await?;
        }
        None => put_in_parts(transfer, &object, &local, crc32).await?,
    }
    Ok((table, file, true))
}

/// Refuses a file whose contents are not those of its checksum: a read may return other bytes than the one before.
fn check(local: &LocalFile, expected: u32, found: u32) -> Result<(), StoreError> {
    if expected == found { Ok(()) } else { Err(StoreError::Changed { path: local.path.clone() }) }
}

async fn put_in_parts(
    transfer: &Transfer<'_>,
    object: &str,
    local: &LocalFile,
    crc32: u32,
) -> Result<(), StoreError> {
    let part_bytes = PART_BYTES.max(local.bytes.div_ceil(PARTS_MAX));
    let mut reader = FileReader::open(local).await?;
    let mut parts = transfer.store.begin(object).await?;
    let put = async {
        while !reader.is_at_end() {
            let (piece, next): (Bytes, FileReader) = reader.next(part_bytes).await?;
            reader = next;
            transfer.spend(piece.len() as u64).await;
            parts.part(piece).await?;
        }
        check(local, crc32, reader.crc32())
    };
    match put.await {
        Ok(()) => parts.complete().await,
        Err(error) => {
            parts.abandon().await;
            Err(error)
        }
    }
}
