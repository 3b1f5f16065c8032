//! The time of an entry, by which consumers read.

/// How much older than the coordinator's clock the timestamp of a write may be to be the time of its entry, in microseconds. Consumers do not
/// read what is that young: they would miss entries that are still on their way.
pub const OLDEST_TIME_MICROS: i64 = 500_000;

/// The time of the entry of a write, in microseconds: its timestamp, or, if that is in the future or past what consumers wait for, the present
/// time. So entries have the order in which writes decide, as long as clocks of clients are right; and what a client dates back is not put
/// where consumers have read before.
pub fn entry_micros(timestamp_micros: i64, now_micros: i64) -> i64 {
    let oldest = now_micros.saturating_sub(OLDEST_TIME_MICROS);
    if (oldest..=now_micros).contains(&timestamp_micros) { timestamp_micros } else { now_micros }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_of_about_now_is_the_time_and_no_other_is() {
        let now = 1_700_000_000_000_000;
        for (timestamp, expected) in [
            (now, now),
            (now - 1, now - 1),
            (now - OLDEST_TIME_MICROS, now - OLDEST_TIME_MICROS),
            (now - OLDEST_TIME_MICROS - 1, now),
            (now + 1, now),
            (i64::MIN, now),
            (i64::MAX, now),
        ] {
            assert_eq!(entry_micros(timestamp, now), expected, "{timestamp}");
        }
    }
}
