//! Encodes outcomes as response envelopes.

use bytes::BytesMut;
use cql_lite::frame::response::{encode_error, encode_schema_change, encode_set_keyspace, encode_void};
use cql_lite::frame::rows::SendMetadata;
use cql_lite::frame::{ErrorKind, Prefix, ProtocolVersion, RowsWriter};
use helenus_query::error::Result;
use helenus_query::run::select::ResultPage;
use helenus_query::statement::{Description, columns_metadata};

use crate::errors::to_response;
use helenus_execution::coordinator::Outcome;

/// The way in which one request is answered.
#[derive(Debug, Clone)]
pub struct Responder {
    pub version: ProtocolVersion,
    pub stream: i16,
    pub tracing_id: Option<[u8; 16]>,
    pub skip_metadata: bool,
    /// The result metadata that the client knows (v5).
    pub known_metadata_id: Option<Vec<u8>>,
    pub warnings: Vec<String>,
    pub custom_payload: Vec<(String, Option<Vec<u8>>)>,
    /// The client has negotiated an error of its own for too many requests.
    pub knows_rate_limits: bool,
}

impl Responder {
    pub fn new(version: ProtocolVersion, stream: i16) -> Self {
        Self {
            version,
            stream,
            tracing_id: None,
            skip_metadata: false,
            known_metadata_id: None,
            warnings: Vec::new(),
            custom_payload: Vec::new(),
            knows_rate_limits: false,
        }
    }

    fn prefix(&self) -> Prefix<'_> {
        Prefix { tracing_id: self.tracing_id, warnings: &self.warnings, custom_payload: &self.custom_payload }
    }

    /// Appends the answer to a statement.
    pub fn respond(&self, out: &mut BytesMut, statement: Option<&Description>, outcome: &Result<Outcome>) {
        let (version, stream) = (self.version, self.stream);
        match outcome {
            Err(error) => {
                let mut response = to_response(error);
                if !self.knows_rate_limits && matches!(response.kind, ErrorKind::RateLimit { .. }) {
                    response.kind = ErrorKind::Overloaded;
                }
                encode_error(out, version, stream, &response, &self.prefix());
            }
            Ok(Outcome::Void) => encode_void(out, version, stream, &self.prefix()),
            Ok(Outcome::Warned(warnings)) => {
                let warnings = [self.warnings.as_slice(), warnings.as_slice()].concat();
                encode_void(out, version, stream, &Prefix { warnings: &warnings, ..self.prefix() });
            }
            Ok(Outcome::SetKeyspace(keyspace)) => {
                encode_set_keyspace(out, version, stream, keyspace, &self.prefix());
            }
            Ok(Outcome::SchemaChange { change, warnings }) => {
                let warnings = [self.warnings.as_slice(), warnings.as_slice()].concat();
                let prefix = Prefix { warnings: &warnings, ..self.prefix() };
                encode_schema_change(out, version, stream, change, &prefix);
            }
            Ok(Outcome::Rows(page)) => self.rows(out, statement, page),
            Ok(Outcome::OwnRows { keyspace, table, columns, page }) => {
                let columns = columns_metadata(version, keyspace, table, columns);
                let mut writer = RowsWriter::begin(out, version, stream, &columns, SendMetadata::Full);
                writer.write_encoded(&page.rows);
                writer.finish(page.row_count as i32, None, &self.prefix());
            }
        }
    }

    fn rows(&self, out: &mut BytesMut, statement: Option<&Description>, page: &ResultPage) {
        let metadata = statement.and_then(|statement| {
            statement.metadata(self.version).result.as_ref().map(|columns| (statement, columns))
        });
        let Some((statement, columns)) = metadata else {
            return encode_void(out, self.version, self.stream, &self.prefix());
        };
        let is_current = self.known_metadata_id.as_deref().is_none_or(|known| known == statement.metadata_id);
        let send = if !is_current {
            SendMetadata::Changed { new_id: &statement.metadata_id }
        } else if self.skip_metadata {
            SendMetadata::Skip
        } else {
            SendMetadata::Full
        };
        let state = page.paging_state.as_ref().map(|state| state.encode(statement.fingerprint));
        out.reserve(page.rows.len() + 256);
        let mut writer = RowsWriter::begin(out, self.version, self.stream, columns, send);
        writer.write_encoded(&page.rows);
        writer.finish(page.row_count as i32, state.as_deref(), &self.prefix());
    }
}
