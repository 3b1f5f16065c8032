//! How the suite connects: without TLS and without a login.

use scylla::client::session_builder::SessionBuilder;

pub fn secured(builder: SessionBuilder) -> SessionBuilder {
    builder
}
