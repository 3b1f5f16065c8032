//! Where a node is asked: the choices of the command line, the variables of the environment, and what counts without them.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::socket::{DEFAULT_DATA_DIR, SOCKET_FILE};

/// The variable with the address of the HTTP port.
pub const URL_VARIABLE: &str = "HELENUS_ADMIN_URL";
/// The variable with the path of the socket: that of the node's setting.
const SOCKET_VARIABLE: &str = "HELENUS_ADMIN_SOCKET";
/// The variable with the data directory: that of the node's setting.
const DATA_DIR_VARIABLE: &str = "HELENUS_DATA_DIR";
/// The node's HTTP port unless it is configured.
pub(crate) const DEFAULT_PORT: u16 = 9180;

/// Where a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// An HTTP port.
    Url(String),
    /// A Unix socket.
    Socket(PathBuf),
    /// A Unix socket, or the HTTP port if nobody listens there.
    Either(PathBuf, String),
}

/// The choices of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct PlaceArguments {
    /// The node's HTTP port, on 127.0.0.1.
    #[arg(long, value_name = "PORT", global = true)]
    pub(crate) http_port: Option<u16>,
    /// The node's Unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "http_port", global = true)]
    pub(crate) socket: Option<PathBuf>,
    /// The node's data directory, in which its Unix socket is.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["http_port", "socket"], global = true)]
    pub(crate) data_dir: Option<PathBuf>,
}

impl PlaceArguments {
    /// The place that is named. A socket that is named is the only place: a command must not reach another node.
    pub(crate) fn named(&self) -> Option<Place> {
        if let Some(port) = self.http_port {
            return Some(Place::Url(format!("http://127.0.0.1:{port}")));
        }
        let in_directory = |directory: &PathBuf| directory.join(SOCKET_FILE);
        self.socket.clone().or_else(|| self.data_dir.as_ref().map(in_directory)).map(Place::Socket)
    }
}

impl Place {
    /// The place if none is named, by the variables of the environment.
    pub(crate) fn unnamed(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        if let Some(url) = variable(URL_VARIABLE) {
            return Self::Url(url.to_string_lossy().into_owned());
        }
        let socket = variable(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map_or_else(
            || {
                let directory = variable(DATA_DIR_VARIABLE).unwrap_or_else(|| DEFAULT_DATA_DIR.into());
                Path::new(&directory).join(SOCKET_FILE)
            },
            PathBuf::from,
        );
        Self::Either(socket, format!("http://127.0.0.1:{DEFAULT_PORT}"))
    }

    /// The socket alone, if there is one.
    pub(crate) fn socket(self) -> Option<Self> {
        match self {
            Self::Url(_) => None,
            Self::Socket(path) | Self::Either(path, _) => Some(Self::Socket(path)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => formatter.write_str(url),
            Self::Socket(path) => write!(formatter, "{}", path.display()),
            Self::Either(path, url) => write!(formatter, "{} or {url}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(variables: &[(&str, &str)]) -> Place {
        Place::unnamed(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn without_a_place_the_socket_is_tried_before_the_port() {
        let port = "http://127.0.0.1:9180";
        assert_eq!(unnamed(&[]), Place::Either("helenus-data/helenus.sock".into(), port.to_owned()));
        assert_eq!(
            unnamed(&[("HELENUS_DATA_DIR", "/data")]),
            Place::Either("/data/helenus.sock".into(), port.to_owned())
        );
        assert_eq!(
            unnamed(&[("HELENUS_DATA_DIR", "/data"), ("HELENUS_ADMIN_SOCKET", "/run/h.sock")]),
            Place::Either("/run/h.sock".into(), port.to_owned())
        );
        let url = "http://10.0.0.1:9181";
        assert_eq!(
            unnamed(&[("HELENUS_DATA_DIR", "/data"), ("HELENUS_ADMIN_URL", url)]),
            Place::Url(url.to_owned())
        );
    }

    #[test]
    fn a_named_socket_is_the_only_place() {
        let directory = PlaceArguments { data_dir: Some("/two".into()), ..PlaceArguments::default() };
        assert_eq!(directory.named(), Some(Place::Socket("/two/helenus.sock".into())));
        let port = PlaceArguments { http_port: Some(9181), ..PlaceArguments::default() };
        assert_eq!(port.named(), Some(Place::Url("http://127.0.0.1:9181".to_owned())));
        assert_eq!(port.named().and_then(Place::socket), None);
        assert_eq!(unnamed(&[]).socket(), Some(Place::Socket("helenus-data/helenus.sock".into())));
        assert_eq!(PlaceArguments::default().named(), None);
    }
}
