//! Checks of the certificates that servers show to this side, which has connected, and that nodes show to each other.
//!
//! Invariants:
//! * A chain is accepted only if an authority of the file vouches for it, every certificate of it is valid now, and it is for servers.
//! * That of a node must be for servers and for clients, whichever side has connected. So a certificate that was made for a client opens no
//!   link between nodes.
//!
//! Whom it must name depends on the use: the host name here, or the host id, which is checked after the handshake because only the
//! handshake of the link tells it.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy,
};

/// Who shows the certificates that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownBy {
    /// A server. `checks_name`: whether its certificate must name the host to which the connection was made.
    Server { checks_name: bool },
    /// A node that this one has connected to, or that has connected to this one.
    Node,
}

/// Verifies the certificates of servers, and of nodes.
pub struct ServerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    anchors: Vec<TrustAnchor<'static>>,
    revocations: Vec<CertRevocationList<'static>>,
    shown_by: ShownBy,
}

impl ServerVerifier {
    pub fn new(
        provider: &CryptoProvider,
        authorities: &[CertificateDer<'static>],
        revocations: Vec<CertRevocationList<'static>>,
        shown_by: ShownBy,
    ) -> Result<Arc<Self>, String> {
        let anchors = authorities
            .iter()
            .map(|certificate| webpki::anchor_from_trusted_cert(certificate).map(|anchor| anchor.to_owned()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Arc::new(Self { algorithms, anchors, revocations, shown_by }))
    }

    /// Whether a chain that was accepted before still is.
    pub(crate) fn verify_again(&self, chain: &[CertificateDer<'_>], now_seconds: i64) -> Result<(), Error> {
        let (end_entity, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let since = std::time::Duration::from_secs(now_seconds.max(0).unsigned_abs());
        self.verify_chain(end_entity, intermediates, UnixTime::since_unix_epoch(since))
    }

    fn verify_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let certificate = EndEntityCert::try_from(end_entity).map_err(refused)?;
        let lists: Vec<&CertRevocationList<'_>> = self.revocations.iter().collect();
        // An error: there are no lists. An authority need not have one.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            let builder = builder.with_depth(RevocationCheckDepth::Chain);
            builder.with_status_policy(UnknownStatusPolicy::Allow).build()
        });
        let usages: &[KeyUsage] = match self.shown_by {
            ShownBy::Server { .. } => &[KeyUsage::server_auth()],
            ShownBy::Node => &[KeyUsage::server_auth(), KeyUsage::client_auth()],
        };
        usages.iter().try_for_each(|usage| {
            let anchors = &self.anchors;
            let verified = certificate.verify_for_usage(
                self.algorithms.all,
                anchors,
                intermediates,
                now,
                *usage,
                revocation,
                None,
            );
            verified.map(drop).map_err(refused)
        })
    }
}

fn refused(error: webpki::Error) -> Error {
    let error = match error {
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::BadDer | webpki::Error::BadDerTime => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    Error::InvalidCertificate(error)
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServerVerifier")
            .field("authorities", &self.anchors.len())
            .finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_chain(end_entity, intermediates, now)?;
        if self.shown_by == (ShownBy::Server { checks_name: true }) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies the certificates of nodes that have connected to this one.
#[derive(Debug)]
pub struct NodeVerifier {
    /// Asks for a certificate, and checks what every client has to show.
    pub clients: Arc<dyn ClientCertVerifier>,
    /// Checks what a node has to show besides.
    pub nodes: Arc<ServerVerifier>,
}

impl ClientCertVerifier for NodeVerifier {
    fn offer_client_auth(&self) -> bool {
        self.clients.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.clients.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.clients.verify_client_cert(end_entity, intermediates, now)?;
        self.nodes.verify_chain(end_entity, intermediates, now)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}
