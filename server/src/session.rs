//! Sessions: the protocol of a client's connection, from its first frame to the statements that it runs.

pub mod connection;
pub mod connection_state;
pub mod errors;
pub mod handshake;
pub mod request;
pub mod respond;
pub mod trace;
