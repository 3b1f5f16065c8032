//! Bytes of earlier releases (`tests/golden`): this program decodes them, and encodes equal values to equal bytes.
//!
//! The values are in the modules below, each under the name of its bytes in the release's file. A value that is new
//! since a release has no line there.
//!
//! All names of the program that are needed are imported here, so that a reorganisation changes them in one place.
#![allow(clippy::wildcard_imports, reason = "the names of the program stand in this one place")]

mod messages;
mod metadata;
mod openings;
mod records;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use helenus_engine::commit_log::{CommitLogOptions, SyncMode};
use helenus_engine::io::{
    Clock, Disk, Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk,
};
use helenus_engine::{
    Cell, CellKind, Deletion, Expiry, Liveness, Mutation, MutationBuilder, RowBuilder, Shard, ShardOptions,
    TableId,
};
use helenus_internode::frame::{self, Decoder, Frame, FrameKind};
use helenus_internode::handshake::{Greeting, Local, Opening, Refusal as LinkRefusal};
use helenus_internode::service::{self, Failure, ServiceRequest};
use helenus_projector::message::{Freshen, ViewsRequest, ViewsResponse};
use helenus_query::error::FailureReason;
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::ddl::{ChangeTarget, ChangeType, SchemaChangeEvent};
use helenus_query::schema::document::CatalogDocument;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState, TransitionPhase};
use helenus_ring::metadata::{
    ClusterState, Command, CommandOutcome, MemberUpdate, Refusal, SchemaChangeCommand, apply,
};
use helenus_ring::placement::TokenRange;
use helenus_testing::{CREATE_KEYSPACE, catalog_of, changed};
use openraft::async_runtime::Oneshot;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, Membership};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::liveness::detector::{Detector, NodeIdentity, Settings};
use crate::cluster::message::{ClusterRequest, ClusterResponse, JoinRequest, Place, RaftCall};
use crate::cluster::raft::log_store::{self, LogStore};
use crate::cluster::raft::runtime::LocalOneshot;
use crate::cluster::raft::types::{Entry, LogId, MetadataTypes, SnapshotMeta, StoredMembership, Vote};
use crate::cluster::stored::{Contents, Stored, decode_file};
use crate::node::identity::Identity;
use crate::streaming::message::{FetchRequest, StreamChunk, StreamRequest, StreamResponse, TransferStatus};
use crate::streaming::progress::StreamTaskProgress;
use helenus_execution::coordinator::batch_log::batch_id::BatchId;
use helenus_execution::coordinator::batch_log::store as batch_log;
use helenus_execution::coordinator::paxos::ballot::{Ballot, SerialScope};
use helenus_execution::coordinator::paxos::message::{
    LeaseAnswer, LeaseOrder, LeaseRequest, PartitionName, PaxosOrder, PaxosRequest, PaxosResponse,
    RangeVersions, ReadOrder, TableRead,
};
use helenus_execution::coordinator::paxos::proposer::{Promise, Question};
use helenus_execution::coordinator::paxos::state::{Accepted, Commit, Proposal, Registers, Trail};
use helenus_execution::coordinator::paxos::store::{self as paxos_store, Change};
use helenus_execution::coordinator::replica::answer::{ReadAnswer, ReadRequest, Wants};
use helenus_execution::coordinator::replica::forwarded::{
    ForwardRequest, ForwardedError, ForwardedKind, ForwardedStatement, ForwardedValue,
};
use helenus_execution::coordinator::replica::message::{ReplicaRequest, ReplicaResponse, TruncationRequest};
use helenus_execution::shard::disk_status::{DiskAnnouncement, DiskStatus, DiskUsage};
use helenus_execution::shard::status_table::{NodeStatus, ServingState};

/// Releases whose bytes are kept.
const RELEASES: &[&str] = &["a1a536a"];

/// Describes the decoded bytes.
type Show = Box<dyn Fn(&[u8]) -> String>;

/// A named value.
struct Sample {
    name: String,
    /// The bytes to which this program encodes the value.
    bytes: Vec<u8>,
    /// The value, for people and for comparison.
    shown: String,
    show: Show,
}

