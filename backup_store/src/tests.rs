//! Operations on a store in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use helenus_io::{ManualClock, RateLimiter};

use crate::directory::DirectoryStore;
use crate::download::{DownloadOrder, Downloaded, download};
use crate::error::StoreError;
use crate::progress::Progress;
use crate::store::{Contents, ObjectInParts, Store, StoreFuture, StoredObject};
use crate::transfer::Transfer;
use crate::upload::{LocalPart, UploadOrder, Uploaded, upload};
use crate::uploads::{ListedUpload, Removed, list, remove};

const HOST: &str = "7f3c";

/// Snapshots of a table on one shard, and a store.
struct Place {
    directory: tempfile::TempDir,
    store: DirectoryStore,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("store")).unwrap();
        let store = DirectoryStore::new(directory.path().join("store"));
        Self { directory, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds a file to a snapshot.
    fn file(&self, snapshot: &str, name: &str, contents: &[u8]) {
        let path = self.path(snapshot).join("07");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(name), contents).unwrap();
    }

    /// A snapshot has a file of another one.
    fn link(&self, from: &str, into: &str, name: &str) {
        fs::create_dir_all(self.path(into).join("07")).unwrap();
        fs::hard_link(self.path(from).join("07").join(name), self.path(into).join("07").join(name)).unwrap();
    }

    fn order(&self, snapshot: &str) -> UploadOrder {
        let part = LocalPart {
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            id: "07".to_owned(),
            shard: 0,
            created_at: "2026-01-31T11:00:00.000Z".to_owned(),
            directories: vec![self.path(snapshot).join("07"), self.path(snapshot).join("further")],
        };
        UploadOrder {
            cluster: "shop".to_owned(),
            host_id: HOST.to_owned(),
            snapshot: snapshot.to_owned(),
            uploaded_at: "2026-01-31T12:00:00.000Z".to_owned(),
            parts: vec![part],
        }
    }

    async fn upload(&self, snapshot: &str) -> Result<Uploaded, StoreError> {
        self.upload_to(&self.store, snapshot).await
    }

    async fn upload_to(&self, store: &dyn Store, snapshot: &str) -> Result<Uploaded, StoreError> {
        let clock = ManualClock::new(0);
        upload(&transfer(store, &clock), self.order(snapshot)).await
    }

    async fn download(&self, snapshot: &str, into: &str) -> Result<Downloaded, StoreError> {
        let clock = ManualClock::new(0);
        let order = DownloadOrder {
            cluster: "shop".to_owned(),
            snapshot: snapshot.to_owned(),
            host_id: None,
            keyspace: Some("k".to_owned()),
            table: None,
            into: self.path(into),
        };
        download(&transfer(&self.store, &clock), order).await
    }

    async fn remove(&self, snapshot: &str) -> Result<Removed, StoreError> {
        let clock = ManualClock::new(0);
        remove(&transfer(&self.store, &clock), "shop", HOST, snapshot).await
    }

    async fn listed(&self) -> Vec<ListedUpload> {
        let clock = ManualClock::new(0);
        list(&transfer(&self.store, &clock), "shop").await.unwrap()
    }

    /// The objects that are no manifests.
    async fn files(&self) -> Vec<StoredObject> {
        let mut objects = self.store.list("shop/").await.unwrap();
        objects.retain(|object| !object.name.contains("/snapshots/"));
        objects
    }
}

fn transfer<'a>(store: &'a dyn Store, clock: &'a ManualClock) -> Transfer<'a> {
    Transfer { store, clock, limiter: RateLimiter::new(None), parallel: 1, progress: Progress::default() }
}

/// A store that fails at an object.
#[derive(Debug)]
struct Failing<'a> {
    below: &'a DirectoryStore,
    at: &'static str,
}

impl Failing<'_> {
    fn fails(&self, name: &str) -> Option<StoreError> {
        name.contains(self.at).then(|| StoreError::Object {
            action: "write",
            object: name.to_owned(),
            store: "s".to_owned(),
            reason: "cut off".to_owned(),
        })
    }
}

impl Store for Failing<'_> {
    fn address(&self) -> &str {
        self.below.address()
    }

    fn list<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
        self.below.list(folder)
    }

    fn folders<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<String>> {
        self.below.folders(folder)
    }

    fn size<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<u64>> {
        self.below.size(name)
    }

    fn get<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Contents> {
        self.below.get(name)
    }

    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> StoreFuture<'a, ()> {
        match self.fails(name) {
            Some(error) => futures::future::ready(Err(error)).boxed(),
            None => self.below.put(name, contents),
        }
    }

    fn begin<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Box<dyn ObjectInParts>> {
        async move {
            let error = self.fails(name);
            let parts = self.below.begin(name).await?;
            Ok(match error {
                None => parts,
                Some(error) => Box::new(FailingParts { parts, error: Some(error) }),
            })
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        self.below.delete(name)
    }
}

