//! The applied state on disk: the file `catalog`, replaced as a whole before an entry counts as applied. With it are the drops of tables that
//! this node has not carried out; they are no part of the agreed state, and of no snapshot for other members.
//!
//! A file of version 1 was written by a node without a metadata log and holds only a catalog. It is read once; the
//! cluster that the node then founds starts with it.

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::store::{self, CATALOG_VERSION, STATE_VERSION, StoreError};
use helenus_ring::metadata::{ClusterState, StateDocument};
use serde::{Deserialize, Serialize};

use super::drops::PendingDrop;
use super::raft::types::{LogId, SnapshotMeta, StoredMembership};

/// The file of the applied state, catalog included.
pub const CATALOG_FILE: &str = "catalog";

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
    state: StateDocument,
    log_id: Option<LogId>,
    membership: StoredMembership,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending_drops: Vec<PendingDrop>,
}

/// The content of a node's file.
#[derive(Debug, Clone)]
pub enum Contents {
    Catalog(Catalog),
    State(Stored, Vec<PendingDrop>),
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

    /// Encodes the whole file.
    pub fn encode_file(&self, drops: Vec<PendingDrop>) -> Result<Vec<u8>, serde_json::Error> {
        Ok(store::frame(STATE_VERSION, &serde_json::to_vec(&self.document(drops))?))
    }
}

fn decode_document(document: &[u8]) -> Result<(Stored, Vec<PendingDrop>), StoreError> {
    let StoredDocument { state, log_id, membership, pending_drops } = serde_json::from_slice(document)?;
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

#[cfg(test)]
mod tests {
    use helenus_testing::{CREATE_KEYSPACE, catalog_file, catalog_of};

    use super::*;

    #[test]
    fn files_of_both_versions_are_read() {
        let session = catalog_of(&[CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)"]);
        let old = catalog_file(&session.catalog);
        let Ok(Contents::Catalog(catalog)) = decode_file(&old) else { panic!("a catalog alone") };
        assert_eq!(format!("{catalog:?}"), format!("{:?}", session.catalog));

        let mut stored = Stored::empty();
        stored.state.catalog = session.catalog.clone();
        let drops: Vec<PendingDrop> =
            serde_json::from_str(r#"[{"table":"00000000-0000-0000-0000-000000000007"}]"#).unwrap();
        let file = stored.encode_file(drops.clone()).unwrap();
        let Ok(Contents::State(read, read_drops)) = decode_file(&file) else { panic!("a whole state") };
        assert_eq!(format!("{read:?}"), format!("{stored:?}"));
        assert_eq!(read_drops, drops);
        assert!(decode_file(&file[..file.len() - 1]).is_err());
        // Another member gets the agreed state alone.
        let sent = stored.encode().unwrap();
        assert!(!String::from_utf8(sent).unwrap().contains("pending_drops"));
    }
}
