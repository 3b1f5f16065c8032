//! The Rust driver against a server that requires TLS and logins.

mod connection;
#[path = "../rust/suite.rs"]
mod suite;
