//! A client connection: decodes bytes into requests and encodes answers into bytes.
//!
//! Invariants:
//! * Many answers leave in one write: when the frames of one read are executed, or `REQUESTS_PER_WRITE` requests
//!   are, or enough bytes have accumulated.
//! * No request begins while too many are in flight or the client does not read its answers: memory stays bounded.
//! * A log of requests that is to miss nothing and has no room holds the requests that it would record ([`super::held_requests`]), and no
//!   others: signs of life are answered.
//! * After a millisecond of requests, or less while roles share the thread, others get it.
//! * Until the client is in, frames are small, nothing is read while a login is under way, and only the connection itself changes
//!   ([`super::authentication::stage`]).
//! * An idle connection holds no large buffer.
//! * A damaged stream of frames ends the connection, after an ERROR where the protocol allows one.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use cql_lite::frame::request::{Request, decode_request};
use cql_lite::frame::response::{
    encode_auth_success, encode_authenticate, encode_error, encode_ready, encode_supported,
    write_unsupported_version,
};
use cql_lite::frame::segment::{SegmentEncoder, SegmentFormat};
use cql_lite::frame::{
    Compression, Decoder, Envelope, ErrorKind, ErrorResponse, Event, FrameError, Prefix, ProtocolVersion,
    Role,
};
use futures::future::LocalBoxFuture;
use hashbrown::HashMap;
use helenus_observe::metrics::LoginResult;
use helenus_query::schema::virtual_tables::ConnectedClient;
use helenus_tls::login_slots::Slot;
use helenus_tls::names::Names;
use helenus_tls::stream::Stream;
use tokio::io::Interest;
use tokio::sync::{Notify, broadcast};

use super::authentication::admission::Admission;
use super::authentication::login::{self, Attempt};
use super::authentication::stage::Stage;
use super::handshake::{self, Startup};
use super::held_requests::HeldRequests;
use super::notes::Notes;
use super::receipts::CostWishes;
use super::request;
use crate::cluster::confirmation;
use crate::session::connection_places::{Place, REFUSAL_MAX};
use crate::session::connection_state::{Connection, WaitingRequest};
use crate::session::decisions::Decisions;
use crate::session::logged;
use crate::session::partial_frames::{FrameClaim, PartialFrames};
use crate::session::request_logs::RequestLogs;
use helenus_answers::errors::to_response;
use helenus_execution::shard::context::ShardContext;
use helenus_fair_shares::{self as shares, RoleShare};

/// Bytes of unsent answers above which the client's requests are not read any more.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// The longest frame of a client that is not in yet, and the longest segment.
const BYTES_BEFORE_LOGIN: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;
/// Buffers that were larger than this are freed once they are empty.
const RETAINED_BYTES: usize = 1 << 20;

/// The answers to the requests of one read leave together until this number of requests is executed, or the answers
/// reach the size limit. That is enough to make the system call cheap for each answer, and lets the client work while
/// its last requests are still being executed. A client that gets all its answers at once sends all its next requests
/// at once: then the two take turns, and each waits while the other works.
const REQUESTS_PER_WRITE: usize = 16;
const BYTES_PER_WRITE: usize = 16 << 10;

/// The bytes of a connection in both directions.
struct Wire {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    /// Bytes of `output` that are written already.
    written: usize,
    /// `output` has held more than `RETAINED_BYTES` since it was last replaced.
    is_output_large: bool,
    decoder: Decoder,
    claim: FrameClaim,
    /// Set once the connection has switched to segments.
    segments: Option<SegmentEncoder>,
    /// The client is not in yet: its frames are short.
    is_limited: bool,
    held: HeldRequests,
    /// The login that is under way.
    login: Option<LocalBoxFuture<'static, ()>>,
}

/// What a message changes in how the connection goes on.
enum Effect {
    None,
    /// STARTUP selected these options.
    Startup(Startup),
    /// The client sent the token of a login.
    Login(Attempt),
    /// The request has not begun: a log that is to miss nothing has no room.
    Held,
}

