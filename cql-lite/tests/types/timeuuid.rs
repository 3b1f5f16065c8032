//! Version 1 UUIDs and their time.

use cql_lite::types::CqlType;
use cql_lite::types::compare::compare;
use cql_lite::types::timeuuid::{from_micros, maximum, minimum, unix_micros, unix_millis};
use proptest::prelude::*;

#[test]
fn known_times() {
    let uuid = uuid::Uuid::parse_str("6bddc89a-5644-11e4-97fc-56847afe9799").unwrap();
    assert_eq!(unix_millis(&uuid), 1_413_581_259_541);
    assert_eq!(minimum(1_413_581_259_541).to_string(), minimum_text());
    assert_eq!(unix_millis(&minimum(-5)), -5);
}

fn minimum_text() -> String {
    let time = from_micros(1_413_581_259_541_000, 0, 0, [0; 6]).to_string();
    format!("{}-8080-808080808080", &time[..18])
}

proptest! {
    #[test]
    fn a_timeuuid_keeps_its_time_and_lies_within_its_millisecond(
        micros in -1_000_000_000_000_000..4_000_000_000_000_000i64, tenth in 0..10u8,
        sequence in any::<u16>(), node in any::<[u8; 6]>(),
    ) {
        let uuid = from_micros(micros, tenth, sequence, node);
        prop_assert_eq!(uuid.get_version_num(), 1);
        prop_assert_eq!(unix_micros(&uuid), micros);
        let millis = micros.div_euclid(1000);
        prop_assert_eq!(unix_millis(&uuid), millis);
        prop_assert!(compare(&CqlType::Timeuuid, minimum(millis).as_bytes(), uuid.as_bytes()).is_le());
        prop_assert!(compare(&CqlType::Timeuuid, uuid.as_bytes(), maximum(millis).as_bytes()).is_le());
        let later = from_micros(micros + 1, 0, 0, [0; 6]);
        prop_assert!(compare(&CqlType::Timeuuid, uuid.as_bytes(), later.as_bytes()).is_lt());
    }
}
