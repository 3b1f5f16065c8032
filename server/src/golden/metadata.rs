//! The metadata log: commands, entries, votes, messages between members, and the file `catalog`.

use super::messages::member;
use super::*;

/// The schema before the last change, and after it.
fn schemas() -> (Catalog, Catalog) {
    let statements = [
        CREATE_KEYSPACE,
        "CREATE TYPE zz (x int, \"Odd name\" frozen<list<text>>)",
        "CREATE TYPE aa (z frozen<zz>, v vector<float, 3>)",
        "CREATE TABLE t (k1 int, k2 text, c frozen<aa>, d timeuuid, s int STATIC, m map<text, frozen<zz>>, u zz, \
         t tuple<int, text>, old frozen<zz>, PRIMARY KEY ((k1, k2), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) \
         AND comment = 'it''s' AND speculative_retry = 'MIN(99p,50ms)' AND additional_write_policy = 'NEVER' \
         AND compression = {'class': 'ZstdCompressor'} AND default_time_to_live = 60 AND gc_grace_seconds = 100 \
         AND compaction = {'class': 'TimeWindowCompactionStrategy'} AND read_repair = 'NONE' \
         AND caching = {'keys': 'NONE', 'rows_per_partition': '10'}",
        "CREATE TABLE n (k int PRIMARY KEY, c counter) WITH compression = {'enabled': 'false'} \
         AND compaction = {'class': 'LeveledCompactionStrategy'} AND speculative_retry = 'ALWAYS'",
        "ALTER TABLE t DROP old",
        "ALTER KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE KEYSPACE wide WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} \
         AND durable_writes = false",
    ];
    let before = catalog_of(&statements);
    let after = changed(&before, statements.len() as u128 + 1, "ALTER TABLE t ADD added set<int>");
    (Catalog::clone(&before.catalog), Catalog::clone(&after.catalog))
}

fn log_id(index: u64) -> LogId {
    LogId::new(LeaderId { term: 3, voted_for: host(1) }.to_committed(), index)
}

fn event(change_type: ChangeType, target: ChangeTarget, name: &str) -> SchemaChangeEvent {
    let arguments = match target {
        ChangeTarget::Function | ChangeTarget::Aggregate => vec!["int".to_owned(), "text".to_owned()],
        _ => Vec::new(),
    };
    SchemaChangeEvent { change_type, target, keyspace: "ks".to_owned(), name: name.to_owned(), arguments }
}

fn change_schema() -> Command {
    let (before, after) = schemas();
    Command::ChangeSchema(SchemaChangeCommand {
        base: before.version,
        changed: CatalogDocument::difference(&before, &after),
        dropped: vec!["gone".to_owned()],
        event: event(ChangeType::Updated, ChangeTarget::Table, "t"),
        creator: None,
        first_streams_ms: None,
    })
}

fn found() -> Command {
    let (before, _) = schemas();
    Command::Found { member: member(1, MemberState::Normal), catalog: CatalogDocument::of(&before) }
}

fn joining() -> Member {
    Member {
        tokens: vec![-1_000, 1_000],
        feature_version: 2,
        ..member(2, MemberState::Joining(TransitionPhase::WriteBoth))
    }
}

fn all_commands() -> Vec<(&'static str, Command)> {
    let advance = |from| Command::Advance { host_id: host(2), from };
    let update = MemberUpdate {
        release_version: "0.2.0".to_owned(),
        ..MemberUpdate::of(&member(1, MemberState::Normal))
    };
    vec![
        ("found", found()),
        ("change schema", change_schema()),
        ("join", Command::Join { member: joining() }),
        ("advance joining", advance(MemberState::Joining(TransitionPhase::WriteBoth))),
        ("advance joining read new", advance(MemberState::Joining(TransitionPhase::ReadNew))),
        ("advance leaving", advance(MemberState::Leaving(TransitionPhase::WriteBoth))),
        ("advance leaving read new", advance(MemberState::Leaving(TransitionPhase::ReadNew))),
        ("abort", Command::Abort { host_id: host(2) }),
        ("start leave", Command::StartLeave { host_id: host(2) }),
        ("start removal", Command::StartRemoval { host_id: host(2) }),
        ("take back removal", Command::TakeBackRemoval { host_id: host(2), epoch: 9 }),
        ("update", Command::Update(update)),
    ]
}

/// An entry with each command, one that changes the participants, and an empty one.
pub fn entries() -> Vec<Entry> {
    let membership = Membership::new_with_defaults(
        vec![BTreeSet::from([host(1), host(2)]), BTreeSet::from([host(2)])],
        [host(3)],
    );
    let mut payloads = vec![EntryPayload::Blank, EntryPayload::Membership(membership)];
    payloads.extend(all_commands().into_iter().map(|(_, command)| EntryPayload::Normal(command)));
    let entry = |(index, payload)| Entry { log_id: log_id(index), payload };
    (1..).zip(payloads).map(entry).collect()
}

pub fn vote() -> Vote {
    Vote::new_committed(3, host(1))
}

pub fn purged() -> LogId {
    log_id(2)
}

pub fn commands() -> Vec<Sample> {
    let mut samples: Vec<Sample> =
        all_commands().iter().map(|(name, command)| Sample::json(name, command)).collect();
    let types = [ChangeType::Created, ChangeType::Updated, ChangeType::Dropped];
    let targets = [
        ChangeTarget::Keyspace,
        ChangeTarget::Table,
        ChangeTarget::Type,
        ChangeTarget::Function,
        ChangeTarget::Aggregate,
    ];
    for (change_type, target) in types.iter().cycle().zip(targets) {
        samples.push(Sample::json(
            &format!("event {change_type:?} {target:?}"),
            &event(*change_type, target, "name"),
        ));
    }
    samples
}

