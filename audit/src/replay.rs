//! `helenus replay`: asks a cluster again what a full query log has recorded, and compares how it ends.
//!
//! Requests of one client go over one connection, each when the one before it is answered, in the order in which they were answered when
//! they were recorded. Different clients are independent of each other; several of them share a connection.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use bytes::BytesMut;
use cql_lite::frame::client::{Response, decode_response, encode_request};
use cql_lite::frame::segment::{SegmentEncoder, SegmentFormat};
use cql_lite::frame::{BatchQuery, Decoder, ErrorCode, Flags, ProtocolVersion, Request, Role};
use helenus_tls::stream::Stream;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::reader::{Item, LogReader, Place, ReadError};
use crate::record::{Outcome, Record, RecordError, RecordedRequest};
use crate::statement_text::is_about_roles;
use crate::target::Target;

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Requests that wait for one connection.
const QUEUE_LENGTH: usize = 64;
/// Differences that are told one by one.
const TOLD_MAX: u64 = 20;
/// The outcome of a request that a role may not make.
const UNAUTHORIZED: Outcome = Outcome::Error(ErrorCode::Unauthorized as u32);
const READ_BYTES: usize = 64 << 10;

/// The reason why a replay ends early.
#[derive(Debug, Error)]
pub(crate) enum ReplayError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the target {target}: {source}")]
    Connection { target: String, source: io::Error },
    #[error("the target has answered with what cannot be read: {0}")]
    Answer(String),
    #[error("the target refuses the connection: {0}")]
    Refused(String),
    #[error("the target asks for a name and a password: see --user and --password-file")]
    NoCredentials,
    #[error("a connection to the target has ended early")]
    Ended,
}

/// What a replay has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub same: u64,
    pub different: u64,
    /// Of these, requests that the target refused for want of a permission.
    pub unauthorized: u64,
    /// Statements about roles: their passwords are not in the log.
    pub skipped_roles: u64,
    /// Pages behind the first one, whose states belong to the recorded cluster.
    pub skipped_pages: u64,
    /// That the log says are missing.
    pub missing: u64,
    /// Files that end within a record.
    pub cut_off: u64,
}

/// A connection to the target.
struct Client {
    address: String,
    stream: Stream,
    input: BytesMut,
    decoder: Decoder,
    /// Once it is open.
    encoder: Option<SegmentEncoder>,
}

/// What an answer says.
enum Answer {
    Outcome(Outcome, String),
    Ready,
    Authenticate,
    Authenticated,
}

impl Client {
    async fn open(target: &Target) -> Result<Self, ReplayError> {
        let failed = |source| ReplayError::Connection { target: target.address.clone(), source };
        let stream = target.connect().await.map_err(failed)?;
        let mut client = Self {
            address: target.address.clone(),
            stream,
            input: BytesMut::new(),
            decoder: Decoder::new(Role::Client, ANSWER_BYTES_MAX),
            encoder: None,
        };
        let startup = Request::Startup(vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "helenus replay")]);
        let answer = client.ask(&startup).await?;
        client.decoder.start_segments(SegmentFormat::Plain);
        client.encoder = Some(SegmentEncoder::new(SegmentFormat::Plain));
        match answer {
            Answer::Ready => return Ok(client),
            Answer::Authenticate => {}
            Answer::Outcome(_, message) => return Err(ReplayError::Refused(message)),
            Answer::Authenticated => return Err(ReplayError::Answer("AUTH_SUCCESS".to_owned())),
        }
        let (user, password) = target.credentials.as_ref().ok_or(ReplayError::NoCredentials)?;
        let token = format!("\0{user}\0{password}");
        match client.ask(&Request::AuthResponse(Some(token.as_bytes()))).await? {
            Answer::Authenticated => Ok(client),
            Answer::Outcome(_, message) => Err(ReplayError::Refused(message)),
            Answer::Ready | Answer::Authenticate => Err(ReplayError::Answer("READY".to_owned())),
        }
    }

    async fn ask(&mut self, request: &Request<'_>) -> Result<Answer, ReplayError> {
        let mut envelope = BytesMut::new();
        encode_request(&mut envelope, ProtocolVersion::V5, 0, Flags::NONE, &[], request);
        let mut output = BytesMut::new();
        match self.encoder {
            Some(encoder) => encoder.encode(&envelope, &mut output),
            None => output = envelope,
        }
        let failed = |source| ReplayError::Connection { target: self.address.clone(), source };
        self.stream.write_all(&output).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)?;
        loop {
            let answered = self.decoder.next(&mut self.input);
            let answered = answered.map_err(|error| ReplayError::Answer(error.to_string()))?;
            if let Some(envelope) = answered {
                let decoded = decode_response(&envelope.header, envelope.body, true);
                let decoded = decoded.map_err(|error| ReplayError::Answer(error.to_string()))?;
                return Ok(match decoded.response {
                    Response::Ready => Answer::Ready,
                    Response::Authenticate { .. } => Answer::Authenticate,
                    Response::AuthSuccess(_) => Answer::Authenticated,
                    Response::Error { code, message, .. } => {
                        Answer::Outcome(Outcome::Error(code as u32), message.to_owned())
                    }
                    Response::Rows(rows) => {
                        Answer::Outcome(Outcome::Rows(rows.row_count as u64), String::new())
                    }
                    Response::Void | Response::SetKeyspace(_) | Response::SchemaChange(_) => {
                        Answer::Outcome(Outcome::Done, String::new())
                    }
                    Response::Event(_) => continue,
                    other => return Err(ReplayError::Answer(format!("{other:?}"))),
                });
            }
            self.input.reserve(READ_BYTES);
            let read = self.stream.read_buf(&mut self.input).await;
            let failed = |source| ReplayError::Connection { target: self.address.clone(), source };
            if read.map_err(failed)? == 0 {
                return Err(ReplayError::Ended);
            }
        }
    }
}

