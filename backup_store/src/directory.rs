//! A directory as a store: of another disk, or one that several machines see.
//!
//! Invariants:
//! * An object is written as `.<name>.tmp`, synced, and then gets its name. Names that begin with a dot are no objects.
//! * The directory itself must be there: a disk that is not mounted is not written to.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::StoreError;
use crate::store::{Contents, ObjectInParts, Store, StoreFuture, StoredObject};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A store in a directory.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    root: PathBuf,
    address: String,
}

/// Runs what waits for the disk on a thread beside.
pub(crate) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(StoreError::File {
                action: "work on",
                path: PathBuf::new(),
                source: io::Error::other(error.to_string()),
            }),
        },
    }
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a directory, and those above it, durably, as far as they are missing.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let Some(above) = path.parent() else { return fs::create_dir(path) };
    make_directory(above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    sync_directory(above)
}

impl DirectoryStore {
    pub fn new(root: PathBuf) -> Self {
        Self { address: root.display().to_string(), root }
    }

    fn failed(&self, action: &'static str, object: &str, error: &io::Error) -> StoreError {
        StoreError::Object {
            action,
            object: object.to_owned(),
            store: self.address.clone(),
            reason: error.to_string(),
        }
    }

    fn check_root(&self) -> Result<(), StoreError> {
        if self.root.is_dir() {
            return Ok(());
        }
        let reason = "the directory is not there: it must be made, or its disk mounted".to_owned();
        Err(StoreError::Unusable { store: self.address.clone(), reason })
    }

    /// The objects and folders below a folder, by their names.
    fn walk(&self, folder: &str, found: &mut Vec<StoredObject>) -> io::Result<()> {
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            for (name, metadata) in entries(&self.root.join(&folder))? {
                let name = format!("{folder}{name}");
                if metadata.is_dir() {
                    left.push(name + "/");
                } else {
                    found.push(StoredObject { name, bytes: metadata.len() });
                }
            }
        }
        Ok(())
    }

    /// The place of an object, and that of its contents while they are written.
    fn places(&self, name: &str) -> (PathBuf, PathBuf) {
        let path = self.root.join(name);
        let last = name.rsplit('/').next().unwrap_or(name);
        (path.with_file_name(format!(".{last}.tmp")), path)
    }

    fn start(&self, name: &str) -> Result<Writing, StoreError> {
        self.check_root()?;
        let (temporary, path) = self.places(name);
        let failed = |error: io::Error| self.failed("write", name, &error);
        if let Some(above) = path.parent() {
            make_directory(above).map_err(failed)?;
        }
        // What a former attempt has left there goes.
        let file = File::create(&temporary).map_err(failed)?;
        Ok(Writing { store: self.clone(), name: name.to_owned(), temporary, path, file: Some(file) })
    }
}

/// What lies in a directory, without names that begin with a dot.
fn entries(path: &Path) -> io::Result<Vec<(String, fs::Metadata)>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        match entry.metadata() {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => found.push((name, metadata?)),
        }
    }
    Ok(found)
}

impl Store for DirectoryStore {
    fn address(&self) -> &str {
        &self.address
    }

    fn list<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
        let (store, folder) = (self.clone(), folder.to_owned());
        beside(move || {
            store.check_root()?;
            let mut found = Vec::new();
            store.walk(&folder, &mut found).map_err(|error| store.failed("list", &folder, &error))?;
            found.sort();
            Ok(found)
        })
        .boxed()
    }

    fn folders<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<String>> {
        let (store, folder) = (self.clone(), folder.to_owned());
        beside(move || {
            store.check_root()?;
            let found = entries(&store.root.join(&folder));
            let found = found.map_err(|error| store.failed("list", &folder, &error))?;
            let folders = found.into_iter().filter(|(_, metadata)| metadata.is_dir());
            let mut names: Vec<String> = folders.map(|(name, _)| name).collect();
            names.sort();
            Ok(names)
        })
        .boxed()
    }

    fn size<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<u64>> {
        let (store, name) = (self.clone(), name.to_owned());
        beside(move || {
            store.check_root()?;
            match fs::metadata(store.root.join(&name)) {
                Ok(metadata) => Ok(Some(metadata.len())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(store.failed("look at", &name, &error)),
            }
        })
        .boxed()
    }

    fn get<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Contents> {
        let (store, name) = (self.clone(), name.to_owned());
        async move {
            let (opening, object) = (store.clone(), name.clone());
            let file = beside(move || {
                opening.check_root()?;
                File::open(opening.root.join(&object)).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => StoreError::Missing { object, store: opening.address.clone() },
                    _ => opening.failed("read", &object, &error),
                })
            })
            .await?;
            let pieces = futures::stream::try_unfold(file, move |mut file| {
                let (store, name) = (store.clone(), name.clone());
                beside(move || {
                    let mut piece = Vec::with_capacity(PIECE_BYTES);
                    let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
                    match read.map_err(|error| store.failed("read", &name, &error))? {
                        0 => Ok(None),
                        _ => Ok(Some((Bytes::from(piece), file))),
                    }
                })
            });
            Ok(futures::StreamExt::boxed(pieces))
        }
        .boxed()
    }

    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> StoreFuture<'a, ()> {
        let (store, name) = (self.clone(), name.to_owned());
        beside(move || {
            let mut writing = store.start(&name)?;
            writing.write(&contents)?;
            writing.finish()
        })
        .boxed()
    }

    fn begin<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Box<dyn ObjectInParts>> {
        let (store, name) = (self.clone(), name.to_owned());
        beside(move || {
            let writing = Some(store.start(&name)?);
            Ok(Box::new(DirectoryParts { store, name, writing }) as Box<dyn ObjectInParts>)
        })
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        let (store, name) = (self.clone(), name.to_owned());
        beside(move || {
            store.check_root()?;
            let path = store.root.join(&name);
            let failed = |error: io::Error| store.failed("remove", &name, &error);
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                removed => removed.map_err(failed)?,
            }
            let Some(above) = path.parent() else { return Ok(()) };
            match sync_directory(above) {
                // It was the last one, and another deletion has removed the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                synced => synced.map_err(failed)?,
            }
            // One that is not empty stays.
            let _ = fs::remove_dir(above);
            Ok(())
        })
        .boxed()
    }
}

