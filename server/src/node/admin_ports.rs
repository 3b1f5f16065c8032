//! Where a node is administered: a Unix socket, a port on a loopback address, and an address for metrics and health.
//!
//! Invariants:
//! * The socket's file is usable by the node's own user only, from before anything can connect to it.
//! * A file of a socket on which another process listens is not replaced, nor is any other file.
//! * What is not configured does not keep the node from starting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helenus_admin::socket::{SOCKET_FILE, SocketAddress};
use helenus_config::{Config, DEFAULT_HTTP_PORT};
use helenus_execution::shard::context::NodeShared;
use helenus_observe::http::{self, HttpServer};
use helenus_observe::{Access, Admin};

use super::listeners::{listen, local_address};
use crate::admin::NodeAdmin;
use crate::node::error::StartError;

/// Connections to the socket that wait to be accepted.
const SOCKET_BACKLOG: i32 = 128;

/// Bound ports, at which nothing is served yet.
pub struct AdminPorts {
    socket: Option<BoundSocket>,
    http: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

/// The running servers. Dropping them stops them.
pub struct AdminServers {
    servers: Vec<HttpServer>,
    /// Removed when the servers have stopped.
    _socket_file: Option<SocketFile>,
    http_address: Option<SocketAddr>,
}

impl AdminPorts {
    /// Binds what the settings name. The data directory must be locked.
    pub fn bind(config: &Config) -> Result<Self, StartError> {
        let metrics = config.metrics_listen.map(listen).transpose()?;
        let http = if config.http_enabled { bind_http(config)? } else { None };
        Ok(Self { socket: bind_socket(config)?, http, metrics })
    }

    /// Serves the node.
    pub fn serve(self, node: &Arc<NodeShared>) -> Result<AdminServers, StartError> {
        let admin: Arc<dyn Admin> = Arc::new(NodeAdmin::new(node.clone()));
        let mut servers = Vec::new();
        let mut serve = |listener: http::Listener, access| {
            let server = http::serve(listener, access, admin.clone()).map_err(StartError::Thread)?;
            servers.push(server);
            Ok::<(), StartError>(())
        };
        let mut socket_file = None;
        if let Some(BoundSocket { listener, file }) = self.socket {
            tracing::info!(path = %file.path.display(), "administration: Unix socket");
            socket_file = Some(file);
            serve(listener.into(), Access::Socket)?;
        }
        let mut http_address = None;
        if let Some(listener) = self.http {
            let address = local_address(&listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
            tracing::info!(%address, "metrics, health and administration");
            http_address = Some(address);
            serve(listener.into(), port_access(&node.config))?;
        }
        if let Some(listener) = self.metrics {
            let address = local_address(&listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
            tracing::info!(%address, "metrics and health, for everybody who reaches this address");
            serve(listener.into(), Access::Monitoring)?;
        }
        Ok(AdminServers { servers, _socket_file: socket_file, http_address })
    }
}

impl AdminServers {
    /// The address of the loopback port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Stops listening, and waits a few seconds at most until answers in progress are sent.
    pub fn stop(self) {
        self.servers.into_iter().for_each(HttpServer::stop);
    }
}

/// What the loopback port serves: every account of the machine reaches it.
fn port_access(config: &Config) -> Access {
    if config.authenticator.requires_login() { Access::Reports } else { Access::Port }
}

/// The address of the loopback port. Nodes at several loopback addresses of a machine have one each, unless a port is configured.
fn http_address(config: &Config) -> SocketAddr {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match (config.http_port, config.listen.ip()) {
        (Some(port), _) => SocketAddr::new(local, port),
        (None, ip) if ip.is_loopback() => SocketAddr::new(ip, DEFAULT_HTTP_PORT),
        (None, _) => SocketAddr::new(local, DEFAULT_HTTP_PORT),
    }
}

fn bind_http(config: &Config) -> Result<Option<TcpListener>, StartError> {
    let address = http_address(config);
    match listen(address) {
        Err(StartError::Listen { source, .. })
            if config.http_port.is_none() && source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!(
                %address,
                "another program has this port: the node is administered over its Unix socket only; set `http_port` to a free port"
            );
            Ok(None)
        }
        bound => bound.map(Some),
    }
}

fn bind_socket(config: &Config) -> Result<Option<BoundSocket>, StartError> {
    let path = match &config.admin_socket {
        Some(path) if path.as_os_str().is_empty() => return Ok(None),
        Some(path) => path.clone(),
        None => config.data_dir.join(SOCKET_FILE),
    };
    match BoundSocket::bind(&path) {
        Ok(bound) => Ok(Some(bound)),
        Err(error) if config.admin_socket.is_none() => {
            tracing::warn!(
                path = %path.display(), %error,
                "the Unix socket for administration cannot be made; set `admin_socket` to another path"
            );
            Ok(None)
        }
        Err(source) => Err(StartError::AdminSocket { path, source }),
    }
}

/// A socket that listens, and its file.
struct BoundSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket of this process, which is removed when this is dropped.
struct SocketFile {
    path: PathBuf,
    /// The numbers of its device and of the file there: another process may have put its own in this place.
    id: (u64, u64),
}

impl BoundSocket {
    fn bind(path: &Path) -> io::Result<Self> {
        let address = SocketAddress::of(path)?;
        remove_stale(path, address.path())?;
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.bind(&socket2::SockAddr::unix(address.path())?)?;
        let file = SocketFile { path: path.to_owned(), id: file_id(path)? };
        // Nobody can connect before it listens.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        socket.listen(SOCKET_BACKLOG)?;
        Ok(Self { listener: socket.into(), file })
    }
}

/// Removes the file of a socket on which nobody listens any more: the process was killed.
fn remove_stale(path: &Path, address: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is another file, which is no socket",
        ));
    }
    match UnixStream::connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let removed = match file_id(&self.path) {
            Ok(id) if id == self.id => std::fs::remove_file(&self.path),
            // It is gone, or another process's.
            _ => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "the file of a Unix socket stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use helenus_config::Authenticator;

    use super::*;

    #[test]
    fn nodes_on_several_loopback_addresses_have_a_port_each() {
        let address = |listen: &str, http_port| {
            http_address(&Config { listen: listen.parse().unwrap(), http_port, ..Config::default() })
                .to_string()
        };
        assert_eq!(address("127.0.0.1:9042", None), "127.0.0.1:9180");
        assert_eq!(address("127.0.0.2:9042", None), "127.0.0.2:9180");
        assert_eq!(address("[::1]:9042", None), "[::1]:9180");
        assert_eq!(address("10.0.0.1:9042", None), "127.0.0.1:9180");
        assert_eq!(address("0.0.0.0:9042", None), "127.0.0.1:9180");
        assert_eq!(address("127.0.0.2:9042", Some(9181)), "127.0.0.1:9181");
    }

    #[test]
    fn a_port_of_a_node_whose_clients_log_in_changes_nothing() {
        assert_eq!(port_access(&Config::default()), Access::Port);
        let authenticator = Authenticator::PasswordAuthenticator;
        assert_eq!(port_access(&Config { authenticator, ..Config::default() }), Access::Reports);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET_FILE);
        // The file of a process that ended without removing it.
        drop(UnixListener::bind(&path).unwrap());
        let bound = BoundSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = BoundSocket::bind(&path).err().unwrap();
        assert_eq!(refused.to_string(), "another process listens on it");
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "data").unwrap();
        assert!(BoundSocket::bind(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn a_socket_of_another_process_in_its_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET_FILE);
        let bound = BoundSocket::bind(&path).unwrap();
        std::fs::rename(&path, directory.path().join("away")).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
    }
}
