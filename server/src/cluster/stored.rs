//! The applied state on disk: the file `catalog`, replaced as a whole before an entry counts as applied.
//!
//! A file of version 1 was written by a node without a metadata log and holds only a catalog. It is read once; the
//! cluster that the node then founds starts with it.

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::store::{self, CATALOG_VERSION, STATE_VERSION, StoreError};
use helenus_ring::metadata::{ClusterState, StateDocument};
use serde::{Deserialize, Serialize};

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
}

/// The content of a node's file.
#[derive(Debug, Clone)]
pub enum Contents {
    Catalog(Catalog),
    State(Stored),
}

impl Stored {
    /// The state before the first entry.
    pub fn empty() -> Self {
        Self { state: ClusterState::empty(), log_id: None, membership: StoredMembership::default() }
    }

    pub fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.log_id, last_membership: self.membership.clone() }
    }

    /// Encodes the document of the file, which is also the content of a snapshot.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&StoredDocument {
            state: self.state.document(),
            log_id: self.log_id,
            membership: self.membership.clone(),
        })
    }

    /// Decodes a document written by [`Stored::encode`].
    pub fn decode(document: &[u8]) -> Result<Self, StoreError> {
        let StoredDocument { state, log_id, membership } = serde_json::from_slice(document)?;
        Ok(Self { state: state.state()?, log_id, membership })
    }

    /// Encodes the whole file.
    pub fn encode_file(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok(store::frame(STATE_VERSION, &self.encode()?))
    }
}

/// Reads the file `catalog` of any version.
pub fn decode_file(bytes: &[u8]) -> Result<Contents, StoreError> {
    match store::checked_document(bytes)? {
        (CATALOG_VERSION, document) => store::decode_document(document).map(Contents::Catalog),
        (STATE_VERSION, document) => Stored::decode(document).map(Contents::State),
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
        let Ok(Contents::State(read)) = decode_file(&stored.encode_file().unwrap()) else {
            panic!("a whole state")
        };
        assert_eq!(format!("{read:?}"), format!("{stored:?}"));
        let file = stored.encode_file().unwrap();
        assert!(decode_file(&file[..file.len() - 1]).is_err());
    }
}
