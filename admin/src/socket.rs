//! The Unix socket of a node, on which it is administered: its place, and an address for it whatever the length of its path.

use std::io;
use std::path::{Path, PathBuf};

/// The name of the socket in the data directory.
pub const SOCKET_FILE: &str = "helenus.sock";
/// The data directory of a node that is given none.
pub const DEFAULT_DATA_DIR: &str = "helenus-data";

/// The most bytes of a path in a socket's address, which ends with a zero.
const PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A path for a socket's address. It leads to the socket as long as this value lives.
#[derive(Debug)]
pub struct SocketAddress {
    path: PathBuf,
    /// The socket's directory, if the path goes through the open file.
    _directory: Option<std::fs::File>,
}

impl SocketAddress {
    /// The address of the socket at a path. A path that is too long goes through the open directory, where the system has such paths.
    #[allow(
        clippy::disallowed_methods,
        reason = "a directory is opened for its number, not for its contents"
    )]
    pub fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let too_long = || {
            let text = format!("the path of a socket has at most {PATH_BYTES_MAX} bytes on this system");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(too_long()) };
        if !cfg!(target_os = "linux") {
            return Err(too_long());
        }
        let directory = std::fs::File::open(directory)?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
        let path = Path::new("/proc/self/fd").join(number.to_string()).join(name);
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(too_long());
        }
        Ok(Self { path, _directory: Some(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_reached_by_a_path_of_any_length() {
        let base = std::env::temp_dir().join(format!("helenus-admin-{}", std::process::id()));
        let deep = base.join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join(SOCKET_FILE);
        let listener = UnixListener::bind(SocketAddress::of(&path).unwrap().path()).unwrap();
        assert!(path.exists());
        UnixStream::connect(SocketAddress::of(&path).unwrap().path()).unwrap();
        listener.accept().unwrap();
        let short = Path::new("helenus-data/helenus.sock");
        assert_eq!(SocketAddress::of(short).unwrap().path(), short);
        assert!(SocketAddress::of(&deep.join("f".repeat(120))).is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
