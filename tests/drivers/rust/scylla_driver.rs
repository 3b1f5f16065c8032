//! The Rust driver against a server without TLS; `../rust-tls` runs the same suite with it.

mod connection;
mod suite;
