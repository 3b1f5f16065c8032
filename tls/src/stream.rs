//! A socket with or without TLS, which is used as a tokio socket is: what is ready is read and written, and `ready` waits.
//!
//! Invariants:
//! * Without TLS every call is that of the socket.
//! * With TLS at most [`UNSENT_BYTES_MAX`] encrypted bytes wait for the socket. They leave while `ready` waits, for whatever it waits.
//! * A peer whose handshake is not complete makes this side keep at most [`HANDSHAKE_BYTES_MAX`] bytes.
//! * Connections end by messages of the protocols above, so an end without TLS's own notice is an end as any other.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::material::Material;
use crate::names::Names;
use crate::policy::Mode;
use crate::verifier::ServerVerifier;

/// The first byte of a TLS connection: a record of its handshake.
pub const TLS_FIRST_BYTE: u8 = 0x16;
/// Encrypted bytes above which nothing more is taken for sending.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Most bytes that a peer may send before its handshake is complete.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Encrypted bytes of one read.
const READ_BYTES: usize = 32 << 10;

thread_local! {
    /// What was read from a socket and is decrypted at once.
    static ENCRYPTED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A connected socket.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A socket with TLS.
pub struct TlsStream {
    socket: TcpStream,
    state: RefCell<State>,
    peer: Peer,
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(socket) => formatter.debug_tuple("Plain").field(socket).finish(),
            Self::Tls(tls) => formatter
                .debug_struct("Tls")
                .field("socket", &tls.socket)
                .field("peer", &tls.peer)
                .finish_non_exhaustive(),
        }
    }
}

/// What is known of the other side.
#[derive(Debug, Clone, Default)]
struct Peer {
    /// `None`: it has shown no certificate.
    names: Option<Names>,
    /// Of the set of files with which its certificate was checked last.
    material: Cell<u64>,
}

struct State {
    session: Connection,
    /// Decrypted bytes that nobody has taken yet.
    decrypted: BytesMut,
    /// The peer sends nothing more.
    is_ended: bool,
}

/// A stream on its way to another thread.
pub struct DetachedStream {
    socket: std::net::TcpStream,
    tls: Option<(Box<State>, Peer)>,
}

/// Waits for the first byte of a connection, and returns whether it begins with TLS. `None`: it has ended before.
pub async fn begins_with_tls(socket: &TcpStream) -> io::Result<Option<bool>> {
    let mut first = [0];
    let read = socket.peek(&mut first).await?;
    Ok((read > 0).then_some(first[0] == TLS_FIRST_BYTE))
}

/// Accepts the connection of a client as the mode has it: with its handshake, or plain. `None`: it has ended before its first byte.
pub async fn accept_as(mode: Mode, socket: TcpStream, material: &Material) -> io::Result<Option<Stream>> {
    match begins_with_tls(&socket).await? {
        None => Ok(None),
        Some(true) if mode != Mode::Off => accept(socket, material).await.map(Some),
        Some(false) if mode == Mode::Required => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it does not use TLS, which is required"))
        }
        Some(_) => Ok(Some(Stream::Plain(socket))),
    }
}

/// Makes the handshake of a connection that was accepted.
pub async fn accept(socket: TcpStream, material: &Material) -> io::Result<Stream> {
    let session = ServerConnection::new(material.server.clone()).map_err(invalid)?;
    shake_hands(socket, Connection::Server(session), material.number).await
}

/// Makes the handshake of a connection that this side has made to another node.
pub async fn connect(socket: TcpStream, material: &Material) -> io::Result<Stream> {
    let config = material.client.clone();
    let config =
        config.ok_or_else(|| io::Error::other("there are no certificates for connections to nodes"))?;
    let name = ServerName::from(socket.peer_addr()?.ip());
    let session = ClientConnection::new(config, name).map_err(invalid)?;
    shake_hands(socket, Connection::Client(session), material.number).await
}

