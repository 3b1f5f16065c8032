//! Looking at a simulated disk from outside, and changing its files while nothing uses them: what an operator, a backup or a
//! failing medium does.

use std::path::Path;

use super::state::{Entry, Inode, NameChange};
use super::{FileContents, SimulatedDisk};

impl SimulatedDisk {
    /// A file system with these files, all of them durable. `seed` as in [`SimulatedDisk::new`].
    pub fn with_files(seed: u64, files: &FileContents) -> Self {
        let disk = Self::new(seed);
        for (path, contents) in files {
            disk.set_at_rest(path, Some(contents));
        }
        disk
    }

    /// All files with the contents that readers see.
    pub fn files(&self) -> FileContents {
        let state = self.state();
        let mut files = FileContents::new();
        for (path, entry) in &state.names {
            if let Entry::File(number) = entry
                && let Some(inode) = state.inodes.get(number)
            {
                files.insert(path.clone(), inode.current.clone());
            }
        }
        files
    }

    /// Replaces a file by a new one with these contents, or removes it (`None`). The change is durable, and so are the names of all other
    /// files. Missing directories are made. Other names of the old file keep its contents.
    pub fn set_at_rest(&self, path: &Path, contents: Option<&[u8]>) {
        let mut state = self.state();
        if state.names.contains_key(path) {
            state.change_names(NameChange::Remove(path.to_path_buf()));
        }
        if let Some(contents) = contents {
            let ancestors: Vec<_> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
            for directory in ancestors.into_iter().rev() {
                if !state.names.contains_key(&directory) {
                    state.change_names(NameChange::Add(directory, Entry::Directory));
                }
            }
            let number = state.next_inode;
            state.next_inode += 1;
            let (durable, current) = (contents.to_vec(), contents.to_vec());
            state.inodes.insert(number, Inode { durable, current, pending: Vec::new(), reserved: 0 });
            state.change_names(NameChange::Add(path.to_path_buf(), Entry::File(number)));
        }
        state.durable_names = state.names.clone();
        state.journal.clear();
    }
}
