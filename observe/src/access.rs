//! What may be asked at an address of a node.

/// What may be asked at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The Unix socket, which the file system protects: everything.
    Socket,
    /// A loopback port of a node whose clients need not log in: everything but what only the socket has.
    Port,
    /// A port of a node whose clients have to log in: what the role that logs in may ask. `opens_health`: metrics, health and version are
    /// for everybody, at a loopback address.
    Roles { opens_health: bool },
    /// An address for machines that watch the node: metrics and health.
    Monitoring,
}
