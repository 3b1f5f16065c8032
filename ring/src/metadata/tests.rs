mod change_feed;
mod denylist;
mod encryption;
mod removals;
mod replacements;
mod replication;
mod roles;
mod uncleaned;
mod voters;

use helenus_query::schema::ddl::{ChangeTarget, ChangeType, SchemaChangeEvent};
use helenus_query::schema::system_tables::initial_catalog;
use helenus_testing::{CREATE_KEYSPACE, catalog_of};

use uuid::Uuid;

use super::*;
use crate::member::{HostId, TransitionPhase};

const WRITE_BOTH: MemberState = MemberState::Joining(TransitionPhase::WriteBoth);
const READ_NEW: MemberState = MemberState::Joining(TransitionPhase::ReadNew);

fn id(number: u128) -> HostId {
    Uuid::from_u128(number)
}

fn member(number: u128) -> Member {
    Member {
        host_id: id(number),
        internode_address: format!("10.0.0.{number}:7000").parse().unwrap(),
        native_address: format!("10.0.0.{number}:9042").parse().unwrap(),
        shard_aware_port: 19042,
        shard_count: 2,
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens: vec![number as i64 * 100, number as i64 * 100 + 1],
        state: MemberState::Normal,
        release_version: "0.1.0".to_owned(),
        protocol_version: 1,
        feature_version: 1,
        encrypts_tables: false,
    }
}

/// A state, and the last index of its log.
struct Log {
    state: ClusterState,
    index: u64,
}

impl Log {
    /// The members that should vote, if all answer.
    fn voters(&self) -> BTreeSet<HostId> {
        let alive = self.state.topology.members.keys().copied().collect();
        self.state.voters(&SeenMembers { alive, ..SeenMembers::default() })
    }

    fn empty() -> Self {
        Self { state: ClusterState::empty(), index: 0 }
    }

    /// A cluster of member 1, whose catalog has version 1000.
    fn founded() -> Self {
        let mut log = Self::empty();
        let catalog = CatalogDocument::of(&initial_catalog(id(1000)));
        assert_eq!(
            log.apply(&Command::Found { member: member(1), catalog }),
            CommandOutcome::Applied { version: 1 }
        );
        log
    }

    /// A cluster of members `1..=count`, all normal.
    fn of(count: u128) -> Self {
        let mut log = Self::founded();
        for number in 2..=count {
            log.join_wholly(member(number));
        }
        log
    }

    fn apply(&mut self, command: &Command) -> CommandOutcome {
        self.index += 1;
        // Commands are sent and stored in this encoding.
        let command: Command = serde_json::from_slice(&serde_json::to_vec(command).unwrap()).unwrap();
        let (state, outcome) = apply(&self.state, self.index, &command);
        let stored = serde_json::to_vec(&state.document()).unwrap();
        let document: StateDocument = serde_json::from_slice(&stored).unwrap();
        assert_eq!(format!("{:?}", document.state().unwrap()), format!("{state:?}"));
        self.state = state;
        outcome
    }

    fn done(&mut self, command: &Command) {
        let outcome = self.apply(command);
        assert_eq!(outcome, CommandOutcome::Applied { version: self.index }, "{command}");
        assert_eq!(self.state.topology.version, self.index);
    }

    /// Asserts that the command has no effect, because it was applied before.
    fn again(&mut self, command: &Command) {
        let before = self.state.topology.clone();
        assert_eq!(self.apply(command), CommandOutcome::Applied { version: before.version }, "{command}");
        assert_eq!(self.state.topology, before);
    }

    fn refused(&mut self, command: &Command, refusal: Refusal) {
        let before = self.state.topology.clone();
        assert_eq!(self.apply(command), CommandOutcome::Refused(refusal), "{command}");
        assert_eq!(self.state.topology, before);
    }

    fn join_wholly(&mut self, member: Member) {
        let host_id = member.host_id;
        self.done(&Command::Join { member });
        self.done(&Command::Advance { host_id, from: WRITE_BOTH });
        self.done(&Command::Advance { host_id, from: READ_NEW });
    }