/// An object whose second part fails.
struct FailingParts {
    parts: Box<dyn ObjectInParts>,
    error: Option<StoreError>,
}

impl ObjectInParts for FailingParts {
    fn part(&mut self, contents: Bytes) -> StoreFuture<'_, ()> {
        match self.error.take_if(|_| contents.len() < 8 << 20) {
            Some(error) => futures::future::ready(Err(error)).boxed(),
            None => self.parts.part(contents),
        }
    }

    fn complete(self: Box<Self>) -> StoreFuture<'static, ()> {
        self.parts.complete()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.parts.abandon()
    }
}

fn flip_a_bit(path: &Path) {
    let mut contents = fs::read(path).unwrap();
    contents[0] ^= 1;
    fs::write(path, contents).unwrap();
}

#[tokio::test]
async fn what_was_uploaded_comes_back() {
    let place = Place::new();
    let large: Vec<u8> = (0..(17 << 20) + 5).map(|number: u32| (number % 251) as u8).collect();
    place.file("monday", "0000000001-data.sst", &large);
    place.file("monday", "schema.json", b"{}");
    fs::create_dir_all(place.path("monday/further")).unwrap();
    fs::write(place.path("monday/further/0000000001-data.sst"), b"of a further directory").unwrap();
    let bytes = large.len() as u64 + 2 + 22;
    let expected = Uploaded { tables: 1, files: 3, bytes, new_files: 3, new_bytes: bytes };
    assert_eq!(place.upload("monday").await.unwrap(), expected);
    let again = Uploaded { new_files: 0, new_bytes: 0, ..expected };
    assert_eq!(place.upload("monday").await.unwrap(), again);
    let downloaded = place.download("monday", "back").await.unwrap();
    assert_eq!((downloaded.hosts.as_slice(), downloaded.new_bytes), (&[HOST.to_owned()] as &[_], bytes));
    let back = place.path("back").join(HOST).join("shard-0");
    assert_eq!(fs::read(back.join("07/0000000001-data.sst")).unwrap(), large);
    assert_eq!(fs::read(back.join("directory-1/07/0000000001-data.sst")).unwrap(), b"of a further directory");
    assert_eq!(place.download("monday", "back").await.unwrap().new_files, 0);
    fs::write(back.join("07/schema.json"), b"[]").unwrap();
    let occupied = place.download("monday", "back").await.unwrap_err().to_string();
    assert!(occupied.contains("schema.json is there with other contents"), "{occupied}");
}

#[tokio::test]
async fn an_upload_that_was_cut_off_goes_on_and_is_not_there_before() {
    let place = Place::new();
    place.file("monday", "0000000001-data.sst", b"first");
    place.file("monday", "0000000002-data.sst", &vec![7; (8 << 20) + 1]);
    for (at, left) in [("0000000002", 1), (".manifest", 2)] {
        let failing = Failing { below: &place.store, at };
        let error = place.upload_to(&failing, "monday").await.unwrap_err().to_string();
        assert!(error.contains(at) && error.ends_with("cut off"), "{error}");
        assert_eq!(place.files().await.len(), left);
        assert!(place.listed().await.is_empty());
        let unknown = place.download("monday", "back").await.unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no upload of a snapshot 'monday' with the keyspace k"),
            "{unknown}"
        );
    }
    assert_eq!(place.upload("monday").await.unwrap().new_files, 0);
    assert_eq!(place.listed().await.len(), 1);
}

#[tokio::test]
async fn a_file_of_several_snapshots_is_kept_once_and_as_long_as_one_needs_it() {
    let place = Place::new();
    place.file("monday", "0000000001-data.sst", b"first");
    place.file("monday", "0000000002-data.sst", b"second");
    place.link("monday", "tuesday", "0000000002-data.sst");
    place.file("tuesday", "0000000003-data.sst", b"third");
    place.upload("monday").await.unwrap();
    let uploaded = place.upload("tuesday").await.unwrap();
    assert_eq!((uploaded.files, uploaded.new_files, uploaded.new_bytes), (2, 1, 5));
    assert_eq!(place.files().await.len(), 3);
    assert_eq!(place.remove("monday").await.unwrap(), Removed { objects: 1, bytes: 5 });
    place.download("tuesday", "back").await.unwrap();
    let listed: Vec<_> = place.listed().await.into_iter().map(|upload| upload.snapshot).collect();
    assert_eq!(listed, ["tuesday"]);
    assert_eq!(place.remove("tuesday").await.unwrap().objects, 2);
    assert!(place.files().await.is_empty());
    assert!(
        place.remove("tuesday").await.unwrap_err().to_string().contains("no upload of a snapshot 'tuesday'")
    );
}

