//! The applied state on disk. With it are the drops of tables that this node has not carried out; they are no part of the agreed state,
//! and of no snapshot for other members.
//!
//! The file `catalog` has a state as a whole. The file `catalog.changes` has the changes since that state, as long as they are few: so a
//! schema change costs about as much as it changes, and not as much as the schema is large. Both are replaced as a whole.
//!
//! Invariants:
//! * The state of both files is on disk before an entry of the metadata log counts as applied.
//! * `catalog` is never older than the entries that were purged from the log. So the loss of `catalog.changes` loses nothing: the log is
//!   applied again from the state in `catalog` on.
//! * Changes are those of tables, types and keyspaces alone, without drops that are pending. A member, and a drop, is in `catalog`: without the
//!   changes a node would not know that it is a member, and would carry out a drop again on a table that has its old id since.
//! * Changes belong to one `catalog`, whose last entry they name. Those of an older one are left over and not used.
//!
//! A file `catalog` of version 1 was written by a node without a metadata log and holds only a catalog. It is read once; the
//! cluster that the node then founds starts with it.

use std::path::PathBuf;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::store::{self, CATALOG_VERSION, CHANGES_VERSION, STATE_VERSION, StoreError};
use helenus_ring::metadata::{ClusterState, StateDocument};
use serde::{Deserialize, Serialize};

use super::drops::PendingDrop;
use super::raft::types::{LogId, SnapshotMeta, StoredMembership};
use helenus_node_files::small_files::{FileError, NodeFiles};

/// The file of an applied state, catalog included.
pub const CATALOG_FILE: &str = "catalog";
/// The file of the changes since that state.
pub const CHANGES_FILE: &str = "catalog.changes";

/// The applied state with its position in the log.
#[derive(Debug, Clone)]
pub struct Stored {
    pub state: ClusterState,
    /// The last applied entry.
    pub log_id: Option<LogId>,
    /// The participants of the log, as of that entry.
    pub membership: StoredMembership,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredDocument {
    /// Of changes: the last applied entry of the state that they are changes of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<LogId>,
    state: StateDocument,
    log_id: Option<LogId>,
    membership: StoredMembership,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending_drops: Vec<PendingDrop>,
}

/// The content of a node's files.
#[derive(Debug, Clone)]
pub enum Contents {
    Catalog(Catalog),
    State(Stored, Vec<PendingDrop>),
}

impl Contents {
    /// The schema in them.
    pub fn catalog(&self) -> &Catalog {
        match self {
            Self::Catalog(catalog) => catalog,
            Self::State(stored, _) => &stored.state.catalog,
        }
    }
}

/// Why the files of the applied state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error(transparent)]
    Files(#[from] FileError),
    #[error("{}: {error}", path.display())]
    Content { path: PathBuf, error: StoreError },
    #[error("{} is missing, and {CHANGES_FILE} beside it has changes to it", path.display())]
    Missing { path: PathBuf },
    #[error("{} is older than {CHANGES_FILE} beside it: it is not as it was left", path.display())]
    Older { path: PathBuf },
}

impl Stored {
    /// The state before the first entry.
    pub fn empty() -> Self {
        Self { state: ClusterState::empty(), log_id: None, membership: StoredMembership::default() }
    }

    pub fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.log_id, last_membership: self.membership.clone() }
    }

    fn document(&self, pending_drops: Vec<PendingDrop>) -> StoredDocument {
        StoredDocument {
            base: None,
            state: self.state.document(),
            log_id: self.log_id,
            membership: self.membership.clone(),
            pending_drops,
        }
    }

    /// Encodes the content of a snapshot for other members.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.document(Vec::new()))
    }

    /// Decodes a document written by [`Stored::encode`].
    pub fn decode(document: &[u8]) -> Result<Self, StoreError> {
        Ok(decode_document(document)?.0)
    }

    /// Encodes the whole file `catalog`.
    pub fn encode_file(&self, drops: Vec<PendingDrop>) -> Result<Vec<u8>, serde_json::Error> {
        Ok(store::frame(STATE_VERSION, &serde_json::to_vec(&self.document(drops))?))
    }

    /// Encodes the whole file `catalog.changes` with the changes since `base`. No drops are pending.
    pub fn encode_changes(&self, base: &Self) -> Result<Vec<u8>, serde_json::Error> {
        let document = StoredDocument {
            base: base.log_id,
            state: self.state.document_since(&base.state),
            log_id: self.log_id,
            membership: self.membership.clone(),
            pending_drops: Vec::new(),
        };
        Ok(store::frame(CHANGES_VERSION, &serde_json::to_vec(&document)?))
    }
}

fn decode_document(document: &[u8]) -> Result<(Stored, Vec<PendingDrop>), StoreError> {
    let StoredDocument { state, log_id, membership, pending_drops, .. } = serde_json::from_slice(document)?;
    Ok((Stored { state: state.state()?, log_id, membership }, pending_drops))
}

/// Reads the file `catalog` of any version.
pub fn decode_file(bytes: &[u8]) -> Result<Contents, StoreError> {
    match store::checked_document(bytes)? {
        (CATALOG_VERSION, document) => store::decode_document(document).map(Contents::Catalog),
        (STATE_VERSION, document) => {
            decode_document(document).map(|(stored, drops)| Contents::State(stored, drops))
        }
        (found, _) => Err(StoreError::Version { found }),
    }
}

/// The state that changes lead to.
enum Changed {
    State(Stored, Vec<PendingDrop>),
    /// They are changes of an older state.
    LeftOver,
    /// They are changes of a newer state.
    Ahead,
}