/// Makes the handshake of a connection of a client to a server.
pub async fn connect_to(
    socket: TcpStream,
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Stream> {
    let session = ClientConnection::new(config, name).map_err(invalid)?;
    shake_hands(socket, Connection::Client(session), 0).await
}

async fn shake_hands(socket: TcpStream, mut session: Connection, material: u64) -> io::Result<Stream> {
    session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    let state = State { session, decrypted: BytesMut::new(), is_ended: false };
    let mut tls = TlsStream {
        socket,
        state: RefCell::new(state),
        peer: Peer { names: None, material: Cell::new(material) },
    };
    let outcome = tls.shake_hands().await;
    // The peer learns the reason.
    tls.flush().or_else(|error| if outcome.is_err() { Ok(()) } else { Err(error) })?;
    outcome?;
    let certificate = tls.state.get_mut().session.peer_certificates().and_then(<[_]>::first);
    let names = certificate
        .map(Names::of)
        .transpose()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    tls.peer.names = names;
    Ok(Stream::Tls(Box::new(tls)))
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Stream {
    /// Reads what has arrived; 0: the other side has closed the connection.
    #[inline]
    pub fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read_buf(buffer),
            Self::Tls(tls) => tls.try_read(buffer),
        }
    }

    /// Writes as much as is accepted.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(tls) => tls.try_write(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes as much as is accepted.
    #[inline]
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write_vectored(slices),
            Self::Tls(tls) => tls.try_write(slices),
        }
    }

    /// Whether bytes that were accepted wait for the socket.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.state.borrow().session.wants_write(),
        }
    }

    /// Waits until one of the operations may succeed.
    #[inline]
    pub async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.ready(interest).await.map(drop),
            Self::Tls(tls) => tls.ready(interest).await,
        }
    }

    /// Tells the other side that nothing more is sent, as far as the socket accepts it at once.
    pub fn close(&self) {
        if let Self::Tls(tls) = self {
            tls.state.borrow_mut().session.send_close_notify();
            // The connection ends in any case.
            let _ = tls.flush();
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whom the certificate of the other side names; `None`: it has shown none.
    pub fn peer_names(&self) -> Option<&Names> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.peer.names.as_ref(),
        }
    }

    /// The number of the set of files with which the certificate of the other side was checked last; `None` without TLS.
    pub(crate) fn material_number(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls.peer.material.get()),
        }
    }

    pub(crate) fn note_material(&self, number: u64) {
        if let Self::Tls(tls) = self {
            tls.peer.material.set(number);
        }
    }

    /// Checks the certificates of the other side once more.
    pub(crate) fn peer_certificates_accepted_by(
        &self,
        verifier: &ServerVerifier,
        now_seconds: i64,
    ) -> Result<(), rustls::Error> {
        match self {
            Self::Plain(_) => Err(rustls::Error::NoCertificatesPresented),
            Self::Tls(tls) => {
                let state = tls.state.borrow();
                verifier.verify_again(state.session.peer_certificates().unwrap_or_default(), now_seconds)
            }
        }
    }

    /// Takes it off the present thread's runtime.
    pub fn detach(self) -> io::Result<DetachedStream> {
        match self {
            Self::Plain(socket) => Ok(DetachedStream { socket: socket.into_std()?, tls: None }),
            Self::Tls(tls) => {
                let TlsStream { socket, state, peer } = *tls;
                let tls = Some((Box::new(state.into_inner()), peer));
                Ok(DetachedStream { socket: socket.into_std()?, tls })
            }
        }
    }
}

impl DetachedStream {
    /// Puts it on the present thread's runtime.
    pub fn attach(self) -> io::Result<Stream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.tls {
            None => Stream::Plain(socket),
            Some((state, peer)) => {
                Stream::Tls(Box::new(TlsStream { socket, state: RefCell::new(*state), peer }))
            }
        })
    }
}