    fn leave_wholly(&mut self, number: u128) {
        let host_id = id(number);
        self.done(&Command::StartLeave { host_id });
        self.done(&Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::WriteBoth) });
        self.done(&Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::ReadNew) });
    }

    fn state_of(&self, number: u128) -> Option<MemberState> {
        self.state.topology.member(&id(number)).map(|member| member.state)
    }
}

fn event(name: &str) -> SchemaChangeEvent {
    SchemaChangeEvent {
        change_type: ChangeType::Created,
        target: ChangeTarget::Table,
        keyspace: "ks".to_owned(),
        name: name.to_owned(),
        arguments: Vec::new(),
    }
}

/// The change from the state's catalog to the one that `statements` create, as version `version`.
fn schema_change(state: &ClusterState, version: u128, statements: &[&str]) -> Command {
    let mut new = Catalog::clone(&catalog_of(&[&[CREATE_KEYSPACE], statements].concat()).catalog);
    new.version = id(version);
    Command::ChangeSchema(SchemaChangeCommand {
        base: state.catalog.version,
        changed: CatalogDocument::difference(&state.catalog, &new),
        dropped: Vec::new(),
        event: event("t"),
        creator: None,
        first_streams_ms: None,
    })
}

#[test]
fn commands_are_refused_before_the_cluster_is_founded() {
    let mut log = Log::empty();
    log.refused(&Command::Join { member: member(1) }, Refusal::NotFounded);
    log.refused(&Command::StartLeave { host_id: id(1) }, Refusal::NotFounded);
}

#[test]
fn a_cluster_is_founded_once() {
    let mut log = Log::founded();
    assert_eq!(log.state.catalog.version, id(1000));
    assert_eq!(log.state_of(1), Some(MemberState::Normal));
    let catalog = CatalogDocument::of(&initial_catalog(id(2000)));
    log.again(&Command::Found { member: member(1), catalog: catalog.clone() });
    log.refused(&Command::Found { member: member(2), catalog }, Refusal::AlreadyFounded);
}

#[test]
fn joining_goes_step_by_step_and_every_step_raises_the_epoch() {
    let mut log = Log::founded();
    let host_id = id(2);
    log.done(&Command::Join { member: member(2) });
    assert_eq!((log.state_of(2), log.state.topology.epoch), (Some(WRITE_BOTH), 2));
    log.again(&Command::Join { member: member(2) });
    log.refused(
        &Command::Advance { host_id, from: READ_NEW },
        Refusal::WrongState { host_id, found: WRITE_BOTH },
    );
    log.done(&Command::Advance { host_id, from: WRITE_BOTH });
    assert_eq!((log.state_of(2), log.state.topology.epoch), (Some(READ_NEW), log.index));
    log.again(&Command::Advance { host_id, from: WRITE_BOTH });
    log.done(&Command::Advance { host_id, from: READ_NEW });
    assert_eq!((log.state_of(2), log.state.topology.epoch), (Some(MemberState::Normal), log.index));
    log.again(&Command::Advance { host_id, from: READ_NEW });
    log.refused(&Command::Join { member: member(2) }, Refusal::AlreadyMember { host_id });
}

#[test]
fn one_transition_at_a_time() {
    let mut log = Log::of(2);
    log.done(&Command::Join { member: member(3) });
    let busy = CommandOutcome::Busy { host_id: id(3) };
    assert_eq!(log.apply(&Command::Join { member: member(4) }), busy);
    assert_eq!(log.apply(&Command::StartLeave { host_id: id(1) }), busy);
    log.done(&Command::Abort { host_id: id(3) });
    assert_eq!(log.state_of(3), None);
    log.again(&Command::Abort { host_id: id(3) });
    // A member whose join was aborted may try again.
    log.join_wholly(member(3));
}

