//! What a store of objects can do.
//!
//! Invariants of every store:
//! * An object is there as a whole, and durably, or not at all. What was cut off leaves none.
//! * Objects are found at once after they were put, and not found after they were deleted.

use std::fmt::Debug;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::error::StoreError;

/// An object of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredObject {
    pub name: String,
    pub bytes: u64,
}

/// The contents of an object, in pieces.
pub type Contents = BoxStream<'static, Result<Bytes, StoreError>>;
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store of objects. Names are as [`crate::name`] has them; a folder is a name with a `/` at its end.
pub trait Store: Debug + Send + Sync {
    /// What errors call it.
    fn address(&self) -> &str;

    /// All objects at and below a folder, by name. A folder that is not there is empty.
    fn list<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<StoredObject>>;

    /// The names of the folders in a folder.
    fn folders<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<String>>;

    /// The bytes of an object, if it is there.
    fn size<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<u64>>;

    /// The contents of an object.
    fn get<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Contents>;

    /// Puts a small object, in place of another one of its name.
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> StoreFuture<'a, ()>;

    /// Begins to put a large object.
    fn begin<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Box<dyn ObjectInParts>>;

    /// Removes an object. One that is not there is no error.
    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;
}

/// An object that is put in parts. It is not there before [`Self::complete`].
pub trait ObjectInParts: Send {
    /// All parts but the last one have the same size, of at least 5 MiB.
    fn part(&mut self, contents: Bytes) -> StoreFuture<'_, ()>;

    fn complete(self: Box<Self>) -> StoreFuture<'static, ()>;

    /// Removes what was put. What cannot be removed stays in the store's own keeping.
    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()>;
}