#[tokio::test]
async fn a_removal_takes_what_uploads_that_were_cut_off_have_left() {
    let place = Place::new();
    place.file("monday", "0000000001-data.sst", b"first");
    let failing = Failing { below: &place.store, at: ".manifest" };
    place.upload_to(&failing, "monday").await.unwrap_err();
    assert_eq!(place.remove("monday").await.unwrap().objects, 1);
}

#[tokio::test]
async fn damage_is_named_and_nothing_of_it_is_used() {
    let place = Place::new();
    place.file("monday", "0000000001-data.sst", b"first");
    place.file("tuesday", "0000000002-data.sst", b"second");
    place.upload("monday").await.unwrap();
    place.upload("tuesday").await.unwrap();
    let object = place.files().await.remove(0).name;
    flip_a_bit(&place.path("store").join(&object));
    let error = place.download("monday", "back").await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("the object {object} of the backup store")), "{error}");
    assert!(error.contains("is damaged: its checksum is"), "{error}");
    let back = place.path("back").join(HOST).join("shard-0/07");
    assert_eq!(fs::read_dir(back).unwrap().count(), 0);
    fs::remove_file(place.path("store").join(&object)).unwrap();
    let error = place.download("monday", "back").await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("the object {object} is not in the backup store")), "{error}");
    // It was put again under its name.
    assert_eq!(place.upload("monday").await.unwrap().new_files, 1);
    let manifest = place.path("store/shop").join(HOST).join("snapshots/monday.manifest");
    flip_a_bit(&manifest);
    let listed = place.listed().await;
    assert!(listed[0].tables.as_ref().unwrap_err().to_string().contains("monday.manifest"));
    assert!(listed[1].tables.is_ok());
    // What it names is not known: nothing may go but its own upload.
    let error = place.remove("tuesday").await.unwrap_err().to_string();
    assert!(error.contains("monday.manifest") && error.contains("is damaged"), "{error}");
    assert_eq!(place.files().await.len(), 2);
    assert!(place.upload("monday").await.unwrap_err().to_string().contains("monday.manifest"));
    place.remove("monday").await.unwrap();
    assert_eq!(place.files().await.len(), 1);
}

#[tokio::test]
async fn tables_of_a_snapshot_may_be_uploaded_one_after_the_other() {
    let place = Place::new();
    place.file("monday", "0000000001-data.sst", b"first");
    place.upload("monday").await.unwrap();
    fs::rename(place.path("monday/07"), place.path("monday/08")).unwrap();
    let mut order = place.order("monday");
    order.parts[0] = LocalPart {
        table: "u".to_owned(),
        id: "08".to_owned(),
        directories: vec![place.path("monday/08")],
        ..order.parts[0].clone()
    };
    let clock = ManualClock::new(0);
    upload(&transfer(&place.store, &clock), order).await.unwrap();
    let (_, tables) = place.listed().await.remove(0).tables.unwrap();
    assert_eq!(tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t", "u"]);
}

/// Another task removes a snapshot file by file, or a shard's part of it is gone.
#[tokio::test]
async fn what_is_left_of_a_snapshot_does_not_replace_its_upload() {
    let place = Place::new();
    place.file("monday", "schema.json", b"schema");
    place.file("monday", "7.db", b"rows");
    place.file("monday", ".nfs0001", b"left by a file system");
    assert_eq!(place.upload("monday").await.unwrap().files, 2);
    let before = place.files().await;
    fs::remove_file(place.path("monday/07/7.db")).unwrap();
    let error = place.upload("monday").await.unwrap_err().to_string();
    assert!(error.contains("7.db") && error.contains("left as it is"), "{error}");
    fs::rename(place.path("monday/07"), place.path("monday/07.tmp")).unwrap();
    let error = place.upload("monday").await.unwrap_err().to_string();
    assert!(error.contains("no files of the table 07"), "{error}");
    assert_eq!(place.files().await, before);
    place.download("monday", "back").await.unwrap();
}
