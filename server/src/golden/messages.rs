//! What nodes ask and answer: at least one value of each request and response of each service, and of all that they hold.
#![allow(clippy::needless_pass_by_value, reason = "each value is written where it is passed")]

use super::openings::facts;
use super::*;

fn replica(name: &str, request: ReplicaRequest) -> Sample {
    Sample::request(&format!("replica {name}"), &request)
}

fn cluster(name: &str, request: ClusterRequest) -> Sample {
    Sample::request(&format!("cluster {name}"), &request)
}

fn stream(name: &str, request: StreamRequest) -> Sample {
    Sample::request(&format!("stream {name}"), &request)
}

pub fn ballot(micros: i64) -> Ballot {
    Ballot { micros, salt: 0xfeed_beef, host_id: host(1), scope: SerialScope::Global }
}

pub fn trail() -> Trail {
    let local = Ballot { scope: SerialScope::Local, ..ballot(1_700_000_000_000_001) };
    Trail {
        origins: vec![ballot(1_700_000_000_000_002), local],
        complete_above_micros: 1_699_999_999_999_999,
    }
}

pub fn commit() -> Commit {
    Commit {
        ballot: ballot(1_700_000_000_000_004),
        origin: ballot(1_700_000_000_000_003),
        mutation: mutation().bytes().to_vec(),
        trail: trail(),
    }
}

pub fn accepted(mutation: Option<Vec<u8>>) -> Accepted {
    let proposal = Proposal { origin: ballot(1_700_000_000_000_005), mutation, trail: trail() };
    Accepted { ballot: ballot(1_700_000_000_000_006), proposal }
}

fn forward(kind: ForwardedKind) -> ForwardRequest {
    ForwardRequest {
        epoch: 7,
        token: -3,
        statements: vec![
            ForwardedStatement {
                text: "UPDATE ks.n SET c = c + 1 WHERE k = ?".to_owned(),
                keyspace: None,
                index: None,
                values: vec![ForwardedValue::Bytes(vec![0, 0, 0, 1])],
            },
            ForwardedStatement {
                text: "BEGIN BATCH UPDATE t SET l[0] = ? WHERE k = ? APPLY BATCH".to_owned(),
                keyspace: Some("ks".to_owned()),
                index: Some(0),
                values: vec![ForwardedValue::Null, ForwardedValue::Unset],
            },
        ],
        consistency: 6,
        timestamp: 1_700_000_000_000_000,
        now_seconds: Some(1_700_000_000),
        now_micros: 1_700_000_000_000_123,
        kind,
        timeout_ms: 5_000,
    }
}

fn read(wants: Wants) -> ReplicaRequest {
    ReplicaRequest::Read(ReadRequest {
        epoch: 7,
        table_id: u128::MAX - 1,
        start: b"from".to_vec(),
        end: b"to".to_vec(),
        reversed: true,
        now_seconds: 1_700_000_000,
        live_rows: 100,
        bytes: 1 << 20,
        tombstones: u64::MAX,
        wants,
    })
}

fn paxos(name: &str, order: PaxosOrder) -> Sample {
    let partition = PartitionName { table_id: [9; 16], token: i64::MIN, key: b"tree".to_vec() };
    replica(name, ReplicaRequest::Paxos(Box::new(PaxosRequest { epoch: 7, partition, order })))
}

fn truncation(name: &str, request: TruncationRequest) -> Sample {
    replica(&format!("truncation {name}"), ReplicaRequest::Truncation(request))
}

fn lease(order: LeaseOrder) -> ReplicaRequest {
    ReplicaRequest::Lease(LeaseRequest { table_id: [9; 16], key: b"tree".to_vec(), lease_id: 77, order })
}