/// The client connections of a shard.
#[derive(Default)]
pub struct Connections(RefCell<HashMap<SocketAddr, Weak<Connection>>>);

impl Connections {
    fn of(context: &ShardContext) -> &RefCell<HashMap<SocketAddr, Weak<Connection>>> {
        &context.layers.get::<Self>().0
    }
}

/// The connections of a shard.
pub(super) fn connections(context: &ShardContext) -> Vec<Rc<Connection>> {
    Connections::of(context).borrow().values().filter_map(Weak::upgrade).collect()
}

/// The connections of a shard that have sent requests.
pub fn clients(context: &ShardContext) -> Vec<ConnectedClient> {
    connections(context).iter().filter_map(|connection| client(connection)).collect()
}

/// The requests of clients that are under way on a shard and wait for something.
pub fn requests_under_way(context: &ShardContext) -> u64 {
    connections(context).iter().map(|connection| connection.under_way() as u64).sum()
}

/// The same requests with the connections of their clients and their numbers there.
pub fn waiting_requests(context: &ShardContext) -> Vec<(SocketAddr, u64, WaitingRequest)> {
    let of = |connection: Rc<Connection>| {
        let waiting = connection.waiting.borrow();
        let listed = waiting.iter().map(|(number, request)| (connection.peer, *number, request.clone()));
        listed.collect::<Vec<_>>()
    };
    connections(context).into_iter().flat_map(of).collect()
}

/// Describes a connection that has sent requests.
fn client(connection: &Connection) -> Option<ConnectedClient> {
    let startup = connection.startup.borrow();
    let startup = startup.as_ref()?;
    Some(ConnectedClient {
        address: connection.peer.ip(),
        port: connection.peer.port(),
        options: startup.options.iter().cloned().collect(),
        driver_name: startup.driver_name.clone(),
        driver_version: startup.driver_version.clone(),
        keyspace: connection.keyspace.borrow().as_deref().map(str::to_owned),
        protocol_version: connection.version.get() as u8,
        request_count: connection.request_count.get(),
        username: connection.user.borrow().as_deref().map(str::to_owned),
    })
}

