//! TLS of a node and of its clients: certificates and keys from files, sockets, and an own authority.
//!
//! [`encryption`] holds what was loaded from files and looks at them again when they change. [`stream`] is a socket with or
//! without TLS, which is used as a plain one is. [`names`] reads whom a certificate names, [`verifier`] whether an authority
//! vouches for it. [`authority`] makes certificates for those who have no authority. [`login_slots`] bounds the connections of those who
//! have not logged in, fairly among the [`source`]s that they come from.
//!
//! Invariants: the cryptography is that of `ring`; no private key is logged or shown; what a peer sends before its handshake
//! is complete takes bounded memory.

pub mod authority;
pub mod encryption;
pub mod error;
pub mod files;
pub mod login_slots;
pub mod material;
pub mod names;
pub mod policy;
pub mod source;
pub mod stream;
pub mod verifier;

#[cfg(test)]
mod tests;
