//! TLS for the driver: a port of this process on the loopback address that leads to the node through TLS.
//!
//! The driver has TLS only together with a second library of cryptography, so it is given a plain connection within the process.
//!
//! Invariants: the port serves sockets of this very process and no others; every connection through it is encrypted and its
//! certificate checked; it is closed when the relay is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;

use helenus_tls::error::TlsError;
use helenus_tls::material;
use helenus_tls::stream::{self, Stream};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::error::ShellError;
use crate::target::{Target, TlsFiles, format_address};

/// OPTIONS of the native protocol, version 4: every node answers it, also before a login.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

/// The port; it is served until this is dropped.
pub struct Relay {
    pub address: SocketAddr,
    _open: oneshot::Sender<()>,
}

/// What connections to a node are made with.
#[derive(Clone)]
struct Way {
    node: SocketAddr,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Relay {
    /// Opens a port that leads to an address of the target, if the target asks for TLS, after a first connection has shown that it is served.
    pub async fn open(target: &Target, node: SocketAddr) -> Result<Option<Self>, ShellError> {
        let Some(files) = &target.tls else { return Ok(None) };
        if !cfg!(target_os = "linux") {
            return Err(ShellError::Usage("TLS is there on Linux only".to_owned()));
        }
        let config = config(files).map_err(|error| ShellError::Usage(error.to_string()))?;
        let refused = |error: &dyn std::fmt::Display| {
            let place = format_address(&target.host, target.port);
            ShellError::Connection(format!("no TLS connection with {place}: {error}"))
        };
        let name = ServerName::try_from(target.host.clone()).unwrap_or_else(|_| node.ip().into());
        let way = Way { node, config, name };
        let (told, outcome) = oneshot::channel();
        let (open, closed) = oneshot::channel();
        let (failed, failure) = mpsc::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => {
                    tokio::task::LocalSet::new().block_on(&runtime, relay(way, told, closed));
                }
                // The one that waits learns it when the thread has ended.
                Err(error) => drop(failed.send(error)),
            }
        };
        std::thread::Builder::new().name("tls".to_owned()).spawn(serve).map_err(ShellError::Startup)?;
        match outcome.await {
            Ok(Ok(address)) => Ok(Some(Self { address, _open: open })),
            Ok(Err(error)) => Err(refused(&error)),
            Err(_) => Err(ShellError::Startup(
                failure.recv().unwrap_or_else(|_| io::Error::other("the thread for TLS has ended")),
            )),
        }
    }
}

fn config(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let own = files.certificate.as_deref().zip(files.key.as_deref());
    material::for_program(&files.authorities, own, files.checks_name, material::now_seconds())
}

async fn relay(way: Way, told: oneshot::Sender<io::Result<SocketAddr>>, closed: oneshot::Receiver<()>) {
    let opened = async {
        try_out(&way).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok((listener.local_addr()?, listener))
    };
    let (address, listener) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            // Whoever asked may have given up.
            let _ = told.send(Err(error));
            return;
        }
    };
    if told.send(Ok(address)).is_err() {
        return;
    }
    let serving = async {
        loop {
            let Ok((plain, peer)) = listener.accept().await else { continue };
            if is_own(peer, address) {
                tokio::task::spawn_local(carry(way.clone(), plain));
            }
        }
    };
    tokio::select! {
        () = serving => {}
        _ = closed => {}
    }
}

async fn connect(way: &Way) -> io::Result<Stream> {
    let socket = TcpStream::connect(way.node).await?;
    socket.set_nodelay(true)?;
    stream::connect_to(socket, way.config.clone(), way.name.clone()).await
}

/// Has the node answer once: whether it accepts the certificate of this side it tells only after the handshake.
async fn try_out(way: &Way) -> io::Result<()> {
    let mut stream = connect(way).await?;
    stream.write_all(&OPTIONS).await?;
    stream.flush().await?;
    stream.read_u8().await.map(drop)
}

async fn carry(way: Way, mut plain: TcpStream) {
    // The driver sees the end of its connection, and makes another one.
    if let Ok(mut encrypted) = connect(&way).await {
        let _ = plain.set_nodelay(true);
        let _ = copy_bidirectional(&mut plain, &mut encrypted).await;
    }
}

/// Whether the socket at the other end of a connection within this machine is one of this process.
fn is_own(peer: SocketAddr, own: SocketAddr) -> bool {
    let Ok(table) = std::fs::read_to_string("/proc/self/net/tcp") else { return false };
    let Some(inode) = table.lines().skip(1).find_map(|line| inode_of(line, peer, own)) else { return false };
    let name = format!("socket:[{inode}]");
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    open.flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == name.as_str()))
}

/// The number of a socket in a line of the kernel's table, if it is the one with these ends.
fn inode_of(line: &str, local: SocketAddr, remote: SocketAddr) -> Option<&str> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let is = |word: Option<&str>, address: SocketAddr| {
        let SocketAddr::V4(address) = address else { return false };
        let number = u32::from_ne_bytes(address.ip().octets());
        word.is_some_and(|word| word.eq_ignore_ascii_case(&format!("{number:08X}:{:04X}", address.port())))
    };
    (is(words.next(), local) && is(words.next(), remote)).then(|| words.nth(6)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_this_process_are_known_from_those_of_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = std::net::TcpStream::connect(address).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        assert!(is_own(peer, address));
        assert!(!is_own(SocketAddr::new(peer.ip(), peer.port().wrapping_add(1)), address));
        drop(own);
    }
}
