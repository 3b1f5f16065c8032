//! The node's own small files by name: identity, catalog, cluster. They are on the engine's disk, so that a simulated
//! node has them on its simulated disk.
//!
//! Invariant: a file is replaced as a whole; after a crash it is the old or the new one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use helenus_engine::io::{Disk, DiskError, DiskRoom};
use tokio::sync::Mutex;

/// The name of the directory of a shard's commit log.
const COMMIT_LOG_DIRECTORY: &str = "commit-log";

/// Small files in one directory.
pub struct NodeFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Held by the present replacement: two replacements of one name would share their temporary file.
    replace_lock: Mutex<()>,
}

impl NodeFiles {
    /// Opens the files in `directory`, which is created if it is missing.
    pub async fn open(disk: Arc<dyn Disk>, directory: PathBuf) -> Result<Self, DiskError> {
        disk.create_directory(&directory).await?;
        // Files that are seen now must stay: an earlier run may have replaced a file and crashed before that was
        // durable.
        disk.sync_directory(&directory).await?;
        Ok(Self { disk, directory, replace_lock: Mutex::new(()) })
    }

    /// The path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The content of a file; `None` if there is none.
    pub async fn load(&self, name: &str) -> Result<Option<Bytes>, DiskError> {
        match self.disk.read(&self.path(name)).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The size of all files below the directory, in bytes, without the commit logs: as Cassandra counts data directories, the files of
    /// snapshots included.
    pub async fn data_bytes(&self) -> Result<u64, DiskError> {
        let mut waiting = vec![self.directory.clone()];
        let mut bytes = 0;
        while let Some(directory) = waiting.pop() {
            let entries = match self.disk.list(&directory).await {
                // A table or a snapshot that was dropped meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let path = directory.join(&entry.name);
                if !entry.is_directory {
                    match self.disk.length(&path).await {
                        Ok(length) => bytes += length,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                } else if entry.name != COMMIT_LOG_DIRECTORY {
                    waiting.push(path);
                }
            }
        }
        Ok(bytes)
    }

    /// The room on the disk of the directory.
    pub async fn room(&self) -> Result<DiskRoom, DiskError> {
        self.disk.room(&self.directory).await
    }

    /// Replaces a file; resolves when the new one is durable.
    pub async fn replace(&self, name: &str, contents: Bytes) -> Result<(), DiskError> {
        let _turn = self.replace_lock.lock().await;
        let path = self.path(name);
        let temporary = path.with_extension("tmp");
        let file = match self.disk.create(&temporary).await {
            // A crash or a failed write has left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(&temporary).await?;
                self.disk.create(&temporary).await?
            }
            created => created?,
        };
        file.write_and_sync_at(0, contents).await?;
        drop(file);
        self.disk.rename(&temporary, &path).await?;
        self.disk.sync_directory(&self.directory).await
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::io::{CrashStyle, SimulatedDisk};

    use super::*;

    #[test]
    fn a_file_is_the_old_or_the_new_one_wherever_a_crash_comes() {
        for crash_after in 0.. {
            let disk = SimulatedDisk::new(crash_after);
            let open = || NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node"));
            let replaced = futures::executor::block_on(async {
                let files = open().await.unwrap();
                files.replace("catalog", Bytes::from_static(b"old")).await.unwrap();
                disk.crash_at(disk.operations() + crash_after);
                files.replace("catalog", Bytes::from_static(b"new")).await
            });
            for style in CrashStyle::ALL {
                disk.restart(style, crash_after);
            }
            let found =
                futures::executor::block_on(async { open().await.unwrap().load("catalog").await.unwrap() });
            match replaced {
                Ok(()) => {
                    assert_eq!(found.as_deref(), Some(&b"new"[..]));
                    return;
                }
                Err(_) => assert!(matches!(found.as_deref(), Some(b"old" | b"new")), "{found:?}"),
            }
        }
    }

    #[test]
    fn the_size_of_the_data_is_that_of_all_files_but_the_logs() {
        let disk = SimulatedDisk::new(1);
        futures::executor::block_on(async {
            let files = NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await.unwrap();
            for (path, length) in
                [("catalog", 5), ("shard-0/tables/t/1-data.sst", 20), ("shard-0/commit-log/segment", 100)]
            {
                let path = files.path(path);
                disk.create_directory(path.parent().unwrap()).await.unwrap();
                disk.create(&path).await.unwrap().reserve(length).await.unwrap();
            }
            assert_eq!(files.data_bytes().await.unwrap(), 25);
        });
    }

    #[test]
    fn leftovers_of_a_crash_do_no_harm() {
        let disk = SimulatedDisk::new(1);
        futures::executor::block_on(async {
            let files = NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await.unwrap();
            assert_eq!(files.load("catalog").await.unwrap(), None);
            disk.create(&files.path("catalog.tmp")).await.unwrap();
            files.replace("catalog", Bytes::from_static(b"new")).await.unwrap();
            assert_eq!(files.load("catalog").await.unwrap().as_deref(), Some(&b"new"[..]));
        });
    }
}