pub fn member(number: u8, state: MemberState) -> Member {
    Member {
        host_id: host(u128::from(number)),
        internode_address: address(&format!("10.0.0.{number}:7000")),
        native_address: address(&format!("[2001:db8::{number}]:9042")),
        shard_aware_port: 19042,
        shard_count: 2,
        data_center: "datacenter1".to_owned(),
        rack: format!("rack{number}"),
        tokens: vec![i64::MIN, i64::from(number)],
        state,
        release_version: "0.1.0".to_owned(),
        protocol_version: 1,
        feature_version: 2,
        encrypts_tables: false,
    }
}

fn fetch(resume_from: Option<Vec<u8>>) -> StreamRequest {
    let ranges = vec![TokenRange { start: i64::MIN, end: -1 }, TokenRange { start: 5, end: 4 }];
    StreamRequest::Fetch(FetchRequest {
        epoch: 7,
        table_id: 9,
        ranges,
        shard: 1,
        resume_from,
        max_bytes: 131_072,
    })
}

pub fn requests() -> Vec<Sample> {
    let id = BatchId { created_micros: 1_700_000_000_000_000, random: 0x0123_4567_89ab_cdef };
    let bytes = mutation().bytes().to_vec();
    let freshen = Freshen {
        slice: 15,
        build: u128::MAX - 3,
        table: u128::MAX - 4,
        until_micros: 1_700_000_000_000_000,
        patience_ms: 10_000,
    };
    let read_order = ReadOrder {
        ranges: vec![(b"a".to_vec(), b"b".to_vec()), (b"c".to_vec(), b"d".to_vec())],
        reversed: false,
        now_seconds: 1_700_000_000,
        max_rows: 1,
        max_bytes: 1 << 24,
        max_tombstones: 100_000,
    };
    let prepare = Question::Prepare { ballot: ballot(10), is_write: true, commit: Some(commit()) };
    let of_tables = PaxosOrder::AskOfTables {
        question: prepare.clone(),
        reads: vec![TableRead { table_id: [8; 16], order: read_order.clone() }],
    };
    let prepare_read = Question::Prepare { ballot: ballot(-10), is_write: false, commit: None };
    let propose = |mutation| {
        let accepted = accepted(mutation);
        Question::Propose { ballot: accepted.ballot, proposal: accepted.proposal }
    };
    let raft = |call, payload: &[u8]| ClusterRequest::Raft { call, payload: payload.to_vec() };
    let join = JoinRequest {
        cluster_name: "orchard".to_owned(),
        member: member(4, MemberState::Joining(TransitionPhase::WriteBoth)),
        clock_micros: 1_700_000_000_000_000,
        forward: true,
        patience_ms: 2_000,
    };
    let agreed = ClusterRequest::Agreed {
        version: 12,
        schema_version: Uuid::from_u128(12),
        members: vec![host(1), host(2)],
    };
    let ranges = vec![(9, vec![TokenRange { start: 0, end: 10 }]), (10, Vec::new())];
    vec![
        replica("write", ReplicaRequest::Write { epoch: 300, mutation: bytes.clone() }),
        replica("hint", ReplicaRequest::Hint { mutation: bytes.clone() }),
        replica("forward counter", ReplicaRequest::Forward(forward(ForwardedKind::Counter))),
        replica("forward simple", ReplicaRequest::Forward(forward(ForwardedKind::Simple))),
        replica("forward logged batch", ReplicaRequest::Forward(forward(ForwardedKind::LoggedBatch))),
        replica("forward unlogged batch", ReplicaRequest::Forward(forward(ForwardedKind::UnloggedBatch))),
        replica("store batch", ReplicaRequest::StoreBatch { id, mutations: records::batch() }),
        replica("remove batch", ReplicaRequest::RemoveBatch { id }),
        replica("truncate", ReplicaRequest::Truncate { table_id: 9 }),
        replica("read data", read(Wants::Data)),
        replica("read digest", read(Wants::Digest)),
        paxos("paxos prepare", PaxosOrder::Ask { question: prepare, read: Some(read_order) }),
        paxos("paxos prepare of tables", of_tables),
        paxos("paxos prepare read", PaxosOrder::Ask { question: prepare_read, read: None }),
        paxos("paxos propose", PaxosOrder::Ask { question: propose(Some(bytes.clone())), read: None }),
        paxos("paxos propose nothing", PaxosOrder::Ask { question: propose(None), read: None }),
        paxos("paxos commit", PaxosOrder::Commit(commit())),
        paxos("paxos forget", PaxosOrder::Forget { ballot: ballot(11) }),
        replica(
            "keep hint",
            ReplicaRequest::KeepHint {
                target: host(2),
                created_micros: 1_700_000_000_000_000,
                mutation: bytes.clone(),
            },
        ),
        replica(
            "keep aged hint",
            ReplicaRequest::KeepAgedHint {
                target: host(2),
                created_micros: 1_700_000_000_000_000,
                age_micros: 60_000_000,
                mutation: bytes,
            },
        ),
        replica("lease take", lease(LeaseOrder::Take)),
        replica("lease give back", lease(LeaseOrder::GiveBack)),
        truncation("latest ballot", TruncationRequest::LatestBallot { table_id: 9 }),
        truncation("bind", TruncationRequest::Bind { table_id: 9, truncated_micros: 1_700_000_000_000_000 }),
        cluster("version", ClusterRequest::Version),
        cluster("raft append", raft(RaftCall::Append, b"{}")),
        cluster("raft vote", raft(RaftCall::Vote, b"{}")),
        cluster("raft pre-vote", raft(RaftCall::PreVote, b"{}")),
        cluster("raft snapshot", raft(RaftCall::Snapshot, b"{}")),
        cluster("raft transfer leader", raft(RaftCall::TransferLeader, b"{}")),
        cluster(
            "propose",
            ClusterRequest::Propose { command: b"{}".to_vec(), forward: false, patience_ms: 500 },
        ),
        cluster("applied", ClusterRequest::Applied { version: 12, patience_ms: 500 }),
        cluster("join", ClusterRequest::Join(Box::new(join.clone()))),
        cluster(
            "join encrypting",
            ClusterRequest::JoinEncrypting(Box::new(join), Some(Place { of: host(3), accepts_loss: false })),
        ),
        cluster("newest version", ClusterRequest::NewestVersion),
        cluster("gossip", ClusterRequest::Gossip { bytes: vec![1, 2, 3] }),
        cluster("facts", ClusterRequest::Status(facts(ServingState::Serving))),
        cluster(
            "disk",
            ClusterRequest::Disk(DiskAnnouncement {
                generation: 1_700_000_000_000_000,
                sequence: 3,
                status: DiskStatus { usage: DiskUsage::Stuffed, is_reserve_reached: true },
            }),
        ),
        cluster("snapshots", ClusterRequest::Snapshots { order: r#"{"CarryOut":"List"}"#.to_owned() }),
        cluster("you were removed", ClusterRequest::YouWereRemoved),
        cluster("agreed", agreed),
        stream("fetch first", fetch(None)),
        stream("fetch next", fetch(Some(b"a full key".to_vec()))),
        stream("estimate", StreamRequest::Estimate { parts: ranges }),
        stream("status", StreamRequest::Status { epoch: 7 }),
        Sample::request("views written", &ViewsRequest::Written { slices: 0x8001 }),
        Sample::request("views freshen", &ViewsRequest::Freshen(freshen)),
    ]
}

pub fn responses() -> Vec<Sample> {
    let views = |name: &str, value| Sample::response::<ViewsRequest>(&format!("views {name}"), &Ok(value));
    let replica =
        |name: &str, value| Sample::response::<ReplicaRequest>(&format!("replica {name}"), &Ok(value));
    let cluster =
        |name: &str, value| Sample::response::<ClusterRequest>(&format!("cluster {name}"), &Ok(value));
    let stream = |name: &str, value| Sample::response::<StreamRequest>(&format!("stream {name}"), &Ok(value));
    let failed =
        |name: &str, value| Sample::response::<ReplicaRequest>(&format!("failed {name}"), &Err(value));
    let forwarded =
        |name: &str, error| replica(&format!("forwarded {name}"), ReplicaResponse::Forwarded(Err(error)));
    let versions = RangeVersions {
        partitions: vec![mutation().bytes().to_vec(), Vec::new()],
        resume: Some(b"on".to_vec()),
    };
    let promise = Promise {
        permitted_above_micros: None,
        accepted: Some(accepted(Some(mutation().bytes().to_vec()))),
        committed: Some(commit()),
        is_stable: true,
        low_bound_micros: i64::MIN,
        read: Some(vec![versions, RangeVersions { partitions: Vec::new(), resume: None }]),
    };
    let permitted = Promise {
        permitted_above_micros: Some(77),
        accepted: None,
        committed: None,
        is_stable: false,
        low_bound_micros: 5,
        read: None,
    };
    let reasons = [
        FailureReason::Unknown,
        FailureReason::TooManyTombstones,
        FailureReason::TimedOut,
        FailureReason::IncompatibleSchema,
        FailureReason::NodeDown,
    ];
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    let address_4: IpAddr = "10.0.0.1".parse().unwrap();
    let failures = reasons.iter().zip([address, address_4].into_iter().cycle());
    let failures = failures.map(|(reason, address)| (address, *reason)).collect();
    let mut partitions = (mutation().bytes().len() as u32).to_le_bytes().to_vec();
    partitions.extend_from_slice(mutation().bytes());
    let data = ReadAnswer::Data { partitions, resume: Some(b"on".to_vec()) };
    let paxos = |name: &str, value| replica(&format!("paxos {name}"), ReplicaResponse::Paxos(value));
    let lease = |name: &str, value| replica(&format!("lease {name}"), ReplicaResponse::Lease(value));
    let piece = |resume| {
        StreamResponse::StreamChunk(StreamChunk {
            mutations: b"bytes".to_vec(),
            crc32: 0x1234_5678,
            count: 3,
            resume,
        })
    };
    let status = TransferStatus { epoch: 7, is_done: true, lost_ranges: 2 };
    let mut samples = vec![
        replica("written", ReplicaResponse::Written),
        replica("not owner", ReplicaResponse::NotOwner),
        replica("forwarded", ReplicaResponse::Forwarded(Ok(()))),
        forwarded("invalid", ForwardedError::Invalid("no such row".to_owned())),
        forwarded("unavailable", ForwardedError::Unavailable { required: 2, alive: 1 }),
        forwarded("timed out", ForwardedError::TimedOut { received: 1, required: 2 }),
        forwarded("failed", ForwardedError::Failed { received: 1, required: 2, failures }),
        forwarded("overloaded", ForwardedError::Overloaded("too much".to_owned())),
        forwarded("server", ForwardedError::Server("disk".to_owned())),
        replica("read data", ReplicaResponse::Read(data)),
        replica("read digest", ReplicaResponse::Read(ReadAnswer::Digest([0xd1; 16]))),
        paxos("promised", PaxosResponse::Promised(Box::new(promise))),
        paxos("promised read", PaxosResponse::Promised(Box::new(permitted))),
        paxos("rejected", PaxosResponse::Rejected { above_micros: 12 }),
        paxos("accepted", PaxosResponse::Accepted),
        paxos("committed", PaxosResponse::Committed),
        paxos("forgotten", PaxosResponse::Forgotten),
        lease("granted", LeaseAnswer::Granted { is_wanted: true }),
        lease("in line", LeaseAnswer::InLine),
        lease("given back", LeaseAnswer::GivenBack),
        replica("latest ballot", ReplicaResponse::LatestBallot { micros: 1_700_000_000_000_000 }),
        cluster("version", ClusterResponse::Version("0.1.0".to_owned())),
        cluster("raft", ClusterResponse::Raft(b"{}".to_vec())),
        cluster("outcome applied", ClusterResponse::Outcome(CommandOutcome::Applied { version: 12 })),
        cluster("outcome conflict", ClusterResponse::Outcome(CommandOutcome::Conflict { version: 12 })),
        cluster("outcome busy", ClusterResponse::Outcome(CommandOutcome::Busy { host_id: host(2) })),
        cluster("no leader", ClusterResponse::NoLeader),
        cluster("applied", ClusterResponse::Applied { version: 12 }),
        cluster("received", ClusterResponse::Received),
        cluster("snapshots", ClusterResponse::Snapshots { answer: "{}".to_owned() }),
        stream("piece", piece(Some(b"a full key".to_vec()))),
        stream("piece last", piece(None)),
        stream("estimate", StreamResponse::Estimate { bytes: vec![0, 1, u64::MAX] }),
        stream("status", StreamResponse::Status(status)),
        views("noted", ViewsResponse::Noted),
        views("fresh", ViewsResponse::Fresh),
        views("not held", ViewsResponse::NotHeld),
        views("not yet", ViewsResponse::NotYet),
        failed("stale ring", Failure::StaleRing { epoch: 300 }),
        failed("unknown table", Failure::UnknownTable { table_id: 9 }),
        failed("overloaded", Failure::Overloaded("too much".to_owned())),
        failed("too many tombstones", Failure::TooManyTombstones),
        failed("too many index files", Failure::TooManyIndexFiles),
        failed("malformed", Failure::Malformed("what?".to_owned())),
        failed("internal", Failure::Internal("disk".to_owned())),
    ];
    for (name, refusal) in refusals() {
        let outcome = ClusterResponse::Outcome(CommandOutcome::Refused(refusal.clone()));
        samples.push(cluster(&format!("outcome refused {name}"), outcome));
        samples.push(cluster(&format!("refused {name}"), ClusterResponse::Refused(refusal)));
    }
    samples
}

fn refusals() -> Vec<(&'static str, Refusal)> {
    let state = |found| Refusal::WrongState { host_id: host(1), found };
    vec![
        ("removed", Refusal::Removed { host_id: host(1) }),
        ("already member", Refusal::AlreadyMember { host_id: host(1) }),
        ("address", Refusal::AddressTaken { address: address("10.0.0.1:7000"), by: host(1) }),
        ("token", Refusal::TokenTaken { token: -1, by: host(1) }),
        ("tokens", Refusal::Tokens),
        ("unknown member", Refusal::UnknownMember { host_id: host(1) }),
        ("joining", state(MemberState::Joining(TransitionPhase::WriteBoth))),
        ("joining read new", state(MemberState::Joining(TransitionPhase::ReadNew))),
        ("normal", state(MemberState::Normal)),
        ("leaving", state(MemberState::Leaving(TransitionPhase::WriteBoth))),
        ("leaving read new", state(MemberState::Leaving(TransitionPhase::ReadNew))),
        ("last owner", Refusal::LastOwner { host_id: host(1) }),
        ("already founded", Refusal::AlreadyFounded),
        ("not founded", Refusal::NotFounded),
        ("malformed", Refusal::Malformed("what?".to_owned())),
        (
            "other cluster",
            Refusal::OtherCluster { ours: "orchard".to_owned(), theirs: "vineyard".to_owned() },
        ),
        ("clock skew", Refusal::ClockSkew { skew_ms: 20_000, allowed_ms: 10_000 }),
        ("protocol version", Refusal::ProtocolVersion { ours: 1, theirs: 2 }),
        ("feature version", Refusal::FeatureVersion { host_id: host(1), level: 2, known: 1 }),
        (
            "replication in transition",
            Refusal::ReplicationInTransition {
                keyspace: "ks".to_owned(),
                host_id: host(1),
                address: address("10.0.0.1:7000"),
            },
        ),
    ]
}