#[test]
fn a_former_member_never_comes_back() {
    let mut log = Log::of(3);
    log.leave_wholly(2);
    assert_eq!(log.state_of(2), None);
    assert!(log.state.topology.removed.contains(&id(2)));
    log.again(&Command::StartLeave { host_id: id(2) });
    log.again(&Command::Advance { host_id: id(2), from: MemberState::Leaving(TransitionPhase::ReadNew) });
    log.refused(&Command::Join { member: member(2) }, Refusal::Removed { host_id: id(2) });
    log.refused(&Command::Update(MemberUpdate::of(&member(2))), Refusal::Removed { host_id: id(2) });
}

#[test]
fn leaving_can_be_cancelled_and_the_last_owner_stays() {
    let mut log = Log::of(2);
    log.done(&Command::StartLeave { host_id: id(1) });
    log.again(&Command::StartLeave { host_id: id(1) });
    log.done(&Command::Abort { host_id: id(1) });
    assert_eq!(log.state_of(1), Some(MemberState::Normal));
    log.refused(
        &Command::Abort { host_id: id(1) },
        Refusal::WrongState { host_id: id(1), found: MemberState::Normal },
    );
    log.done(&Command::StartLeave { host_id: id(1) });
    log.done(&Command::Advance { host_id: id(1), from: MemberState::Leaving(TransitionPhase::WriteBoth) });
    let found = MemberState::Leaving(TransitionPhase::ReadNew);
    log.refused(&Command::Abort { host_id: id(1) }, Refusal::WrongState { host_id: id(1), found });
    log.done(&Command::Advance { host_id: id(1), from: found });
    log.refused(&Command::StartLeave { host_id: id(2) }, Refusal::LastOwner { host_id: id(2) });
    log.refused(&Command::StartLeave { host_id: id(9) }, Refusal::UnknownMember { host_id: id(9) });
}

#[test]
fn a_removal_is_distinguished_from_a_leaving_and_cancelled_by_its_epoch() {
    let mut log = Log::of(3);
    let host_id = id(2);
    log.done(&Command::StartRemoval { host_id });
    assert!(log.state.is_removal(&host_id) && !log.state.is_removal(&id(1)));
    log.again(&Command::StartRemoval { host_id });
    // Other commands meanwhile leave it a removal.
    log.done(&schema_change(&log.state, 1001, &["CREATE TABLE t (k int PRIMARY KEY)"]));
    log.done(&Command::Update(MemberUpdate { shard_count: 7, ..MemberUpdate::of(&member(2)) }));
    assert!(log.state.is_removal(&host_id));
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id, epoch });
    assert_eq!(log.state_of(2), Some(MemberState::Normal));
    assert!(!log.state.is_removal(&host_id));
    log.again(&Command::TakeBackRemoval { host_id, epoch });
    // A late one cancels neither a later removal nor a leaving that the member requested.
    let write_both = MemberState::Leaving(TransitionPhase::WriteBoth);
    log.done(&Command::StartRemoval { host_id });
    log.refused(
        &Command::TakeBackRemoval { host_id, epoch },
        Refusal::WrongState { host_id, found: write_both },
    );
    log.done(&Command::Abort { host_id });
    assert!(!log.state.is_removal(&host_id), "an operator may cancel it, too");
    log.done(&Command::StartLeave { host_id });
    log.again(&Command::StartRemoval { host_id });
    assert!(!log.state.is_removal(&host_id), "it was asked to leave before it died");
    let epoch = log.state.topology.epoch;
    log.refused(
        &Command::TakeBackRemoval { host_id, epoch },
        Refusal::WrongState { host_id, found: write_both },
    );
}

#[test]
fn a_removal_whose_ranges_were_handed_over_completes() {
    let mut log = Log::of(3);
    let host_id = id(2);
    log.done(&Command::StartRemoval { host_id });
    let epoch = log.state.topology.epoch;
    log.done(&Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::WriteBoth) });
    let found = MemberState::Leaving(TransitionPhase::ReadNew);
    assert!(log.state.is_removal(&host_id));
    for epoch in [epoch, log.state.topology.epoch] {
        let take_back = Command::TakeBackRemoval { host_id, epoch };
        log.refused(&take_back, Refusal::WrongState { host_id, found });
    }
    log.done(&Command::Advance { host_id, from: found });
    assert!(!log.state.is_removal(&host_id));
    log.refused(&Command::TakeBackRemoval { host_id, epoch }, Refusal::Removed { host_id });
    log.refused(
        &Command::TakeBackRemoval { host_id: id(9), epoch },
        Refusal::UnknownMember { host_id: id(9) },
    );
    log.refused(&Command::Join { member: member(2) }, Refusal::Removed { host_id });
}