/// The socket as the session reads and writes it.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    /// Decrypts bytes and passes what comes of them on.
    fn decrypt(&mut self, mut bytes: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<()> {
        while !bytes.is_empty() {
            self.session.read_tls(&mut bytes)?;
            self.process(take)?;
        }
        Ok(())
    }

    fn process(&mut self, take: &mut impl FnMut(&[u8])) -> io::Result<()> {
        self.session.process_new_packets().map_err(invalid)?;
        let mut reader = self.session.reader();
        loop {
            match reader.fill_buf() {
                Ok([]) => {
                    self.is_ended = true;
                    return Ok(());
                }
                Ok(bytes) => {
                    take(bytes);
                    let length = bytes.len();
                    reader.consume(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.is_ended = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl TlsStream {
    /// Reads once from the socket and decrypts. Returns the number of encrypted bytes.
    fn fill(&self, state: &mut State, take: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        ENCRYPTED.with_borrow_mut(|encrypted| {
            let read = self.socket.try_read(encrypted)?;
            if read == 0 {
                state.session.read_tls(&mut io::empty())?;
                state.is_ended = true;
                return Ok(0);
            }
            let outcome = state.decrypt(&encrypted[..read], take);
            // Answers of the protocol itself, and the reason of an end.
            if state.session.wants_write() {
                let flushed = self.flush_session(&mut state.session);
                outcome.and(flushed).map(|()| read)
            } else {
                outcome.map(|()| read)
            }
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_session(&mut self.state.borrow_mut().session)
    }

    /// Writes what waits, as far as the socket accepts it.
    fn flush_session(&self, session: &mut Connection) -> io::Result<()> {
        while session.wants_write() {
            match session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn shake_hands(&self) -> io::Result<()> {
        let mut received = 0;
        loop {
            self.flush()?;
            let (is_handshaking, wants_write) = {
                let session = &self.state.borrow().session;
                (session.is_handshaking(), session.wants_write())
            };
            if !is_handshaking {
                return Ok(());
            }
            let writable = if wants_write { Interest::WRITABLE } else { Interest::READABLE };
            let is_readable = self.socket.ready(Interest::READABLE | writable).await?.is_readable();
            if !is_readable {
                continue;
            }
            let mut state = self.state.borrow_mut();
            let mut decrypted = std::mem::take(&mut state.decrypted);
            let read = self.fill(&mut state, &mut |bytes| decrypted.extend_from_slice(bytes));
            state.decrypted = decrypted;
            match read {
                Ok(read) => received += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if state.session.is_handshaking() {
                if state.is_ended {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if received > HANDSHAKE_BYTES_MAX {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long"));
                }
            }
        }
    }

    fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let mut state = self.state.borrow_mut();
        let before = buffer.len();
        if !state.decrypted.is_empty() {
            buffer.extend_from_slice(&std::mem::take(&mut state.decrypted));
        }
        while buffer.len() == before {
            if state.is_ended {
                return Ok(0);
            }
            self.fill(&mut state, &mut |bytes| buffer.extend_from_slice(bytes))?;
        }
        Ok(buffer.len() - before)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let session = &mut self.state.borrow_mut().session;
        let mut accepted = 0;
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let taken = session.writer().write(rest)?;
                accepted += taken;
                rest = &rest[taken..];
                if taken == 0 {
                    // The buffer is full.
                    self.flush_session(session)?;
                    if session.wants_write() {
                        return if accepted > 0 {
                            Ok(accepted)
                        } else {
                            Err(io::ErrorKind::WouldBlock.into())
                        };
                    }
                }
            }
        }
        self.flush_session(session)?;
        Ok(accepted)
    }

    async fn ready(&self, interest: Interest) -> io::Result<()> {
        loop {
            let wants_write = {
                let state = self.state.borrow();
                if interest.is_readable() && (state.is_ended || !state.decrypted.is_empty()) {
                    return Ok(());
                }
                state.session.wants_write()
            };
            let wanted = if wants_write { interest | Interest::WRITABLE } else { interest };
            let ready = self.socket.ready(wanted).await?;
            if ready.is_writable() && wants_write {
                self.flush()?;
            }
            if (interest.is_readable() && ready.is_readable())
                || (interest.is_writable() && ready.is_writable())
            {
                return Ok(());
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tls = match self.get_mut() {
            Self::Plain(socket) => return Pin::new(socket).poll_read(context, buffer),
            Self::Tls(tls) => tls,
        };
        loop {
            let mut state = tls.state.borrow_mut();
            if !state.decrypted.is_empty() {
                let length = state.decrypted.len().min(buffer.remaining());
                buffer.put_slice(&state.decrypted[..length]);
                state.decrypted.advance(length);
                return Poll::Ready(Ok(()));
            }
            if state.is_ended {
                return Poll::Ready(Ok(()));
            }
            ready!(tls.socket.poll_read_ready(context))?;
            let mut decrypted = std::mem::take(&mut state.decrypted);
            let filled = tls.fill(&mut state, &mut |bytes| decrypted.extend_from_slice(bytes));
            state.decrypted = decrypted;
            match filled {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tls = match self.get_mut() {
            Self::Plain(socket) => return Pin::new(socket).poll_write(context, bytes),
            Self::Tls(tls) => tls,
        };
        loop {
            match tls.try_write(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(tls.socket.poll_write_ready(context))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tls = match self.get_mut() {
            Self::Plain(socket) => return Pin::new(socket).poll_flush(context),
            Self::Tls(tls) => tls,
        };
        loop {
            tls.flush()?;
            if !tls.state.borrow().session.wants_write() {
                return Poll::Ready(Ok(()));
            }
            ready!(tls.socket.poll_write_ready(context))?;
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Self::Tls(tls) = this {
            tls.state.borrow_mut().session.send_close_notify();
        }
        ready!(Pin::new(&mut *this).poll_flush(context))?;
        match this {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(&mut tls.socket).poll_shutdown(context),
        }
    }
}
