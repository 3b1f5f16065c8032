//! The names of objects, and where each lies.
//!
//! ```text
//! <cluster>/<host id>/snapshots/<snapshot>.manifest
//! <cluster>/<host id>/shard-<n>/<table id>/<file>.<bytes>.<crc32>
//! ```
//!
//! A file of a further data directory lies below `shard-<n>/directory-<k>/<table id>/`. Size and checksum are part of the name of a file's
//! object: one of the same name has the same contents, so a file that is in several snapshots is stored once.
//!
//! Invariant: a name has letters, digits, `-`, `_`, `.`, `=` and `/` only, and no part of it is empty or begins with a dot. Other bytes of the
//! names of clusters and files are written as `=` and two hex digits.

use std::fmt::Write;
use std::path::{Component, Path};

/// The suffix of the manifest of an upload.
const MANIFEST_SUFFIX: &str = ".manifest";
const MANIFEST_FOLDER: &str = "snapshots";

/// A name as a part of an object's name.
pub fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        let is_plain =
            byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || (byte == b'.' && index > 0);
        if is_plain {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "={byte:02x}");
        }
    }
    text
}

/// The inverse of [`encoded`]. `None`: no such name.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (encoded(&name) == text).then_some(name)
}

/// Where the objects of a node lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFolder {
    /// With a `/` at its end.
    prefix: String,
}

impl HostFolder {
    pub fn new(cluster: &str, host_id: &str) -> Self {
        Self { prefix: format!("{}/{}/", encoded(cluster), encoded(host_id)) }
    }

    /// The name of the manifest of a snapshot.
    pub fn manifest(&self, snapshot: &str) -> String {
        format!("{}{}{MANIFEST_SUFFIX}", self.manifests(), encoded(snapshot))
    }

    /// The folder of the manifests.
    pub fn manifests(&self) -> String {
        format!("{}{MANIFEST_FOLDER}/", self.prefix)
    }

    /// The snapshot whose manifest has this name.
    pub fn snapshot_of(&self, object: &str) -> Option<String> {
        let name = object.strip_prefix(&self.manifests())?.strip_suffix(MANIFEST_SUFFIX)?;
        decoded(name)
    }

    /// The name of the object of a file.
    pub fn file(&self, path: &str, bytes: u64, crc32: u32) -> String {
        let parts: Vec<String> = path.split('/').map(encoded).collect();
        format!("{}{}.{bytes}.{crc32:08x}", self.prefix, parts.join("/"))
    }

    /// The folder of the files at a path.
    pub fn files_at(&self, path: &str) -> String {
        let parts: Vec<String> = path.split('/').map(encoded).collect();
        format!("{}{}/", self.prefix, parts.join("/"))
    }

    /// Whether an object is that of a file.
    pub fn is_file(&self, object: &str) -> bool {
        object.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with("shard-"))
    }

    /// The folder of everything.
    pub fn all(&self) -> &str {
        &self.prefix
    }
}

/// The folder of the hosts of a cluster.
pub fn cluster_folder(cluster: &str) -> String {
    format!("{}/", encoded(cluster))
}

/// Whether a path of a manifest stays below the directory that it is appended to.
pub fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && !path.contains(['\\', '\0'])
        && path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, text) in [
            ("my_cluster-1.2", "my_cluster-1.2"),
            ("..", "=2e."),
            ("a/b c=", "a=2fb=20c=3d"),
            ("é", "=c3=a9"),
        ] {
            assert_eq!(encoded(name), text);
            assert_eq!(decoded(text).as_deref(), Some(name));
        }
        for text in ["=", "=4", "=zz", "=41", "a/b", "=ff", "=2E."] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn objects_are_named_by_what_identifies_them() {
        let folder = HostFolder::new("shop 1", "7f3c");
        assert_eq!(folder.manifest("monday"), "shop=201/7f3c/snapshots/monday.manifest");
        assert_eq!(folder.snapshot_of(&folder.manifest("a b")).as_deref(), Some("a b"));
        assert_eq!(folder.snapshot_of("shop=201/7f3c/snapshots/monday"), None);
        let object = folder.file("shard-0/07/0000000001-data.sst", 512, 0xAB);
        assert_eq!(object, "shop=201/7f3c/shard-0/07/0000000001-data.sst.512.000000ab");
        assert!(object.starts_with(&folder.files_at("shard-0/07")));
    }

    #[test]
    fn paths_do_not_leave_their_directory() {
        assert!(is_inside("shard-0/07/0000000001-data.sst"));
        for path in ["", "/etc/passwd", "../a", "a/../b", "a//b", "a/./b", "a\\b", "a/.b", "a/"] {
            assert!(!is_inside(path), "{path}");
        }
    }
}
