//! Tables that are encrypted on every member, and members that do not encrypt.

use super::*;

const PLAIN: &str = "CREATE TABLE t (k int PRIMARY KEY)";
const ENCRYPTED: &str = "CREATE TABLE t (k int PRIMARY KEY) WITH encryption = {'enabled': 'true'}";

fn encrypting(number: u128) -> Member {
    Member { feature_version: FEATURE_VERSION, encrypts_tables: true, ..member(number) }
}

fn plain(number: u128) -> Member {
    Member { encrypts_tables: false, ..encrypting(number) }
}

fn founded_by(member: Member) -> Log {
    let mut log = Log::empty();
    log.done(&Command::Found { member, catalog: CatalogDocument::of(&initial_catalog(id(1000))) });
    log
}

fn refusal(number: u128) -> Refusal {
    let (keyspace, table) = ("ks".to_owned(), "t".to_owned());
    Refusal::PlainMember { host_id: id(number), keyspace, table }
}

#[test]
fn a_table_is_encrypted_only_if_every_member_does_so() {
    let mut log = founded_by(encrypting(1));
    log.join_wholly(plain(2));
    let create = schema_change(&log.state, 1001, &[ENCRYPTED]);
    log.refused(&create, refusal(2));
    log.done(&schema_change(&log.state, 1002, &[PLAIN]));
    // It has keys after a restart.
    log.done(&Command::Update(MemberUpdate::of(&encrypting(2))));
    assert!(log.state.topology.member(&id(2)).unwrap().encrypts_tables);
    log.done(&schema_change(
        &log.state,
        1003,
        &[PLAIN, "ALTER TABLE t WITH encryption = {'enabled': 'true'}"],
    ));
    assert!(log.state.catalog.table("ks", "t").unwrap().options.is_encrypted);
}

#[test]
fn a_member_that_would_write_an_encrypted_table_plain_does_not_come_or_stay_so() {
    let mut log = founded_by(encrypting(1));
    log.done(&schema_change(&log.state, 1001, &[ENCRYPTED]));
    log.refused(&Command::Join { member: plain(2) }, refusal(2));
    log.refused(&Command::Update(MemberUpdate::of(&plain(1))), refusal(1));
    log.join_wholly(encrypting(2));
    log.done(&schema_change(
        &log.state,
        1002,
        &[ENCRYPTED, "ALTER TABLE t WITH encryption = {'enabled': 'false'}"],
    ));
    log.done(&Command::Update(MemberUpdate::of(&plain(1))));
}

#[test]
fn below_the_feature_level_nobody_is_known_to_encrypt() {
    let mut log = Log::empty();
    let old = Member { feature_version: FEATURE_VERSION - 1, ..plain(1) };
    log.done(&Command::Found {
        member: old.clone(),
        catalog: CatalogDocument::of(&initial_catalog(id(1000))),
    });
    log.join_wholly(encrypting(2));
    assert!(!log.state.topology.member(&id(2)).unwrap().encrypts_tables);
    // The last one raises the level. The others tell of themselves at their next start.
    log.done(&Command::Update(MemberUpdate { feature_version: FEATURE_VERSION, ..MemberUpdate::of(&old) }));
    log.done(&Command::Update(MemberUpdate::of(&encrypting(2))));
    assert!(log.state.topology.member(&id(2)).unwrap().encrypts_tables);
}

#[test]
fn members_of_before_do_not_encrypt_and_are_stored_as_before() {
    let json = serde_json::to_string(&plain(1)).unwrap();
    assert!(!json.contains("encrypts_tables"));
    assert_eq!(serde_json::from_str::<Member>(&json).unwrap(), plain(1));
    let json = serde_json::to_string(&encrypting(1)).unwrap();
    assert!(json.ends_with(r#""encrypts_tables":true}"#), "{json}");
    assert_eq!(serde_json::from_str::<Member>(&json).unwrap(), encrypting(1));
    let update = MemberUpdate::of(&encrypting(1));
    let json = serde_json::to_string(&Command::Update(update.clone())).unwrap();
    assert!(json.ends_with(r#""encrypts_tables":true}}"#), "{json}");
    let refused = serde_json::to_string(&CommandOutcome::Refused(refusal(2))).unwrap();
    let host_id = id(2);
    let expected =
        format!(r#"{{"Refused":{{"PlainMember":{{"host_id":"{host_id}","keyspace":"ks","table":"t"}}}}}}"#);
    assert_eq!(refused, expected);
}
