//! What operations on a store share: the store, the rate, how many files move at a time, and the manifests that are there.

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use helenus_io::{Clock, RateLimiter};

use crate::error::StoreError;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::name::HostFolder;
use crate::progress::Progress;
use crate::store::Store;

/// An operation on a store. It runs on one thread.
pub struct Transfer<'a> {
    pub store: &'a dyn Store,
    pub clock: &'a dyn Clock,
    pub limiter: RateLimiter,
    /// Files that move at a time.
    pub parallel: usize,
    pub progress: Progress,
}

impl Transfer<'_> {
    /// Waits until that many bytes may be moved.
    pub(crate) async fn spend(&self, bytes: u64) {
        self.limiter.clone().spend(bytes, self.clock).await;
        self.progress.bytes_moved.add(bytes);
    }

    /// The contents of a small object.
    async fn read(&self, object: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        let mut pieces = self.store.get(object).await?;
        let mut contents = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            if (contents.len() + piece.len()) as u64 > bytes_max {
                return Err(StoreError::Damaged {
                    object: object.to_owned(),
                    store: self.store.address().to_owned(),
                    reason: format!("it has more than {bytes_max} bytes"),
                });
            }
            contents.extend_from_slice(&piece);
        }
        Ok(contents.freeze())
    }

    /// The manifest of a snapshot.
    pub(crate) async fn manifest(&self, folder: &HostFolder, snapshot: &str) -> Result<Manifest, StoreError> {
        let object = folder.manifest(snapshot);
        let contents = self.read(&object, MANIFEST_BYTES_MAX).await?;
        Manifest::decode(&contents, &object, self.store.address())
    }

    /// The snapshots that have manifests.
    pub(crate) async fn snapshots(&self, folder: &HostFolder) -> Result<Vec<String>, StoreError> {
        let found = self.store.list(&folder.manifests()).await?;
        Ok(found.iter().filter_map(|object| folder.snapshot_of(&object.name)).collect())
    }

    #[cold]
    pub(crate) fn unknown(&self, snapshot: &str, of: String) -> StoreError {
        StoreError::UnknownUpload {
            snapshot: snapshot.to_owned(),
            of,
            store: self.store.address().to_owned(),
        }
    }
}