#[test]
fn a_state_from_before_removals_were_distinguished_is_read() {
    let mut log = Log::of(2);
    log.done(&Command::StartLeave { host_id: id(1) });
    let mut document = serde_json::to_value(log.state.document()).unwrap();
    assert!(document.as_object_mut().unwrap().remove("removal").is_some());
    let state = serde_json::from_value::<StateDocument>(document).unwrap().state().unwrap();
    assert_eq!(format!("{state:?}"), format!("{:?}", log.state));
}

#[test]
fn addresses_and_tokens_of_others_are_refused() {
    let mut log = Log::founded();
    let first = member(1);
    let newcomer = |change: &dyn Fn(&mut Member)| {
        let mut newcomer = member(2);
        change(&mut newcomer);
        Command::Join { member: newcomer }
    };
    for address in [first.internode_address, first.native_address] {
        log.refused(
            &newcomer(&|member| member.internode_address = address),
            Refusal::AddressTaken { address, by: id(1) },
        );
    }
    log.refused(
        &newcomer(&|member| member.tokens = vec![7, 101]),
        Refusal::TokenTaken { token: 101, by: id(1) },
    );
    for tokens in [vec![], vec![2, 1], vec![1, 1]] {
        log.refused(&newcomer(&|member| member.tokens.clone_from(&tokens)), Refusal::Tokens);
    }
}

#[test]
fn an_update_moves_a_member_and_owns_nothing_new() {
    let mut log = Log::of(2);
    let epoch = log.state.topology.epoch;
    let update = MemberUpdate {
        internode_address: "10.0.1.2:7001".parse().unwrap(),
        shard_count: 4,
        release_version: "0.2.0".to_owned(),
        ..MemberUpdate::of(&member(2))
    };
    log.done(&Command::Update(update.clone()));
    log.again(&Command::Update(update.clone()));
    let moved = log.state.topology.member(&id(2)).unwrap();
    assert_eq!(MemberUpdate::of(moved), update);
    assert_eq!((&moved.tokens, moved.state), (&member(2).tokens, MemberState::Normal));
    assert_eq!(log.state.topology.epoch, epoch);
}

#[test]
fn the_five_eldest_normal_members_vote() {
    let voters = |log: &Log| log.voters().iter().map(uuid::Uuid::as_u128).collect::<Vec<_>>();
    // The order of joining counts, not the order of the ids.
    let mut log = Log::founded();
    for number in [9, 3, 8, 4, 7, 5] {
        log.join_wholly(member(number));
    }
    assert_eq!(voters(&log), [1, 3, 4, 8, 9]);
    log.leave_wholly(9);
    assert_eq!(voters(&log), [1, 3, 4, 7, 8]);
    log.done(&Command::StartLeave { host_id: id(1) });
    assert_eq!(voters(&log), [3, 4, 5, 7, 8]);
    log.done(&Command::Abort { host_id: id(1) });
    assert_eq!(voters(&log), [1, 3, 4, 7, 8]);
    log.leave_wholly(8);
    log.done(&Command::Join { member: member(2) });
    assert_eq!(voters(&log), [1, 3, 4, 5, 7], "a joining member does not vote yet");
}

#[test]
fn a_schema_change_applies_once_to_the_schema_that_it_was_planned_on() {
    let mut log = Log::founded();
    let first = schema_change(&log.state, 1001, &["CREATE TABLE t (k int PRIMARY KEY)"]);
    let rival = schema_change(&log.state, 1002, &["CREATE TABLE t (k text PRIMARY KEY)"]);
    log.done(&first);
    let done_at = log.index;
    assert_eq!(log.state.catalog.version, id(1001));
    let column_type =
        |log: &Log| log.state.catalog.table("ks", "t").unwrap().columns[0].column_type.to_string();
    assert_eq!(column_type(&log), "int");
    assert_eq!(log.apply(&rival), CommandOutcome::Conflict { version: done_at });
    assert_eq!(column_type(&log), "int");
    log.again(&first);
    // Also after later changes.
    log.done(&schema_change(&log.state, 1003, &["CREATE TABLE u (k int PRIMARY KEY)"]));
    log.again(&first);
    assert_eq!(log.state.catalog.version, id(1003));
    assert_eq!(log.state.topology.epoch, 1, "ownership is unchanged");
}

