//! Sessions: what a client's connection says, from its first frame to the statements it runs.

pub mod connection;
pub mod connection_state;
pub mod errors;
pub mod handshake;
pub mod request;
pub mod respond;
pub mod trace;
