//! How a command authenticates at a node's administration port: a role with its password, or a client certificate; and which certificate
//! authorities it trusts.
//!
//! Invariants: a password comes from standard input or a file, never from the command line; it goes to https URLs, and over plain HTTP to
//! loopback addresses only.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::password::{Password, PasswordError};
use crate::place::Place;

/// The variable with the path of the file that has the password.
pub const PASSWORD_FILE_VARIABLE: &str = "HELENUS_ADMIN_PASSWORD_FILE";

/// The choices of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct LoginArguments {
    /// Logs in as this role, at the node's port. The password is one line of standard input, or of a file.
    #[arg(long, value_name = "NAME", global = true)]
    user: Option<String>,
    /// The file with the password of --user. Also `HELENUS_ADMIN_PASSWORD_FILE`.
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,
    /// For https URLs: the certificates of the authorities that vouch for the node, in PEM.
    #[arg(long, value_name = "FILE", global = true)]
    authority: Option<PathBuf>,
    /// For https URLs: a certificate that is shown to the node, in PEM; with --key.
    #[arg(long, value_name = "FILE", global = true)]
    certificate: Option<PathBuf>,
    /// The private key of --certificate, in PEM.
    #[arg(id = "private_key", long = "key", value_name = "FILE", global = true)]
    key: Option<PathBuf>,
}

/// What is shown to a node, and whom it must be vouched for by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    credentials: Option<(String, Password)>,
    pub(crate) tls: Option<TlsFiles>,
}

/// Files for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    /// A certificate and its key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

/// The reason why nobody is asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(
        "over the Unix socket nobody logs in: --user, --authority and --certificate are for --url and --http-port"
    )]
    Socket,
    #[error("--password-file is for the password of --user, which is not given")]
    NoUser,
    #[error("a role that logs in with a password has a name without ':'")]
    Name,
    #[error("--certificate and --key are given together, with --authority")]
    Certificate,
    #[error("--authority is for https: name the node with --url https://HOST:PORT")]
    NotTls,
    #[error("https needs --authority, the file of the authorities that vouch for the node")]
    NoAuthority,
    #[error("a password is not sent to {0} over plain HTTP: https, or a loopback address, is needed")]
    Plain(String),
}

impl LoginArguments {
    /// The place at which this logs in, and what is shown there. Reads the password.
    pub(crate) fn at(
        &self,
        place: Place,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(Place, Login), LoginError> {
        let tls = self.tls()?;
        if self.user.is_none() && self.password_file.is_some() {
            return Err(LoginError::NoUser);
        }
        let place = match place {
            Place::Socket(_) if self.user.is_some() || tls.is_some() => return Err(LoginError::Socket),
            // Roles are for the port.
            Place::Either(_, url) if self.user.is_some() || tls.is_some() => Place::Url(url),
            place => place,
        };
        if let Place::Url(url) = &place {
            match (is_tls(url), tls.is_some()) {
                (true, false) => return Err(LoginError::NoAuthority),
                (false, true) => return Err(LoginError::NotTls),
                (false, false) if self.user.is_some() && !is_loopback(url) => {
                    return Err(LoginError::Plain(url.clone()));
                }
                _ => {}
            }
        }
        let Some(name) = self.user.clone() else { return Ok((place, Login { credentials: None, tls })) };
        if name.is_empty() || name.contains(':') {
            return Err(LoginError::Name);
        }
        let file = self.password_file.clone().or_else(|| variable(PASSWORD_FILE_VARIABLE).map(PathBuf::from));
        let password = match file {
            Some(path) => Password::of_file(&path)?,
            None => Password::of_standard_input(&name)?,
        };
        Ok((place, Login { credentials: Some((name, password)), tls }))
    }

    fn tls(&self) -> Result<Option<TlsFiles>, LoginError> {
        let own = match (self.certificate.clone(), self.key.clone()) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(LoginError::Certificate),
        };
        match self.authority.clone() {
            None if own.is_some() => Err(LoginError::Certificate),
            authority => Ok(authority.map(|authority| TlsFiles { authority, own })),
        }
    }
}