impl Sample {
    fn new<T: Debug>(
        name: &str,
        value: &T,
        encode: impl Fn(&T) -> Vec<u8>,
        decode: impl Fn(&[u8]) -> T + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            bytes: encode(value),
            shown: format!("{value:?}"),
            show: Box::new(move |bytes| format!("{:?}", decode(bytes))),
        }
    }

    /// A request with the envelope of its service.
    fn request<R: Debug + ServiceRequest>(name: &str, request: &R) -> Self {
        let encode = |request: &R| service::encode_request(request).unwrap().bytes.to_vec();
        Self::new(name, request, encode, |bytes| {
            let (id, request) = service::split_request(bytes).unwrap();
            assert_eq!(id, R::ID);
            service::decode_request(request).unwrap()
        })
    }

    /// A response of a service, or a failure, with its envelope.
    fn response<R: ServiceRequest<Response: Debug>>(
        name: &str,
        response: &Result<R::Response, Failure>,
    ) -> Self {
        let encode = |response: &_| service::encode_response::<R>(response).unwrap().to_vec();
        Self::new(name, response, encode, |bytes| service::decode_response::<R>(bytes).unwrap())
    }

    /// A value in the encoding of message parts.
    fn postcard<T: Debug + Serialize + DeserializeOwned>(name: &str, value: &T) -> Self {
        let encode = |value: &T| postcard::to_stdvec(value).unwrap();
        Self::new(name, value, encode, |bytes| postcard::from_bytes(bytes).unwrap())
    }

    fn json<T: Debug + Serialize + DeserializeOwned>(name: &str, value: &T) -> Self {
        let encode = |value: &T| serde_json::to_vec(value).unwrap();
        Self::new(name, value, encode, |bytes| serde_json::from_slice(bytes).unwrap())
    }
}

/// The form in which a file contains bytes.
#[derive(Clone, Copy)]
enum Form {
    Hex,
    /// Unchanged: JSON on one line.
    Text,
}

impl Form {
    fn write(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat(),
            Self::Text => String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    fn read(self, text: &str) -> Vec<u8> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        match self {
            Self::Hex => text.as_bytes().chunks(2).map(byte).collect(),
            Self::Text => text.as_bytes().to_vec(),
        }
    }
}

/// The files of lines `name = bytes`.
fn groups() -> Vec<(&'static str, Form, Vec<Sample>)> {
    vec![
        ("requests.txt", Form::Hex, messages::requests()),
        ("responses.txt", Form::Hex, messages::responses()),
        ("openings.txt", Form::Hex, openings::openings()),
        ("frames.txt", Form::Hex, openings::frames()),
        ("gossip.txt", Form::Hex, openings::gossip()),
        ("commands.txt", Form::Text, metadata::commands()),
        ("raft-messages.txt", Form::Text, metadata::raft_messages()),
        ("votes.txt", Form::Text, metadata::votes()),
        ("records.txt", Form::Hex, records::records()),
        ("node.txt", Form::Text, records::identities()),
    ]
}

/// The directory with the bytes of a release.
fn directory(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(release)
}

#[test]
fn each_line_of_a_release_is_read_and_still_written_so() {
    for release in RELEASES {
        for (file, form, samples) in groups() {
            let text = fs::read_to_string(directory(release).join(file)).unwrap();
            for line in text.lines() {
                let (name, bytes) = line.split_once(" = ").unwrap();
                let sample = samples.iter().find(|sample| sample.name == name);
                let sample = sample.unwrap_or_else(|| panic!("no value for {name} of {release}/{file}"));
                assert_eq!((sample.show)(&form.read(bytes)), sample.shown, "{release}/{file}: {name}");
                assert_eq!(form.write(&sample.bytes), bytes, "{release}/{file}: {name} is written otherwise");
            }
        }
    }
}

/// Writes the files of a new release; see `tests/golden/README.md`. `HELENUS_GOLDEN`: its name.
#[test]
#[ignore = "writes files"]
fn write_a_release() {
    let directory = directory(&std::env::var("HELENUS_GOLDEN").unwrap());
    fs::create_dir_all(&directory).unwrap();
    for (file, form, samples) in groups() {
        let line = |sample: &Sample| format!("{} = {}\n", sample.name, form.write(&sample.bytes));
        fs::write(directory.join(file), samples.iter().map(line).collect::<String>()).unwrap();
    }
    metadata::write_catalogs(&directory);
    shards::write(&directory);
}

fn host(number: u128) -> HostId {
    Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_ee00 + number)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A row with every kind of cell and a liveness; a row deletion; a range tombstone.
fn mutation() -> Mutation {
    let expiry = Expiry { ttl: 600, expires_at: 1_700_000_600 };
    let deletion = Deletion { timestamp: 1_700_000_000_000_000, local_deletion_time: 1_700_000_000 };
    let mut row = RowBuilder::new();
    row.set_liveness(Liveness { timestamp: 1_700_000_000_000_001, expiry: Some(expiry) });
    row.delete_column(5, deletion);
    let kinds = [
        (1, &b""[..], CellKind::Live, &b"orchard"[..]),
        (2, b"", CellKind::Expiring(expiry), b"apple"),
        (3, b"", CellKind::Tombstone { local_deletion_time: 1_700_000_000 }, b""),
        (5, b"key", CellKind::Live, b"value"),
    ];
    for (column, path, kind, value) in kinds {
        row.cell(Cell { column, path, timestamp: 1_700_000_000_000_001, kind, value });
    }
    let mut deleted = RowBuilder::new();
    deleted.set_deletion(deletion);
    let mut builder = MutationBuilder::new(TableId([9; 16]), -4_611_686_018_427_387_904, b"tree").unwrap();
    builder.row(&[2, 1], &mut row).row(&[2, 2], &mut deleted).delete_range(&[2, 3], &[2, 5], deletion);
    builder.build()
}