#[test]
fn other_replication_raises_the_epoch() {
    let mut log = Log::founded();
    let create = "CREATE TABLE t (k int PRIMARY KEY)";
    log.done(&schema_change(&log.state, 1001, &[create]));
    assert_eq!(log.state.topology.epoch, 1);
    let alter = "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";
    log.done(&schema_change(&log.state, 1002, &[create, alter]));
    assert_eq!(log.state.topology.epoch, log.index);
    let system =
        "ALTER KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";
    log.done(&schema_change(&log.state, 1003, &[create, alter, system]));
    assert_eq!(log.state.topology.epoch, log.index);
}

#[test]
fn replication_does_not_change_while_a_member_joins_or_leaves() {
    let mut log = Log::of(2);
    let create = "CREATE TABLE t (k int PRIMARY KEY)";
    let alter = "ALTER KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}";
    log.done(&schema_change(&log.state, 1001, &[create]));
    log.done(&Command::Join { member: member(3) });
    let refusal = |number| Refusal::ReplicationInTransition {
        keyspace: "ks".to_owned(),
        host_id: id(number),
        address: member(number).internode_address,
    };
    for from in [WRITE_BOTH, READ_NEW] {
        let change = schema_change(&log.state, 1002, &[create, alter]);
        log.refused(&change, refusal(3));
        log.done(&Command::Advance { host_id: id(3), from });
    }
    // Another change, planned meanwhile, does not change replication.
    log.done(&Command::StartLeave { host_id: id(2) });
    log.refused(&schema_change(&log.state, 1003, &[create, alter]), refusal(2));
    let other = "ALTER KEYSPACE ks WITH durable_writes = false";
    log.done(&schema_change(&log.state, 1004, &[create, other]));
    log.done(&Command::Abort { host_id: id(2) });
    log.done(&schema_change(&log.state, 1005, &[create, other, alter]));
}

#[test]
fn the_feature_level_is_the_lowest_of_the_members_and_never_goes_down() {
    let level = |log: &Log| log.state.topology.feature_level;
    let knowing = |number, feature_version| Member { feature_version, ..member(number) };
    let update = |number, feature_version| {
        Command::Update(MemberUpdate { feature_version, ..MemberUpdate::of(&member(number)) })
    };
    let mut log = Log::of(2);
    log.join_wholly(knowing(3, 4));
    assert_eq!(level(&log), 1);
    log.done(&update(1, 2));
    assert_eq!(level(&log), 1);
    log.done(&update(2, 3));
    assert_eq!(level(&log), 2);
    let refusal = |number, known| Refusal::FeatureVersion { host_id: id(number), level: 2, known };
    log.refused(&Command::Join { member: knowing(4, 1) }, refusal(4, 1));
    log.refused(&update(2, 1), refusal(2, 1));
    log.done(&update(2, 2));
    log.done(&Command::Join { member: knowing(4, 2) });
    log.done(&Command::Abort { host_id: id(4) });
    log.leave_wholly(2);
    log.leave_wholly(1);
    assert_eq!(level(&log), 4);
}

#[test]
fn a_state_from_before_feature_versions_has_the_first() {
    let mut document = serde_json::to_value(Log::of(2).state.document()).unwrap();
    let topology = document["topology"].as_object_mut().unwrap();
    topology.remove("feature_level");
    for member in topology["members"].as_object_mut().unwrap().values_mut() {
        member.as_object_mut().unwrap().remove("feature_version");
    }
    let state = serde_json::from_value::<StateDocument>(document).unwrap().state().unwrap();
    assert_eq!(format!("{state:?}"), format!("{:?}", Log::of(2).state));
}