/// The values that are stored beside the entries.
pub fn votes() -> Vec<Sample> {
    vec![
        Sample::json("vote", &vote()),
        Sample::json("vote not committed", &Vote::new(4, host(2))),
        Sample::json("log id", &purged()),
    ]
}

/// In the encoding of `cluster::raft::network`.
#[derive(Debug, Serialize, Deserialize)]
struct SnapshotRequest {
    vote: Vote,
    meta: SnapshotMeta,
    state: String,
}

pub fn raft_messages() -> Vec<Sample> {
    let append = AppendEntriesRequest::<MetadataTypes> {
        vote: vote(),
        prev_log_id: Some(log_id(0)),
        entries: entries(),
        leader_commit: Some(log_id(1)),
    };
    let heartbeat = AppendEntriesRequest::<MetadataTypes> {
        vote: vote(),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    };
    let appended = |name: &str, response: AppendEntriesResponse<MetadataTypes>| Sample::json(name, &response);
    let state = String::from_utf8(stored().encode().unwrap()).unwrap();
    let snapshot = SnapshotRequest { vote: vote(), meta: stored().meta(), state };
    let transferred = |name: &str, error: TransferLeaderError<MetadataTypes>| {
        Sample::json::<TransferLeaderResponse<MetadataTypes>>(name, &Err(error))
    };
    let other = Vote::new(4, host(2));
    vec![
        Sample::json("append", &append),
        Sample::json("append nothing", &heartbeat),
        appended("appended", AppendEntriesResponse::Success),
        appended("appended in part", AppendEntriesResponse::PartialSuccess(Some(log_id(5)))),
        appended("append conflict", AppendEntriesResponse::Conflict),
        appended("append refused", AppendEntriesResponse::HigherVote(other)),
        Sample::json("vote", &VoteRequest::<MetadataTypes>::new(other, Some(log_id(5)))),
        Sample::json("voted", &VoteResponse::<MetadataTypes>::new(other, None, true)),
        Sample::json("snapshot", &snapshot),
        Sample::json("snapshot installed", &SnapshotResponse::<MetadataTypes>::new(vote())),
        Sample::json(
            "transfer leader",
            &TransferLeaderRequest::<MetadataTypes>::new(vote(), host(2), Some(log_id(5))),
        ),
        Sample::json::<TransferLeaderResponse<MetadataTypes>>("leader transferred", &Ok(())),
        transferred("vote changed", TransferLeaderError::VoteChanged { expected: vote(), actual: other }),
        transferred(
            "log not flushed",
            TransferLeaderError::LogNotFlushed { expected: Some(log_id(5)), actual: None },
        ),
    ]
}

/// Two members and the newest schema; the second is being removed, and a third was.
fn stored() -> Stored {
    let third = Member { host_id: host(3), tokens: vec![-30, 30], ..member(3, MemberState::Normal) };
    let advance = |host_id, from| Command::Advance { host_id, from };
    let commands = [
        found(),
        Command::Join { member: joining() },
        advance(host(2), MemberState::Joining(TransitionPhase::WriteBoth)),
        advance(host(2), MemberState::Joining(TransitionPhase::ReadNew)),
        Command::Join { member: third },
        advance(host(3), MemberState::Joining(TransitionPhase::WriteBoth)),
        advance(host(3), MemberState::Joining(TransitionPhase::ReadNew)),
        Command::StartLeave { host_id: host(3) },
        advance(host(3), MemberState::Leaving(TransitionPhase::WriteBoth)),
        advance(host(3), MemberState::Leaving(TransitionPhase::ReadNew)),
        change_schema(),
        Command::StartRemoval { host_id: host(2) },
    ];
    let mut state = ClusterState::empty();
    for (index, command) in (1..).zip(&commands) {
        let (next, outcome) = apply(&state, index, command);
        assert_eq!(outcome, CommandOutcome::Applied { version: index }, "{command}");
        state = next;
    }
    let voters = Membership::new_with_defaults(vec![BTreeSet::from([host(1)])], [host(2)]);
    let membership = StoredMembership::new(Some(log_id(2)), voters);
    Stored { state, log_id: Some(log_id(12)), membership }
}

/// The file `catalog` in both versions.
pub fn write_catalogs(directory: &Path) {
    let (before, _) = schemas();
    fs::write(directory.join("catalog-version-1"), helenus_testing::catalog_file(&before)).unwrap();
    fs::write(directory.join("catalog-version-2"), stored().encode_file(Vec::new()).unwrap()).unwrap();
}

#[test]
fn catalogs_of_a_release_are_read_and_the_newest_is_still_written_so() {
    for release in RELEASES {
        let file = |name: &str| fs::read(directory(release).join(name)).unwrap();
        let Contents::Catalog(catalog) = decode_file(&file("catalog-version-1")).unwrap() else {
            panic!("a catalog alone")
        };
        assert_eq!(format!("{catalog:?}"), format!("{:?}", schemas().0), "{release}");
        let bytes = file("catalog-version-2");
        let Contents::State(state, drops) = decode_file(&bytes).unwrap() else { panic!("a whole state") };
        assert_eq!(format!("{state:?}"), format!("{:?}", stored()), "{release}");
        assert!(drops.is_empty());
        assert!(stored().encode_file(drops).unwrap() == bytes, "{release}: the file is written otherwise");
    }
}