/// Serves a connection until it ends. `slot` and `login_share`: its place, and what makes roles take turns, until the client has logged in;
/// `None` for clients that need not. `place`: among the connections of the node.
pub async fn serve(
    context: Rc<ShardContext>,
    stream: Stream,
    peer: SocketAddr,
    slot: Option<Slot>,
    login_share: Option<Arc<RoleShare>>,
    place: Place,
) {
    let mut events = context.node.events.subscribe();
    let mut stopping = context.node.stopping.subscribe();
    let logs = RequestLogs::of(&context.node).clone();
    let connection = Rc::new(Connection {
        context,
        peer,
        stage: Cell::new(Stage::Established),
        allowance: RefCell::new(None),
        max_charge: Cell::new(None),
        logs,
        place,
        identity: stream.peer_names().and_then(Names::identity).map(Rc::from),
        keyspace: RefCell::new(None),
        startup: RefCell::new(None),
        user: RefCell::new(None),
        share: OnceCell::new(),
        login_share: RefCell::new(login_share),
        decisions: Decisions::default(),
        admission: Admission::default(),
        logged_in: Notify::new(),
        registered: Cell::new([false; 3]),
        out: RefCell::new(BytesMut::new()),
        answered: Notify::new(),
        waiting: RefCell::default(),
        closing: Cell::new(false),
        request_count: Cell::new(0),
        answered_at: Cell::new(None),
        turn_began: Cell::new(None),
        version: Cell::new(ProtocolVersion::HIGHEST),
    });
    Connections::of(&connection.context).borrow_mut().insert(peer, Rc::downgrade(&connection));
    let node = &connection.context.node;
    let partial_frames = node.layers.get::<Arc<PartialFrames>>().clone();
    // A frame of the greatest length has room where it is alone.
    let room_bytes = node.config.max_partial_frames_bytes.max(u64::from(node.config.max_frame_bytes));
    let claim = FrameClaim::new(partial_frames, room_bytes as usize);
    let mut wire = Wire {
        stream,
        input: BytesMut::with_capacity(READ_BYTES),
        output: BytesMut::new(),
        written: 0,
        is_output_large: false,
        decoder: Decoder::new(Role::Server, BYTES_BEFORE_LOGIN),
        claim,
        segments: None,
        is_limited: true,
        held: HeldRequests::default(),
        login: None,
    };
    wire.decoder.set_limit(BYTES_BEFORE_LOGIN, true);
    let status = &connection.context.node.status;
    let mut accepts_clients = connection.context.node.settings.accepts_clients();
    let closing = async {
        tokio::select! {
            () = status.closed() => {}
            _ = accepts_clients.wait_for(|accepts| !*accepts) => {}
        }
        connection.close();
        // Requests in flight are answered, unless the node stops that as well.
        status.ended().await;
    };
    let serving = async {
        tokio::select! {
            biased;
            // Polled first: no request begins after the node has announced that it accepts no more.
            () = closing => Ok(()),
            _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
            () = refused_for_long(&connection) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "a client for which there is no place has asked nothing"))
            }
            () = login::overdue(&connection, slot) => {
                connection.context.metrics.logins[LoginResult::Abandoned as usize].increment();
                Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not log in in time"))
            }
            outcome = wire.run(&connection, &mut events) => outcome,
        }
    };
    let outcome = shares::within(connection.context.shares.clone(), connection.clone(), serving).await;
    if let Err(error) = outcome {
        tracing::debug!(%peer, %error, "connection ended");
    }
    wire.stream.close();
    Connections::of(&connection.context).borrow_mut().remove(&peer);
}

/// Resolves when a client for which there is no place has had time to ask something.
async fn refused_for_long(connection: &Connection) {
    match connection.place.refusal() {
        Some(_) => connection.context.clock.sleep(REFUSAL_MAX).await,
        None => std::future::pending().await,
    }
}

