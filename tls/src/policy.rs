//! What is asked of connections, as the settings have it.

use serde::{Deserialize, Serialize};

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// None is.
    #[default]
    Off,
    /// Those of peers that begin with TLS.
    Optional,
    /// All are: others are refused.
    Required,
}

/// What is asked of the certificates of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// They are not asked for.
    #[default]
    None,
    /// A client may show one. It must be valid then.
    Optional,
    /// A client without one is refused.
    Required,
}