impl Login {
    /// The value of the header Authorization.
    pub(crate) fn authorization(&self) -> Option<String> {
        let (name, password) = self.credentials.as_ref()?;
        let mut text = format!("{name}:").into_bytes();
        text.extend_from_slice(password.as_bytes());
        Some(format!("Basic {}", STANDARD.encode(text)))
    }
}

/// Whether an address of a node asks for TLS.
pub(crate) fn is_tls(url: &str) -> bool {
    url.starts_with("https://")
}

fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Place {
        Place::Url(text.to_owned())
    }

    fn either() -> Place {
        Place::Either("/data/helenus.sock".into(), "http://127.0.0.1:9180".to_owned())
    }

    fn with_password(arguments: &LoginArguments, place: Place) -> Result<(Place, Login), LoginError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s:crét\n").unwrap();
        arguments.at(place, |name| (name == PASSWORD_FILE_VARIABLE).then(|| file.path().into()))
    }

    #[test]
    fn a_role_logs_in_at_the_port() {
        let anna = LoginArguments { user: Some("anna".to_owned()), ..LoginArguments::default() };
        for place in [
            either(),
            url("http://127.0.0.1:9180"),
            url("127.0.0.2:1"),
            url("http://[::1]:1"),
            url("localhost:1"),
        ] {
            let (place, login) = with_password(&anna, place).unwrap();
            assert!(matches!(place, Place::Url(_)));
            let expected = format!("Basic {}", STANDARD.encode("anna:s:crét"));
            assert_eq!(login.authorization(), Some(expected));
            assert!(!format!("{login:?}").contains("crét"));
        }
        let over_tls = LoginArguments { authority: Some("a.pem".into()), ..anna.clone() };
        let (_, login) = with_password(&over_tls, url("https://10.0.0.1:9180")).unwrap();
        assert_eq!(login.tls, Some(TlsFiles { authority: "a.pem".into(), own: None }));
        let nobody = LoginArguments::default();
        assert_eq!(nobody.at(either(), |_| None).unwrap(), (either(), Login::default()));
    }

    #[test]
    fn what_would_have_no_effect_or_show_a_password_is_refused() {
        let anna = LoginArguments { user: Some("anna".to_owned()), ..LoginArguments::default() };
        let refused = |arguments: &LoginArguments, place| with_password(arguments, place).unwrap_err();
        for plain in
            ["http://10.0.0.1:9180", "db1:9180", "http://127.0.0.1.example:1", "http://localhost.example:1"]
        {
            assert!(matches!(refused(&anna, url(plain)), LoginError::Plain(_)), "{plain}");
        }
        assert!(matches!(refused(&anna, Place::Socket("x".into())), LoginError::Socket));
        assert!(matches!(refused(&anna, url("https://a:1")), LoginError::NoAuthority));
        let authority = LoginArguments { authority: Some("a.pem".into()), ..LoginArguments::default() };
        assert!(matches!(refused(&authority, either()), LoginError::NotTls));
        let certificate = LoginArguments { certificate: Some("c.pem".into()), ..authority.clone() };
        assert!(matches!(refused(&certificate, url("https://a:1")), LoginError::Certificate));
        let pair = LoginArguments { key: Some("c.key".into()), authority: None, ..certificate };
        assert!(matches!(refused(&pair, url("https://a:1")), LoginError::Certificate));
        let file = LoginArguments { password_file: Some("p".into()), ..LoginArguments::default() };
        assert!(matches!(refused(&file, either()), LoginError::NoUser));
        let colon = LoginArguments { user: Some("a:b".to_owned()), ..LoginArguments::default() };
        assert!(matches!(refused(&colon, either()), LoginError::Name));
    }
}