impl Wire {
    async fn run(
        &mut self,
        connection: &Rc<Connection>,
        events: &mut broadcast::Receiver<Event>,
    ) -> io::Result<()> {
        loop {
            let has_more = self.handle_input(connection)?;
            self.refuse_held_at_the_end(connection);
            self.flush(connection)?;
            let is_all_sent = self.output.is_empty() && !self.stream.has_unsent();
            if connection.closing.get() && is_all_sent && connection.under_way() == 0 {
                return Ok(());
            }
            let takes = self.takes_requests(connection);
            let holds = takes && !self.held.is_empty();
            let is_held = holds && connection.logs.hold_requests();
            let reads = takes && self.takes_input(connection);
            if (reads && has_more) || (holds && !is_held) {
                // The client has read its answers, or its turn was over: continue with its requests, after those of others.
                tokio::task::yield_now().await;
                connection.turn_began.set(None);
                continue;
            }
            if reads {
                match self.read() {
                    Ok(0) => return Ok(()),
                    Ok(_) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            let interest = match (reads, is_all_sent) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            tokio::select! {
                biased;
                () = connection.answered.notified() => {
                    // Answers of requests that became ready with this one get into the same write.
                    tokio::task::yield_now().await;
                }
                ready = self.stream.ready(interest.unwrap_or(Interest::READABLE)), if interest.is_some() => {
                    ready?;
                }
                () = connection.logs.admit_requests(), if is_held => {}
                event = events.recv() => {
                    if let Ok(event) = event {
                        connection.send_event(&event);
                    }
                }
                () = login::ended(&mut self.login) => {
                    self.login = None;
                    self.lift_limits(connection);
                }
            }
            connection.turn_began.set(None);
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_BYTES);
        self.stream.try_read_buf(&mut self.input)
    }

    /// Whether another request may begin.
    fn takes_requests(&self, connection: &Connection) -> bool {
        !connection.closing.get()
            && self.login.is_none()
            && connection.under_way() < connection.context.node.config.max_requests_per_connection
            && self.output.len() - self.written + connection.out.borrow().len() < UNSENT_BYTES_MAX
    }

    /// Whether there is a place for the next request, even if it has to wait.
    fn takes_input(&self, connection: &Connection) -> bool {
        !self.held.is_full(connection.under_way(), connection.context.node.config.max_requests_per_connection)
    }

    /// Answers the requests that wait for room in a log when the connection is to end: they are not executed.
    fn refuse_held_at_the_end(&mut self, connection: &Connection) {
        if !connection.closing.get() {
            return;
        }
        while let Some(request) = self.held.pop() {
            let message =
                "the connection ends, and the request has waited for a log of requests; it was not executed";
            connection
                .error(request.envelope().header.stream, &ErrorResponse::new(ErrorKind::Overloaded, message));
        }
    }

    /// Executes a request that has waited for room in a log, if there is some. Returns whether there was one.
    fn handle_held(&mut self, connection: &Rc<Connection>) -> bool {
        if self.held.is_empty() || connection.logs.hold_requests() {
            return false;
        }
        let Some(request) = self.held.pop() else { return false };
        match connection.carry_out(&request.envelope()) {
            // Others have taken the room.
            Effect::Held => {
                self.held.put_back(request);
                false
            }
            // It is none of those that change the connection.
            _ => true,
        }
    }

    /// Executes the frames that have arrived. Returns whether it stopped before their end.
    fn handle_input(&mut self, connection: &Rc<Connection>) -> io::Result<bool> {
        let is_large = self.input.len() > RETAINED_BYTES;
        connection.answered_at.set(None);
        let mut requests = 0;
        while self.takes_requests(connection) {
            if self.handle_held(connection) {
                if connection.is_turn_over() {
                    return Ok(true);
                }
                continue;
            }
            if !self.takes_input(connection) {
                return Ok(true);
            }
            self.limit_frame();
            match self.decoder.next(&mut self.input) {
                Ok(None) => {
                    let arrived = self.input.len() + self.decoder.assembled_bytes();
                    self.claim.awaits(self.decoder.awaited_bytes(), arrived);
                    if is_large && self.input.len() < READ_BYTES {
                        self.input = BytesMut::from(self.input.as_ref());
                    }
                    return Ok(false);
                }
                Ok(Some(envelope)) => {
                    self.claim.awaits(0, 0);
                    match connection.handle(&envelope) {
                        Effect::None => {}
                        Effect::Startup(Startup { compression, .. }) => {
                            self.switch(connection, compression);
                            self.lift_limits(connection);
                        }
                        Effect::Login(attempt) => {
                            self.login = Some(Box::pin(login::carry_out(connection.clone(), attempt)));
                        }
                        Effect::Held => self.held.push(&envelope),
                    }
                    if connection.is_turn_over() {
                        return Ok(true);
                    }
                    requests += 1;
                    if requests == REQUESTS_PER_WRITE || connection.out.borrow().len() >= BYTES_PER_WRITE {
                        requests = 0;
                        self.flush(connection)?;
                        // Writing takes time, too.
                        connection.answered_at.set(Some(connection.context.clock.monotonic()));
                        if connection.is_turn_over() {
                            return Ok(true);
                        }
                    }
                }
                Err(error) => {
                    self.claim.awaits(0, 0);
                    connection.refuse_frame(&error);
                    if error.is_fatal() {
                        connection.closing.set(true);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Takes large frames when the client is in.
    fn lift_limits(&mut self, connection: &Connection) {
        if connection.stage.get() == Stage::Ready {
            self.is_limited = false;
            self.decoder.set_limit(connection.context.node.config.max_frame_bytes as usize, false);
        }
    }

    /// Takes frames as long as there is room for.
    #[inline]
    fn limit_frame(&mut self) {
        if !self.is_limited {
            self.decoder.set_room(self.claim.room_bytes());
        }
    }

    /// Switches the encoding after the answer to STARTUP: compression, and in v5 segments in both directions.
    fn switch(&mut self, connection: &Connection, compression: Option<Compression>) {
        if connection.version.get() >= ProtocolVersion::V5 {
            let format = if compression.is_some() { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
            self.output.extend_from_slice(&connection.out.borrow_mut().split());
            self.decoder.start_segments(format);
            self.segments = Some(SegmentEncoder::new(format));
        } else if let Some(compression) = compression {
            self.decoder.set_compression(compression);
        }
    }

    /// Encodes the answers that are ready and writes as much as the socket accepts.
    fn flush(&mut self, connection: &Connection) -> io::Result<()> {
        let mut ready = connection.out.borrow_mut();
        if !ready.is_empty() {
            let is_large = ready.len() > RETAINED_BYTES;
            match &self.segments {
                Some(encoder) => {
                    encoder.encode(&ready, &mut self.output);
                    ready.clear();
                }
                None if self.output.is_empty() => std::mem::swap(&mut self.output, &mut ready),
                None => {
                    self.output.extend_from_slice(&ready);
                    ready.clear();
                }
            }
            if is_large && ready.is_empty() {
                *ready = BytesMut::new();
            }
            self.is_output_large |= self.output.len() > RETAINED_BYTES;
        }
        drop(ready);
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.try_write(rest) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else if self.written > RETAINED_BYTES {
            self.output.advance(std::mem::take(&mut self.written));
        }
        if self.is_output_large && self.output.is_empty() {
            self.output = BytesMut::new();
            self.is_output_large = false;
        }
        Ok(())
    }
}

impl Connection {
    /// Takes one request.
    fn handle(self: &Rc<Self>, envelope: &Envelope<'_>) -> Effect {
        let header = &envelope.header;
        self.version.set(header.version);
        self.context.metrics.requests.increment();
        if let Some(message) = self.place.refusal() {
            self.error(header.stream, &ErrorResponse::new(ErrorKind::Overloaded, message));
            self.close();
            return Effect::None;
        }
        if let Some(message) = self.stage.get().refusal(header.opcode) {
            self.error(header.stream, &ErrorResponse::new(ErrorKind::Protocol, message));
            return Effect::None;
        }
        self.carry_out(envelope)
    }

    /// Executes one request, unless it has to wait.
    #[inline]
    fn carry_out(self: &Rc<Self>, envelope: &Envelope<'_>) -> Effect {
        let header = &envelope.header;
        let answered_at = self.answered_at.take();
        let count = self.request_count.get();
        self.request_count.set(count + 1);
        let metadata_ids = header.version >= ProtocolVersion::V5;
        let decoded = match decode_request(header, envelope.body, metadata_ids) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.error(header.stream, &error.into());
                return Effect::None;
            }
        };
        let (version, stream) = (header.version, header.stream);
        match &decoded.request {
            Request::Options => {
                let options = handshake::supported(&self.context);
                self.out_bare(|out| encode_supported(out, version, stream, &options));
            }
            Request::Startup(options) => match handshake::startup(version, options) {
                Ok(startup) => {
                    let authenticator = self.context.node.config.authenticator;
                    if authenticator.requires_login() {
                        // Not later: some drivers take an error in the midst of a login for a wrong password, and never come back.
                        if let Err(error) = confirmation::check(&self.context) {
                            self.context.metrics.logins[LoginResult::RolesUnconfirmed as usize].increment();
                            self.error(stream, &to_response(&error));
                            return Effect::None;
                        }
                        let class = authenticator.class();
                        self.out_bare(|out| encode_authenticate(out, version, stream, &class));
                        self.stage.set(Stage::Authenticating);
                    } else {
                        self.out_bare(|out| encode_ready(out, version, stream));
                        self.is_in(None);
                    }
                    *self.startup.borrow_mut() = Some(startup.clone());
                    return Effect::Startup(startup);
                }
                Err(error) => self.error(stream, &error),
            },
            Request::AuthResponse(token) => {
                return Effect::Login(Attempt::new(stream, token.unwrap_or_default()));
            }
            Request::Register(types) => {
                if !self.admits(stream, self.context.clock.monotonic()) {
                    return Effect::None;
                }
                let mut registered = self.registered.get();
                for event_type in types {
                    registered[*event_type as usize] = true;
                }
                self.registered.set(registered);
                self.write(|out| encode_ready(out, version, stream));
            }
            other => {
                let started = answered_at.unwrap_or_else(|| self.context.clock.monotonic());
                if !self.admits(stream, started) {
                    return Effect::None;
                }
                if self.logs.hold_requests() && logged::is_awaited(self, other) {
                    self.request_count.set(count);
                    return Effect::Held;
                }
                if self.turn_began.get().is_none() {
                    self.turn_began.set(Some(started));
                }
                let costs = match CostWishes::of(&decoded.custom_payload) {
                    Ok(costs) => costs,
                    Err(error) => {
                        self.error(stream, &to_response(&error));
                        return Effect::None;
                    }
                };
                let notes = Notes { is_traced: decoded.tracing, costs };
                request::carry_out(self, version, stream, started, notes, other);
            }
        }
        Effect::None
    }

    /// Whether the client may send a request, which began at `now` (monotonic time). Otherwise it is refused, and a connection whose session
    /// has ended ends.
    #[inline]
    fn admits(&self, stream: i16, now: Duration) -> bool {
        let Err(refused) = self.check_admission(now) else { return true };
        self.error(stream, &to_response(&refused));
        if self.admission.has_ended() {
            self.close();
        }
        false
    }

    /// Answers an attempt to log in.
    pub(super) fn answer_login(&self, stream: i16, outcome: Result<Rc<str>, ErrorResponse>) {
        match outcome {
            Ok(role) => {
                self.is_in(Some(role));
                let version = self.version.get();
                self.write(|out| encode_auth_success(out, version, stream, None));
            }
            Err(error) => self.error(stream, &error),
        }
    }

    /// Writes an envelope that is never compressed.
    fn out_bare(&self, write: impl FnOnce(&mut BytesMut)) {
        write(&mut self.out.borrow_mut());
    }

    fn error(&self, stream: i16, error: &ErrorResponse) {
        self.context.metrics.errors.increment();
        let version = self.version.get();
        self.write(|out| encode_error(out, version, stream, error, &Prefix::default()));
    }

    fn refuse_frame(&self, error: &FrameError) {
        self.context.metrics.errors.increment();
        let longest = self.context.node.config.max_frame_bytes as usize;
        if let FrameError::TooLarge { length, version, stream, .. } = error
            && self.stage.get() == Stage::Ready
            && *length <= longest
        {
            let message = format!(
                "The node waits for the rest of large frames of its clients, and has no room for another one of {length} bytes"
            );
            let response = ErrorResponse::new(ErrorKind::Overloaded, message);
            self.write(|out| encode_error(out, *version, *stream, &response, &Prefix::default()));
        } else if let FrameError::UnsupportedVersion { number, stream } = error {
            self.out_bare(|out| write_unsupported_version(out, *stream, *number));
        } else if let Some((version, stream)) = error.reply_to() {
            let response = ErrorResponse::from(error.clone());
            self.write(|out| encode_error(out, version, stream, &response, &Prefix::default()));
        }
    }

    fn send_event(&self, event: &Event) {
        if self.registered.get()[event.event_type() as usize] {
            let version = self.version.get();
            self.write(|out| event.encode(out, version));
        }
    }
}