/// An object that is being written.
struct Writing {
    store: DirectoryStore,
    name: String,
    temporary: PathBuf,
    path: PathBuf,
    /// `None`: it has its name.
    file: Option<File>,
}

impl Writing {
    fn write(&mut self, contents: &[u8]) -> Result<(), StoreError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(contents).map_err(|error| self.store.failed("write", &self.name, &error))
    }

    fn finish(mut self) -> Result<(), StoreError> {
        let finished = || {
            if let Some(file) = &self.file {
                file.sync_all()?;
            }
            fs::rename(&self.temporary, &self.path)?;
            self.path.parent().map_or(Ok(()), sync_directory)
        };
        finished().map_err(|error: io::Error| self.store.failed("write", &self.name, &error))?;
        self.file = None;
        Ok(())
    }
}

impl Drop for Writing {
    /// What is not whole goes; what a killed process leaves, the next attempt replaces.
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// An object in parts.
struct DirectoryParts {
    store: DirectoryStore,
    name: String,
    /// `None`: a part could not be written.
    writing: Option<Writing>,
}

impl DirectoryParts {
    fn take(&mut self) -> Result<Writing, StoreError> {
        let given_up = io::Error::other("a part of it could not be written before");
        self.writing.take().ok_or_else(|| self.store.failed("write", &self.name, &given_up))
    }
}

impl ObjectInParts for DirectoryParts {
    fn part(&mut self, contents: Bytes) -> StoreFuture<'_, ()> {
        async move {
            let mut writing = self.take()?;
            let written = beside(move || {
                writing.write(&contents)?;
                Ok(writing)
            });
            self.writing = Some(written.await?);
            Ok(())
        }
        .boxed()
    }

    fn complete(mut self: Box<Self>) -> StoreFuture<'static, ()> {
        let writing = self.take();
        beside(move || writing?.finish()).boxed()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move { drop(self) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn an_object_is_there_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path().to_owned());
        let mut parts = store.begin("c/h/shard-0/a").await.unwrap();
        parts.part("one".into()).await.unwrap();
        assert_eq!(store.list("c/").await.unwrap(), []);
        assert_eq!(store.size("c/h/shard-0/a").await.unwrap(), None);
        parts.part("two".into()).await.unwrap();
        parts.complete().await.unwrap();
        let listed = store.list("c/h/").await.unwrap();
        assert_eq!(listed, [StoredObject { name: "c/h/shard-0/a".to_owned(), bytes: 6 }]);
        let mut parts = store.begin("c/h/shard-0/b").await.unwrap();
        parts.part("three".into()).await.unwrap();
        parts.abandon().await;
        assert_eq!(std::fs::read_dir(directory.path().join("c/h/shard-0")).unwrap().count(), 1);
        let pieces: Vec<Bytes> = store.get("c/h/shard-0/a").await.unwrap().try_collect().await.unwrap();
        assert_eq!(pieces.concat(), b"onetwo");
        assert_eq!(store.folders("c/").await.unwrap(), ["h"]);
        store.put("c/h/snapshots/m", "x".into()).await.unwrap();
        store.put("c/h/snapshots/m", "longer".into()).await.unwrap();
        assert_eq!(store.size("c/h/snapshots/m").await.unwrap(), Some(6));
        for _ in 0..2 {
            store.delete("c/h/shard-0/a").await.unwrap();
        }
        let missing = store.get("c/h/shard-0/a").await.err().unwrap().to_string();
        assert!(missing.starts_with("the object c/h/shard-0/a is not in the backup store"), "{missing}");
    }

    #[tokio::test]
    async fn objects_of_a_folder_are_deleted_at_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path().to_owned());
        let names: Vec<String> = (0..20).map(|number| format!("c/h/shard-0/{number}")).collect();
        for _ in 0..20 {
            for name in &names {
                store.put(name, "x".into()).await.unwrap();
            }
            futures::future::try_join_all(names.iter().map(|name| store.delete(name))).await.unwrap();
            assert_eq!(store.folders("c/h/").await.unwrap(), [] as [&str; 0]);
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(directory.path().join("mounted"));
        for failed in [
            store.put("c/h/a", "x".into()).await.err(),
            store.list("c/").await.err(),
            store.begin("c/h/a").await.err(),
            store.get("c/h/a").await.err(),
        ] {
            assert!(failed.unwrap().to_string().contains("the directory is not there"));
        }
        assert!(!directory.path().join("mounted").exists());
    }
}