fn decode_changes(bytes: &[u8], base: Option<&Stored>) -> Result<Changed, StoreError> {
    let document = match store::checked_document(bytes)? {
        (CHANGES_VERSION, document) => document,
        (found, _) => return Err(StoreError::Version { found }),
    };
    let document: StoredDocument = serde_json::from_slice(document)?;
    let base_log_id = base.and_then(|base| base.log_id);
    let Some(base) = base.filter(|_| document.base == base_log_id) else {
        return Ok(if document.base > base_log_id { Changed::Ahead } else { Changed::LeftOver });
    };
    let StoredDocument { state, log_id, membership, pending_drops, .. } = document;
    let state = state.state_over(&base.state)?;
    Ok(Changed::State(Stored { state, log_id, membership }, pending_drops))
}

/// The state of both files, of which the changes may be missing.
pub fn decode_files(
    files: &NodeFiles,
    catalog: Option<&[u8]>,
    changes: Option<&[u8]>,
) -> Result<Option<Contents>, StoredError> {
    let content = |name: &str| {
        let path = files.path(name);
        move |error| StoredError::Content { path, error }
    };
    let path = || files.path(CATALOG_FILE);
    let contents = catalog.map(decode_file).transpose().map_err(content(CATALOG_FILE))?;
    let (Some(changes), Some(contents)) = (changes, &contents) else {
        return if changes.is_some() { Err(StoredError::Missing { path: path() }) } else { Ok(contents) };
    };
    let base = match contents {
        Contents::State(stored, _) => Some(stored),
        Contents::Catalog(_) => None,
    };
    match decode_changes(changes, base).map_err(content(CHANGES_FILE))? {
        Changed::State(stored, drops) => Ok(Some(Contents::State(stored, drops))),
        Changed::LeftOver => Ok(Some(contents.clone())),
        Changed::Ahead => Err(StoredError::Older { path: path() }),
    }
}

/// Reads both files. `None`: there are none.
pub async fn load(files: &NodeFiles) -> Result<Option<Contents>, StoredError> {
    let catalog = files.load(CATALOG_FILE).await?;
    let changes = files.load(CHANGES_FILE).await?;
    decode_files(files, catalog.as_deref(), changes.as_deref())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use helenus_engine::io::{Disk, SimulatedDisk};
    use helenus_testing::{CREATE_KEYSPACE, catalog_file, catalog_of};

    use super::*;

    fn drops() -> Vec<PendingDrop> {
        serde_json::from_str(r#"[{"table":"00000000-0000-0000-0000-000000000007"}]"#).unwrap()
    }

    #[test]
    fn files_of_both_versions_are_read() {
        let session = catalog_of(&[CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)"]);
        let old = catalog_file(&session.catalog);
        let Ok(Contents::Catalog(catalog)) = decode_file(&old) else { panic!("a catalog alone") };
        assert_eq!(format!("{catalog:?}"), format!("{:?}", session.catalog));

        let mut stored = Stored::empty();
        stored.state.catalog = session.catalog.clone();
        let file = stored.encode_file(drops()).unwrap();
        let Ok(Contents::State(read, read_drops)) = decode_file(&file) else { panic!("a whole state") };
        assert_eq!(format!("{read:?}"), format!("{stored:?}"));
        assert_eq!(read_drops, drops());
        assert!(decode_file(&file[..file.len() - 1]).is_err());
        // Another member gets the agreed state alone.
        let sent = stored.encode().unwrap();
        assert!(!String::from_utf8(sent).unwrap().contains("pending_drops"));
    }

    fn at(index: u64, statements: &[&str]) -> Stored {
        let mut stored = Stored::empty();
        stored.state.catalog = catalog_of(statements).catalog;
        stored.log_id = Some(LogId::new_term_index(1, index));
        stored
    }

    #[tokio::test]
    async fn changes_are_read_over_the_state_that_they_belong_to() {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1));
        let files = NodeFiles::open(disk, Path::new("/node").to_owned()).await.unwrap();
        let table = "CREATE TABLE t (k int PRIMARY KEY)";
        let base = at(5, &[CREATE_KEYSPACE, table]);
        let now = at(9, &[CREATE_KEYSPACE, table, "CREATE TABLE u (k int PRIMARY KEY)"]);
        let catalog = base.encode_file(Vec::new()).unwrap();
        let changes = now.encode_changes(&base).unwrap();
        let read = |catalog: Option<&[u8]>, changes: &[u8]| decode_files(&files, catalog, Some(changes));
        let Ok(Some(Contents::State(found, found_drops))) = read(Some(&catalog), &changes) else {
            panic!("a state")
        };
        assert_eq!((format!("{found:?}"), found_drops), (format!("{now:?}"), Vec::new()));
        // A later whole state: the changes are left over.
        let later = at(12, &[CREATE_KEYSPACE]).encode_file(Vec::new()).unwrap();
        let Ok(Some(Contents::State(found, _))) = read(Some(&later), &changes) else { panic!("a state") };
        assert_eq!(found.log_id, Some(LogId::new_term_index(1, 12)));
        // An earlier one, of any version, or none: it is not as it was left.
        let earlier = at(4, &[CREATE_KEYSPACE]);
        let old = catalog_file(&earlier.state.catalog);
        let earlier = earlier.encode_file(Vec::new()).unwrap();
        for catalog in [&earlier, &old] {
            assert!(matches!(read(Some(catalog), &changes), Err(StoredError::Older { .. })));
        }
        assert!(matches!(read(None, &changes), Err(StoredError::Missing { .. })));
        // Damage names the file.
        let cut = read(Some(&catalog), &changes[..changes.len() - 1]).unwrap_err().to_string();
        assert!(cut.starts_with("/node/catalog.changes: the catalog is damaged"), "{cut}");
        let swapped = read(Some(&catalog), &catalog).unwrap_err().to_string();
        assert!(swapped.contains("catalog.changes: the catalog has format version 2"), "{swapped}");
    }
}
