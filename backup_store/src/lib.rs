//! Snapshots of nodes in a store of objects: a directory, or a bucket of S3.
//!
//! [`upload`](mod@upload), [`download`](mod@download) and [`uploads`] are the operations; a [`Transfer`] is what they share. A
//! [`Store`] keeps objects, [`name`] says where each lies, and a [`manifest`] which of them make a snapshot.
//!
//! Operations run on a thread of their own with a runtime of tokio, never on that of a shard. What they hold in memory is bounded: a part of a
//! file for each that moves at a time, and the manifests of one node.

mod address;
mod directory;
pub mod download;
mod error;
mod local_file;
pub mod manifest;
pub mod name;
mod open;
mod progress;
#[cfg(feature = "s3")]
mod s3;
mod store;
#[cfg(test)]
mod tests;
mod transfer;
pub mod upload;
pub mod uploads;

pub use self::address::{HAS_S3, StoreAddress, StoreOptions};
pub use self::error::StoreError;
pub use self::open::open;
pub use self::progress::{Count, Progress};
pub use self::store::Store;
pub use self::transfer::Transfer;
