//! Who may log in and what they may do: the choices that Cassandra names by classes.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The package of Cassandra's classes, which may stand before their names.
const PACKAGE: &str = "org.apache.cassandra.auth.";

/// An enumeration of classes of Cassandra. Their names are read with and without their package.
macro_rules! classes {
    ($($(#[doc = $text:literal])+ $name:ident { $($(#[doc = $variant_text:literal])+ $variant:ident,)+ })+) => {$(
        $(#[doc = $text])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_text])+ $variant,)+
        }

        impl $name {
            /// The name of the class, without its package.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                match text.strip_prefix(PACKAGE).unwrap_or(&text) {
                    $(stringify!($variant) => Ok(Self::$variant),)+
                    _ => Err(D::Error::unknown_variant(&text, &[$(stringify!($variant)),+])),
                }
            }
        }
    )+};
}

classes! {
    /// How clients log in.
    Authenticator {
        /// They do not.
        AllowAllAuthenticator,
        /// With a name and a password.
        PasswordAuthenticator,
        /// With a certificate, whose identity belongs to a role.
        MutualTlsAuthenticator,
        /// With a certificate, or without one with a name and a password.
        MutualTlsWithPasswordFallbackAuthenticator,
    }
    /// Whether statements need permissions.
    Authorizer {
        /// They need none.
        AllowAllAuthorizer,
        /// Those that were granted to the role of the client.
        CassandraAuthorizer,
    }
    /// Where roles are kept.
    RoleManager {
        /// In the metadata of the cluster, shown as the tables of `system_auth`.
        CassandraRoleManager,
    }
    /// Whether roles are bound to data centers.
    NetworkAuthorizer {
        /// They are not.
        AllowAllNetworkAuthorizer,
        /// To those of `ACCESS TO DATACENTERS`.
        CassandraNetworkAuthorizer,
    }
    /// Whether roles are bound to addresses of clients.
    CidrAuthorizer {
        /// They are not.
        AllowAllCIDRAuthorizer,
        /// To those of the groups of `ACCESS FROM CIDRS`.
        CassandraCIDRAuthorizer,
    }
}

/// What becomes of a login from an address that its role may not come from. Cassandra's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CidrAuthorizerMode {
    /// It is logged.
    Monitor,
    /// It is refused.
    Enforce,
}

impl Authenticator {
    /// The name of the class with its package, for clients.
    pub fn class(self) -> String {
        format!("{PACKAGE}{}", self.name())
    }

    /// Whether a client must log in before it may do anything.
    pub fn requires_login(self) -> bool {
        self != Self::AllowAllAuthenticator
    }

    /// Whether a client may log in with a name and a password.
    pub fn takes_passwords(self) -> bool {
        matches!(self, Self::PasswordAuthenticator | Self::MutualTlsWithPasswordFallbackAuthenticator)
    }

    /// Whether a client may log in with a certificate.
    pub fn takes_certificates(self) -> bool {
        matches!(self, Self::MutualTlsAuthenticator | Self::MutualTlsWithPasswordFallbackAuthenticator)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    #[test]
    fn classes_are_named_with_and_without_their_package() {
        let parse = |text: &str| Config::from_toml(text, Path::new("x.toml"));
        let config = parse(
            "authenticator = \"PasswordAuthenticator\"\nauthorizer = \"org.apache.cassandra.auth.CassandraAuthorizer\"\n\
             cidr_authorizer = \"CassandraCIDRAuthorizer\"\ncidr_authorizer_mode = \"ENFORCE\"\n\
             credentials_validity = \"2500ms\"",
        )
        .unwrap();
        config.validate().unwrap();
        assert_eq!(config.authenticator, Authenticator::PasswordAuthenticator);
        assert_eq!(config.authorizer, Authorizer::CassandraAuthorizer);
        assert_eq!(config.cidr_authorizer_mode, CidrAuthorizerMode::Enforce);
        assert_eq!(config.credentials_validity_ms, 2_500);
        let error = parse("authenticator = \"com.example.Mine\"").unwrap_err().to_string();
        assert!(error.contains("unknown variant `com.example.Mine`"), "{error}");
        assert!(error.contains("`MutualTlsWithPasswordFallbackAuthenticator`"), "{error}");
    }

    #[test]
    fn permissions_need_a_login() {
        let config = Config { authorizer: Authorizer::CassandraAuthorizer, ..Config::default() };
        let error = config.validate().unwrap_err().to_string();
        assert_eq!(
            error,
            "setting 'authorizer': AllowAllAuthenticator can't be used with CassandraAuthorizer"
        );
    }
}
