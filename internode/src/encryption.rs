//! TLS on links: which side uses it, and whether the other side's certificate is that of the node it says it is.
//!
//! Invariants:
//! * On an encrypted link both sides have shown a certificate that an authority of the settings vouches for, and that names the other
//!   side: its host id, or, if it names no host id at all, the address of the link. A certificate that names host ids is good for
//!   these alone.
//! * With [`Mode::Required`] there is no other link. With [`Mode::Optional`] a link that this node makes is encrypted if the
//!   other node takes part, and plain otherwise.
//! * A link ends when the certificate of its other side expires, or is not accepted any more after files were loaded anew.

use std::net::IpAddr;
use std::sync::Arc;

use helenus_ring::HostId;
use helenus_tls::encryption::Encryption;
use helenus_tls::names::Names;
use helenus_tls::policy::Mode;
use helenus_tls::stream::{self, Stream};
use tokio::net::TcpStream;

use super::handshake::{HandshakeError, Refusal};

/// Most names of machines of one certificate that are looked up.
const LOOKUPS_MAX: usize = 8;

/// How links are encrypted; [`Mode::Off`] has none of these.
#[derive(Clone)]
pub struct LinkEncryption {
    encryption: Arc<Encryption>,
    is_required: bool,
}

impl LinkEncryption {
    /// `None`: links are plain.
    pub fn new(mode: Mode, encryption: Arc<Encryption>) -> Option<Self> {
        (mode != Mode::Off).then(|| Self { encryption, is_required: mode == Mode::Required })
    }

    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Makes the TLS handshake of a link that this node makes.
    pub(crate) async fn connect(&self, socket: TcpStream) -> std::io::Result<Stream> {
        stream::connect(socket, &self.encryption.material()).await
    }

    /// Makes the TLS handshake of a link that was accepted, if the other side begins one.
    pub(crate) async fn accept(&self, socket: TcpStream) -> Result<Stream, HandshakeError> {
        match stream::begins_with_tls(&socket).await? {
            None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            Some(true) => Ok(stream::accept(socket, &self.encryption.material()).await?),
            Some(false) => Ok(Stream::Plain(socket)),
        }
    }

    /// Checks that a link may be as it is with the node that the other side says it is. `address` is that of the other side.
    pub(crate) async fn check(
        &self,
        stream: &Stream,
        host_id: HostId,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        match stream.peer_names() {
            Some(names) => check_names(names, host_id, address.to_canonical()).await,
            None if self.is_required || stream.is_encrypted() => Err(Refusal::NotEncrypted),
            None => Ok(()),
        }
    }

    /// Why a link must end now.
    pub(crate) fn objection(&self, stream: &Stream, now_micros: i64) -> Option<String> {
        self.encryption.objection(stream, now_micros / 1_000_000)
    }
}

async fn check_names(names: &Names, host_id: HostId, address: IpAddr) -> Result<(), Refusal> {
    let host_ids: Vec<String> = names.host_ids().collect();
    let is_named = if host_ids.is_empty() {
        names.addresses.iter().any(|named| named.to_canonical() == address)
            || is_looked_up(names, address).await
    } else {
        host_ids.contains(&host_id.to_string())
    };
    if is_named {
        return Ok(());
    }
    let addresses = names.addresses.iter().map(IpAddr::to_string);
    let named = host_ids.into_iter().chain(names.machines().map(str::to_owned)).chain(addresses);
    Err(Refusal::Certificate { host_id, address, names: named.collect::<Vec<_>>().join(", ") })
}

/// Whether a name of the certificate leads to the address.
async fn is_looked_up(names: &Names, address: IpAddr) -> bool {
    for machine in names.machines().take(LOOKUPS_MAX) {
        if let Ok(mut found) = tokio::net::lookup_host((machine, 0)).await
            && found.any(|found| found.ip().to_canonical() == address)
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_certificate_that_names_host_ids_is_good_for_these_alone() {
        let (own, other) = (HostId::from_u128(1), HostId::from_u128(2));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let names =
            Names { uris: vec![format!("urn:uuid:{own}")], addresses: vec![address], ..Names::default() };
        assert_eq!(check_names(&names, own, "10.9.9.9".parse().unwrap()).await, Ok(()));
        let refused = check_names(&names, other, address).await.unwrap_err();
        assert_eq!(refused.code(), 8);
        let by_address = Names { uris: Vec::new(), ..names };
        assert_eq!(check_names(&by_address, other, address).await, Ok(()));
        assert!(check_names(&by_address, own, "10.0.0.2".parse().unwrap()).await.is_err());
        let by_name = Names { dns: vec!["localhost".to_owned()], ..Names::default() };
        assert_eq!(check_names(&by_name, own, "127.0.0.1".parse().unwrap()).await, Ok(()));
        assert!(check_names(&Names::default(), own, address).await.is_err());
    }
}
