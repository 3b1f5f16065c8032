//! Where a node is administered: a Unix socket, a port on a loopback address or on the network, and an address for metrics and health.
//!
//! Invariants:
//! * The socket's file is usable by the node's own user only, from before anything can connect to it.
//! * A file of a socket on which another process listens is not replaced, nor is any other file.
//! * An address of the port that is no loopback address is served with TLS and logins, or not at all.
//! * What is not configured does not keep the node from starting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helenus_admin::socket::{SOCKET_FILE, SocketAddress};
use helenus_config::{Config, ConfigError};
use helenus_execution::shard::context::NodeShared;
use helenus_observe::http::{self, HttpServer};
use helenus_observe::{Access, Admin};
use helenus_tls::policy::Mode;

use super::listeners::{listen, local_address};
use crate::admin::NodeAdmin;
use crate::node::error::StartError;
use crate::session::encryption::OpenCertificates;

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
            let address = local_address(&listener, node.config.http_address())?;
            let encryption = node.layers.get::<OpenCertificates>().get().of_administration();
            let (mode, access) = (node.config.admin_encryption.mode, port_access(&node.config, address.ip()));
            tracing::info!(%address, tls = ?mode, "metrics, health and administration");
            http_address = Some(address);
            let listener = match encryption {
                Some(encryption) => http::Listener::Tls(listener, mode, encryption),
                None if address.ip().is_loopback() => http::Listener::Tcp(listener),
                None => return Err(unprotected(address)),
            };
            serve(listener, access)?;
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
    /// The address of the port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Stops listening, and waits a few seconds at most until answers in progress are sent.
    pub fn stop(self) {
        self.servers.into_iter().for_each(HttpServer::stop);
    }
}

/// What the port serves: every account of the machine reaches it, or everybody.
fn port_access(config: &Config, ip: IpAddr) -> Access {
    if config.authenticator.requires_login() {
        Access::Roles { opens_health: ip.is_loopback() }
    } else {
        Access::Port
    }
}

fn bind_http(config: &Config) -> Result<Option<TcpListener>, StartError> {
    let address = config.http_address();
    let is_protected =
        config.admin_encryption.mode == Mode::Required && config.authenticator.requires_login();
    if !address.ip().is_loopback() && !is_protected {
        return Err(unprotected(address));
    }
    match listen(address) {
        Err(StartError::Listen { source, .. })
            if config.http_port.is_none()
                && config.http_listen.is_none()
                && source.kind() == io::ErrorKind::AddrInUse =>
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

/// The settings were checked before: this holds whatever they are checked for.
fn unprotected(address: SocketAddr) -> StartError {
    let message = format!("{} is served with TLS and logins only", address.ip());
    ConfigError::Value { key: "http_listen", message }.into()
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
    fn where_clients_log_in_so_do_those_who_administer() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(port_access(&Config::default(), local), Access::Port);
        let authenticator = Authenticator::PasswordAuthenticator;
        let config = Config { authenticator, ..Config::default() };
        assert_eq!(port_access(&config, local), Access::Roles { opens_health: true });
        assert_eq!(port_access(&config, [10, 0, 0, 1].into()), Access::Roles { opens_health: false });
    }

    #[test]
    fn an_address_on_the_network_is_not_bound_without_tls_and_logins() {
        let config = Config { http_listen: Some(([0, 0, 0, 0], 0).into()), ..Config::default() };
        let refused = bind_http(&config).err().unwrap().to_string();
        assert_eq!(refused, "setting 'http_listen': 0.0.0.0 is served with TLS and logins only");
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