/// The text of an outcome in the report.
pub(crate) fn outcome_text(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Rows(rows) => format!("{rows} rows"),
        Outcome::Error(code) => format!("error 0x{code:04x}"),
    }
}

/// The texts of a request's statements.
pub(crate) fn texts(request: &Request<'_>) -> Vec<String> {
    match request {
        Request::Query(query) => vec![query.statement.to_owned()],
        Request::Batch(batch) => batch
            .statements()
            .filter_map(|(query, _)| match query {
                BatchQuery::Text(text) => Some(text.to_owned()),
                BatchQuery::Prepared(_) => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// What became of the requests of a queue.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    same: u64,
    different: u64,
    unauthorized: u64,
}

/// Asks the requests of its queue, one after the other.
async fn work(
    target: Target,
    mut queue: mpsc::Receiver<(Place, RecordedRequest)>,
    tell: mpsc::UnboundedSender<String>,
) -> Result<Ended, ReplayError> {
    let mut ended = Ended::default();
    let mut client = None;
    while let Some((place, recorded)) = queue.recv().await {
        let client = match &mut client {
            Some(client) => client,
            none => none.insert(Client::open(&target).await?),
        };
        let request = recorded.request()?;
        let Answer::Outcome(outcome, message) = client.ask(&request).await? else {
            return Err(ReplayError::Answer("a part of a handshake".to_owned()));
        };
        if outcome == recorded.outcome {
            ended.same += 1;
            continue;
        }
        ended.different += 1;
        ended.unauthorized += u64::from(outcome == UNAUTHORIZED);
        let reason = if message.is_empty() { String::new() } else { format!(" ({message})") };
        // The one who listens lives longer.
        let _ = tell.send(format!(
            "{} at {}: {}: recorded {}, replayed {}{reason}",
            place.path.display(),
            place.offset,
            texts(&request).join("; "),
            outcome_text(recorded.outcome),
            outcome_text(outcome)
        ));
    }
    Ok(ended)
}

/// Replays the log, within a set of local tasks. `told` gets the first differences, and what is wrong with files.
pub(crate) async fn replay(
    path: &Path,
    target: &Target,
    told: &mut dyn FnMut(&str),
) -> Result<Summary, ReplayError> {
    let mut reader = LogReader::open(path)?;
    // Connects before it reads: an unreachable target fails at once.
    drop(Client::open(target).await?);
    let mut summary = Summary::default();
    let (tell, mut differences) = mpsc::unbounded_channel();
    let (queues, workers): (Vec<_>, Vec<_>) = (0..target.connections.max(1))
        .map(|_| {
            let (queue, requests) = mpsc::channel(QUEUE_LENGTH);
            (queue, tokio::task::spawn_local(work(target.clone(), requests, tell.clone())))
        })
        .unzip();
    drop(tell);
    let mut told_count = 0;
    let mut tell_some = |differences: &mut mpsc::UnboundedReceiver<String>| {
        while let Ok(difference) = differences.try_recv() {
            told_count += 1;
            if told_count <= TOLD_MAX {
                told(&difference);
            }
        }
    };
    let mut cut_off = Vec::new();
    let mut read_error = None;
    loop {
        tell_some(&mut differences);
        let (place, item) = match reader.read() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(error) => {
                read_error = Some(error);
                break;
            }
        };
        let recorded = match item {
            Item::CutOff => {
                summary.cut_off += 1;
                cut_off.push(place);
                continue;
            }
            Item::Record(Record::Gap(missing)) => {
                summary.missing += missing;
                continue;
            }
            Item::Record(Record::Request(recorded)) => recorded,
        };
        let (is_about_roles, is_later_page) = {
            let request = recorded.request()?;
            let is_later_page =
                matches!(&request, Request::Query(query) if query.parameters.paging_state.is_some());
            (texts(&request).iter().any(|text| is_about_roles(text)), is_later_page)
        };
        if is_about_roles || is_later_page {
            summary.skipped_roles += u64::from(is_about_roles);
            summary.skipped_pages += u64::from(!is_about_roles);
            continue;
        }
        let mut hasher = DefaultHasher::new();
        recorded.source.hash(&mut hasher);
        let chosen = &queues[(hasher.finish() % queues.len() as u64) as usize];
        if chosen.send((place, recorded)).await.is_err() {
            // The worker has ended with an error, which is reported below.
            break;
        }
    }
    drop(queues);
    for worker in workers {
        let ended = worker.await.map_err(|_| ReplayError::Ended)??;
        summary.same += ended.same;
        summary.different += ended.different;
        summary.unauthorized += ended.unauthorized;
    }
    tell_some(&mut differences);
    for place in cut_off {
        told(&format!("{} ends within a record at offset {}", place.path.display(), place.offset));
    }
    read_error.map_or(Ok(summary), |error| Err(error.into()))
}
