//! EVENT messages, and schema changes as they occur in EVENT and RESULT.

use std::net::SocketAddr;

use bytes::BytesMut;

use super::{
    envelope::{EnvelopeWriter, Prefix},
    error::DecodeError,
    header::Opcode,
    version::ProtocolVersion,
    wire::{self, Reader},
};

/// The stream id of events.
pub(crate) const EVENT_STREAM: i16 = -1;

/// A type of event that clients can register for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    TopologyChange,
    StatusChange,
    SchemaChange,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 3] = [Self::TopologyChange, Self::StatusChange, Self::SchemaChange];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::TopologyChange => "TOPOLOGY_CHANGE",
            Self::StatusChange => "STATUS_CHANGE",
            Self::SchemaChange => "SCHEMA_CHANGE",
        }
    }

    /// The type with this name (upper case, as drivers send it).
    pub fn from_name(name: &str) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|event_type| event_type.name() == name)
            .ok_or_else(|| DecodeError::UnknownEventType { name: name.to_owned() })
    }
}

/// An event sent to registered clients. Addresses are those that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    NodeAdded(SocketAddr),
    NodeRemoved(SocketAddr),
    NodeUp(SocketAddr),
    NodeDown(SocketAddr),
    SchemaChange(SchemaChange),
}

impl Event {
    /// The type that a client must have registered for to receive the event.
    pub fn event_type(&self) -> EventType {
        match self {
            Self::NodeAdded(_) | Self::NodeRemoved(_) => EventType::TopologyChange,
            Self::NodeUp(_) | Self::NodeDown(_) => EventType::StatusChange,
            Self::SchemaChange(_) => EventType::SchemaChange,
        }
    }

    /// Appends the EVENT envelope.
    pub fn encode(&self, out: &mut BytesMut, version: ProtocolVersion) {
        let mut envelope = EnvelopeWriter::begin(out, version, EVENT_STREAM, Opcode::Event);
        let body = envelope.body();
        wire::put_string(body, self.event_type().name());
        match self {
            Self::NodeAdded(address) => put_node(body, "NEW_NODE", *address),
            Self::NodeRemoved(address) => put_node(body, "REMOVED_NODE", *address),
            Self::NodeUp(address) => put_node(body, "UP", *address),
            Self::NodeDown(address) => put_node(body, "DOWN", *address),
            Self::SchemaChange(change) => change.encode_body(body, version),
        }
        envelope.finish(&Prefix::default());
    }

    /// Reads the body of an EVENT message (client side).
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let event_type = EventType::from_name(reader.string("an event type")?)?;
        if event_type == EventType::SchemaChange {
            return SchemaChange::decode_body(&mut reader).map(Self::SchemaChange);
        }
        let change = reader.string("a kind of change")?;
        let address = reader.inet("the address of a node")?;
        match (event_type, change) {
            (EventType::TopologyChange, "NEW_NODE") => Ok(Self::NodeAdded(address)),
            (EventType::TopologyChange, "REMOVED_NODE") => Ok(Self::NodeRemoved(address)),
            (EventType::StatusChange, "UP") => Ok(Self::NodeUp(address)),
            (EventType::StatusChange, "DOWN") => Ok(Self::NodeDown(address)),
            _ => Err(DecodeError::UnknownName { what: "kind of change", value: change.to_owned() }),
        }
    }
}

fn put_node(body: &mut BytesMut, change: &str, address: SocketAddr) {
    wire::put_string(body, change);
    wire::put_inet(body, address);
}

/// The kind of a schema change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaChangeKind {
    Created,
    Updated,
    Dropped,
}

impl SchemaChangeKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Dropped];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Updated => "UPDATED",
            Self::Dropped => "DROPPED",
        }
    }
}

/// The object of a schema change. Views are tables; an index change updates its table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SchemaTarget {
    Keyspace,
    Table {
        name: String,
    },
    Type {
        name: String,
    },
    /// Argument types as CQL text.
    Function {
        name: String,
        argument_types: Vec<String>,
    },
    /// Argument types as CQL text.
    Aggregate {
        name: String,
        argument_types: Vec<String>,
    },
}

/// A schema change, as sent in RESULT and EVENT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaChange {
    pub kind: SchemaChangeKind,
    pub keyspace: String,
    pub target: SchemaTarget,
}

impl SchemaChange {
    /// Appends the change. v3 has no functions and aggregates: an update of their keyspace is sent instead.
    pub(super) fn encode_body(&self, body: &mut BytesMut, version: ProtocolVersion) {
        let (target, name, argument_types): (_, Option<&str>, Option<&[String]>) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table { name } => ("TABLE", Some(name), None),
            SchemaTarget::Type { name } => ("TYPE", Some(name), None),
            SchemaTarget::Function { .. } | SchemaTarget::Aggregate { .. }
                if version == ProtocolVersion::V3 =>
            {
                wire::put_string(body, SchemaChangeKind::Updated.name());
                wire::put_string(body, "KEYSPACE");
                wire::put_string(body, &self.keyspace);
                return;
            }
            SchemaTarget::Function { name, argument_types } => ("FUNCTION", Some(name), Some(argument_types)),
            SchemaTarget::Aggregate { name, argument_types } => {
                ("AGGREGATE", Some(name), Some(argument_types))
            }
        };
        wire::put_string(body, self.kind.name());
        wire::put_string(body, target);
        wire::put_string(body, &self.keyspace);
        if let Some(name) = name {
            wire::put_string(body, name);
        }
        if let Some(argument_types) = argument_types {
            wire::put_string_list(body, argument_types);
        }
    }

    /// Reads a change (client side).
    pub(super) fn decode_body(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.string("a kind of schema change")?;
        let kind = SchemaChangeKind::ALL.into_iter().find(|candidate| candidate.name() == kind).ok_or_else(
            || DecodeError::UnknownName { what: "kind of schema change", value: kind.to_owned() },
        )?;
        let target = reader.string("a target of a schema change")?;
        let keyspace = reader.string("a keyspace")?.to_owned();
        let mut name = |what| reader.string(what).map(str::to_owned);
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table { name: name("a table")? },
            "TYPE" => SchemaTarget::Type { name: name("a type")? },
            "FUNCTION" => {
                let name = name("a function")?;
                SchemaTarget::Function { name, argument_types: argument_types(reader)? }
            }
            "AGGREGATE" => {
                let name = name("an aggregate")?;
                SchemaTarget::Aggregate { name, argument_types: argument_types(reader)? }
            }
            other => {
                let what = "target of a schema change";
                return Err(DecodeError::UnknownName { what, value: other.to_owned() });
            }
        };
        Ok(Self { kind, keyspace, target })
    }
}

fn argument_types(reader: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    Ok(reader.string_list("argument types")?.into_iter().map(str::to_owned).collect())
}

/// Appends a `[short]` count and the names: the body of REGISTER.
pub(super) fn put_event_types(body: &mut BytesMut, event_types: &[EventType]) {
    for event_type in wire::counted(body, event_types) {
        wire::put_string(body, event_type.name());
    }
}