#[test]
fn a_dropped_keyspace_is_gone() {
    let mut log = Log::founded();
    log.done(&schema_change(&log.state, 1001, &["CREATE TABLE t (k int PRIMARY KEY)"]));
    let mut without = Catalog::clone(&log.state.catalog);
    without.keyspaces.remove("ks");
    without.version = id(1002);
    log.done(&Command::ChangeSchema(SchemaChangeCommand {
        base: log.state.catalog.version,
        changed: CatalogDocument::difference(&log.state.catalog, &without),
        dropped: vec!["ks".to_owned()],
        event: event(""),
        creator: None,
        first_streams_ms: None,
    }));
    assert!(log.state.catalog.keyspace("ks").is_none());
}

/// The document of the changes since a state, as it is stored, and the state that it gives over that one.
fn changes(base: &ClusterState, now: &ClusterState) -> (String, ClusterState) {
    let stored = serde_json::to_string(&now.document_since(base)).unwrap();
    let document: StateDocument = serde_json::from_str(&stored).unwrap();
    (stored, document.state_over(base).unwrap())
}

#[test]
fn the_changes_since_a_state_lead_to_the_present_one() {
    let mut log = Log::of(2);
    let mut states = vec![log.state.clone()];
    log.done(&schema_change(&log.state, 1001, &["CREATE TABLE t (k int PRIMARY KEY)"]));
    states.push(log.state.clone());
    let statements = ["CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE u (k int PRIMARY KEY)"];
    log.done(&schema_change(&log.state, 1002, &statements));
    states.push(log.state.clone());
    log.join_wholly(member(3));
    states.push(log.state.clone());
    log.leave_wholly(2);
    states.push(log.state.clone());
    log.done(&Command::StartRemoval { host_id: id(3) });
    states.push(log.state.clone());
    for (number, base) in states.iter().enumerate() {
        for now in &states[number..] {
            let (stored, state) = changes(base, now);
            assert_eq!(format!("{state:?}"), format!("{now:?}"));
            let has_same_members = base.topology.members == now.topology.members;
            assert_eq!(stored.contains("tokens"), !has_same_members, "{stored}");
        }
    }
    // A dropped keyspace.
    let mut without = Catalog::clone(&states[2].catalog);
    without.keyspaces.remove("ks");
    let now = ClusterState { catalog: Arc::new(without), ..states[2].clone() };
    let (_, state) = changes(&states[2], &now);
    assert_eq!(format!("{state:?}"), format!("{now:?}"));
}

#[test]
fn a_change_of_tables_is_a_command_that_older_programs_do_not_know() {
    let mut log = Log::founded();
    let statements = ["CREATE TABLE t (k int PRIMARY KEY)"];
    log.done(&schema_change(&log.state, 1001, &statements));
    let mut new = Catalog::clone(&catalog_of(&[&[CREATE_KEYSPACE], &statements[..]].concat()).catalog);
    new.version = id(1002);
    Arc::make_mut(new.keyspaces.get_mut("ks").unwrap()).tables.clear();
    let change = SchemaChangeCommand {
        base: log.state.catalog.version,
        changed: CatalogDocument::delta(&log.state.catalog, &new),
        dropped: Vec::new(),
        event: event("t"),
        creator: None,
        first_streams_ms: None,
    };
    let command = Command::ChangeTables(change);
    let text = serde_json::to_string(&command).unwrap();
    assert!(
        text.starts_with(r#"{"ChangeTables":{"base":"00000000-0000-0000-0000-0000000003e9","changed":{"#),
        "{text}"
    );
    let altered = r#""altered":[{"name":"ks","settings":{"replication":{"Simple":{"replication_factor":1}},"durable_writes":true},"dropped_tables":["t"]}]"#;
    assert!(text.contains(altered), "{text}");
    log.done(&command);
    assert!(log.state.catalog.table("ks", "t").is_none() && log.state.catalog.keyspace("ks").is_some());
    log.again(&command);
}
