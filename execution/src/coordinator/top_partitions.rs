//! The partitions of a table that are asked for most, and those whose requests are the heaviest, over the last minutes and hours.
//!
//! Invariants:
//! * A table on a shard has four sets of figures of bounded size: the present window of minutes and the one before, the present hour and
//!   the one before. A window of minutes is added to its hour when it ends, so the present hour lacks the present window.
//! * Of many requests in a window some are counted, by chance ([`Sampling`]): most requests take a countdown and some comparisons, and the
//!   figures are right on the average.

use std::time::Duration;

use helenus_engine::key::KeyRef;
use helenus_observe::sampling::Sampling;
use helenus_observe::top_keys::{FrequentKeys, LargestKeys, TopKey};

/// The length of a window of minutes.
pub const WINDOW: Duration = Duration::from_mins(5);
const WINDOWS_AN_HOUR: u64 = 12;

/// What partitions are compared by. The names are those of Cassandra's samplers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sampler {
    /// The number of reads.
    Reads,
    /// The number of writes.
    Writes,
    /// The most rows of a read.
    ReadRowCount,
    /// The most deletions that a read has met.
    ReadTombstoneCount,
    /// The longest work of a read, in microseconds.
    LocalReadTime,
    /// The most bytes of a write.
    WriteSize,
}

impl Sampler {
    pub const ALL: [Self; 6] = [
        Self::Reads,
        Self::Writes,
        Self::ReadRowCount,
        Self::ReadTombstoneCount,
        Self::LocalReadTime,
        Self::WriteSize,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "READS",
            Self::Writes => "WRITES",
            Self::ReadRowCount => "READ_ROW_COUNT",
            Self::ReadTombstoneCount => "READ_TOMBSTONE_COUNT",
            Self::LocalReadTime => "LOCAL_READ_TIME",
            Self::WriteSize => "WRITE_SIZE",
        }
    }
}

/// The time that figures are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// The last 5 to 10 minutes.
    Minutes,
    /// The last one to two hours.
    Hours,
}

impl Period {
    pub const ALL: [Self; 2] = [Self::Minutes, Self::Hours];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }
}

/// The figures of a time.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    reads: FrequentKeys,
    writes: FrequentKeys,
    read_rows: LargestKeys,
    read_tombstones: LargestKeys,
    read_time_us: LargestKeys,
    write_bytes: LargestKeys,
}

impl Figures {
    /// Adds those of another time.
    fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.read_rows.merge(&other.read_rows);
        self.read_tombstones.merge(&other.read_tombstones);
        self.read_time_us.merge(&other.read_time_us);
        self.write_bytes.merge(&other.write_bytes);
    }

    /// Adds those of another shard, which has other partitions.
    pub fn join(&mut self, other: &Self) {
        self.reads.join(&other.reads);
        self.writes.join(&other.writes);
        self.read_rows.merge(&other.read_rows);
        self.read_tombstones.merge(&other.read_tombstones);
        self.read_time_us.merge(&other.read_time_us);
        self.write_bytes.merge(&other.write_bytes);
    }

    /// The partitions with the largest figures, largest first.
    pub fn top(&self, sampler: Sampler) -> Vec<TopKey> {
        match sampler {
            Sampler::Reads => self.reads.top(),
            Sampler::Writes => self.writes.top(),
            Sampler::ReadRowCount => self.read_rows.top(),
            Sampler::ReadTombstoneCount => self.read_tombstones.top(),
            Sampler::LocalReadTime => self.read_time_us.top(),
            Sampler::WriteSize => self.write_bytes.top(),
        }
    }
}

/// The figures of a table on a shard.
#[derive(Debug)]
pub struct TopPartitions {
    /// The number of the present window of minutes.
    window: u64,
    /// When it ends; monotonic time.
    ends: Duration,
    minutes: Figures,
    minutes_before: Figures,
    hour: Figures,
    hour_before: Figures,
    reads: Sampling,
    writes: Sampling,
    /// Reads or writes of a partition in a window of minutes that make it hot. `None`: any number is fine.
    hot_requests: Option<u64>,
    /// Deletions that a read may pass. `None`: any number is fine.
    tombstones_max: Option<u64>,
}

/// What an operator is to know of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// It is asked too often.
    Hot,
    /// A read of the partition has passed more tombstones than the threshold. The number of them.
    Tombstones(u64),
}

/// What a read of one partition has met.
#[derive(Debug, Clone, Copy)]
pub struct ReadFigures {
    pub rows: u64,
    pub tombstones: u64,
    pub time_us: u64,
}

fn window_at(now: Duration) -> u64 {
    now.as_secs() / WINDOW.as_secs()
}

fn end_of(window: u64) -> Duration {
    Duration::from_secs((window + 1) * WINDOW.as_secs())
}

impl TopPartitions {
    /// Begins at `now` (monotonic time). `hot_requests_per_second`: reads or writes of a partition that make it hot, on the average of a
    /// window; 0: no number does.
    pub fn new(now: Duration, hot_requests_per_second: u64) -> Self {
        let window = window_at(now);
        Self {
            window,
            ends: end_of(window),
            minutes: Figures::default(),
            minutes_before: Figures::default(),
            hour: Figures::default(),
            hour_before: Figures::default(),
            reads: Sampling::new(1),
            writes: Sampling::new(2),
            hot_requests: (hot_requests_per_second > 0)
                .then(|| hot_requests_per_second.saturating_mul(WINDOW.as_secs())),
            tombstones_max: None,
        }
    }

    /// Warns of reads that pass more deletions; 0: of none.
    #[must_use]
    pub fn warning_of_tombstones(self, above: u64) -> Self {
        Self { tombstones_max: (above > 0).then_some(above), ..self }
    }

    /// Notes a read of the partition of a full key, at `now` (monotonic time). Warns of each partition once in a window.
    #[inline]
    pub fn note_read(&mut self, now: Duration, full_key: &[u8], read: ReadFigures) -> Option<Warning> {
        self.pass_to(now);
        let times = self.reads.take();
        let figures = &self.minutes;
        if times > 0
            || figures.read_rows.takes(read.rows)
            || figures.read_tombstones.takes(read.tombstones)
            || figures.read_time_us.takes(read.time_us)
        {
            return self.count_read(full_key, times, read);
        }
        None
    }

    #[cold]
    fn count_read(&mut self, full_key: &[u8], times: u64, read: ReadFigures) -> Option<Warning> {
        let KeyRef { token, partition_key, .. } = KeyRef::parse(full_key).ok()?;
        let figures = &mut self.minutes;
        // One that finds no place has fewer than many others, of which was warned.
        let warning = self.tombstones_max.filter(|max| {
            read.tombstones > *max
                && figures.read_tombstones.takes(read.tombstones)
                && figures.read_tombstones.value_of(token, partition_key).is_none_or(|known| known <= *max)
        });
        let warning = warning.map(|_| Warning::Tombstones(read.tombstones));
        figures.read_rows.add(token, partition_key, read.rows);
        figures.read_tombstones.add(token, partition_key, read.tombstones);
        figures.read_time_us.add(token, partition_key, read.time_us);
        if times == 0 {
            return warning;
        }
        let sure = figures.reads.add(token, partition_key, times);
        self.becomes_hot(sure, times).or(warning)
    }

    /// Notes a write of `bytes` to a partition, at `now` (monotonic time). Tells once in a window that a partition is hot.
    #[inline]
    pub fn note_write(
        &mut self,
        now: Duration,
        token: i64,
        partition_key: &[u8],
        bytes: u64,
    ) -> Option<Warning> {
        self.pass_to(now);
        let times = self.writes.take();
        if times > 0 || self.minutes.write_bytes.takes(bytes) {
            return self.count_write(token, partition_key, times, bytes);
        }
        None
    }

    #[cold]
    fn count_write(&mut self, token: i64, partition_key: &[u8], times: u64, bytes: u64) -> Option<Warning> {
        self.minutes.write_bytes.add(token, partition_key, bytes);
        if times == 0 {
            return None;
        }
        let sure = self.minutes.writes.add(token, partition_key, times);
        self.becomes_hot(sure, times)
    }

    /// Whether a partition has become hot with the last `times` of `sure` requests.
    fn becomes_hot(&self, sure: u64, times: u64) -> Option<Warning> {
        self.hot_requests.filter(|limit| sure >= *limit && sure - times < *limit).map(|_| Warning::Hot)
    }

    #[inline]
    fn pass_to(&mut self, now: Duration) {
        if now >= self.ends {
            self.begin_window(window_at(now));
        }
    }

    #[cold]
    fn begin_window(&mut self, window: u64) {
        let ended = std::mem::take(&mut self.minutes);
        self.hour.merge(&ended);
        self.minutes_before = if window == self.window + 1 { ended } else { Figures::default() };
        match window / WINDOWS_AN_HOUR - self.window / WINDOWS_AN_HOUR {
            0 => {}
            1 => self.hour_before = std::mem::take(&mut self.hour),
            _ => (self.hour, self.hour_before) = Default::default(),
        }
        self.window = window;
        self.ends = end_of(window);
        self.reads.begin_window();
        self.writes.begin_window();
    }

    /// The figures of a period up to `now` (monotonic time).
    pub fn figures(&mut self, period: Period, now: Duration) -> Figures {
        self.pass_to(now);
        let mut figures = match period {
            Period::Minutes => self.minutes_before.clone(),
            Period::Hours => {
                let mut hours = self.hour_before.clone();
                hours.merge(&self.hour);
                hours
            }
        };
        figures.merge(&self.minutes);
        figures
    }

    /// Whether nothing is known any more at `now` (monotonic time).
    pub fn is_over(&self, now: Duration) -> bool {
        window_at(now) / WINDOWS_AN_HOUR > self.window / WINDOWS_AN_HOUR + 1
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::key::full_key;

    use super::*;

    const QUIET: ReadFigures = ReadFigures { rows: 1, tombstones: 0, time_us: 10 };

    fn key(number: i64) -> Vec<u8> {
        full_key(number, &number.to_be_bytes(), &[]).unwrap()
    }

    fn values(top: &mut TopPartitions, period: Period, sampler: Sampler, now: Duration) -> Vec<(i64, u64)> {
        let figures = top.figures(period, now);
        figures.top(sampler).iter().map(|known| (known.key.token, known.value)).collect()
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_mins(count)
    }

    #[test]
    fn few_requests_are_counted_exactly() {
        let mut top = TopPartitions::new(minutes(7), 0);
        for number in [3, 1, 3, 2, 3, 2] {
            top.note_read(minutes(7), &key(number), QUIET);
        }
        for period in Period::ALL {
            assert_eq!(values(&mut top, period, Sampler::Reads, minutes(8)), [(3, 3), (2, 2), (1, 1)]);
        }
        assert_eq!(values(&mut top, Period::Minutes, Sampler::Writes, minutes(8)), []);
    }

    #[test]
    fn of_many_requests_the_shares_are_right() {
        let mut top = TopPartitions::new(Duration::ZERO, 0);
        for number in 0..200_000 {
            // Half of them go to one partition, in a rhythm.
            let number = if number % 2 == 0 { 1 } else { 1_000 + number };
            top.note_write(Duration::ZERO, number, &number.to_be_bytes(), 100);
        }
        let found = top.figures(Period::Minutes, Duration::ZERO).top(Sampler::Writes);
        assert_eq!(found[0].key.token, 1);
        let sure = found[0].value - found[0].error;
        assert!((90_000..=110_000).contains(&sure), "{sure}");
        assert!(found[1].value - found[1].error < 1_000, "{:?}", found[1]);
    }

    #[test]
    fn the_heaviest_requests_are_found_among_many() {
        let mut top = TopPartitions::new(Duration::ZERO, 0);
        for number in 0..100_000 {
            let heavy = number % 33_333 == 32_000;
            let tombstones = if heavy { 500 + number as u64 } else { 3 };
            top.note_read(Duration::ZERO, &key(number), ReadFigures { tombstones, ..QUIET });
        }
        let found = values(&mut top, Period::Minutes, Sampler::ReadTombstoneCount, Duration::ZERO);
        assert_eq!(found[..3], [(98_666, 99_166), (65_333, 65_833), (32_000, 32_500)]);
        assert_eq!(found[3].1, 3);
    }

    #[test]
    fn a_hot_partition_is_told_once_in_a_window() {
        let mut top = TopPartitions::new(Duration::ZERO, 2);
        let mut told = |minute, count: u64| {
            (0..count).filter(|_| top.note_read(minutes(minute), &key(1), QUIET).is_some()).count()
        };
        assert_eq!(told(1, 599), 0);
        assert_eq!(told(2, 1), 1);
        assert_eq!(told(3, 10_000), 0);
        assert_eq!(told(6, 599), 0);
        assert_eq!(told(6, 1), 1);
        let mut never = TopPartitions::new(Duration::ZERO, 0);
        assert!((0..10_000).all(|_| never.note_write(minutes(1), 1, b"k", 1).is_none()));
    }

    #[test]
    fn a_partition_full_of_deletions_is_told_once_in_a_window() {
        let mut top = TopPartitions::new(minutes(1), 0).warning_of_tombstones(100);
        let mut told = |minute, number, tombstones| {
            top.note_read(minutes(minute), &key(number), ReadFigures { tombstones, ..QUIET })
        };
        assert_eq!(told(1, 1, 100), None);
        assert_eq!(told(1, 1, 101), Some(Warning::Tombstones(101)));
        assert_eq!(told(2, 1, 500), None);
        assert_eq!(told(2, 2, 200), Some(Warning::Tombstones(200)));
        assert_eq!(told(6, 1, 101), Some(Warning::Tombstones(101)));
        // Many partitions are not told one by one.
        let count = (10..10_000).filter(|number| told(7, *number, 1_000).is_some()).count();
        assert!(count <= 10, "{count}");
        let mut never = TopPartitions::new(minutes(1), 0).warning_of_tombstones(0);
        assert_eq!(never.note_read(minutes(1), &key(1), ReadFigures { tombstones: 1 << 30, ..QUIET }), None);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut top = TopPartitions::new(minutes(1), 0);
        top.note_read(minutes(1), &key(1), QUIET);
        let mut at = |period, now| values(&mut top, period, Sampler::Reads, now);
        let once = [(1, 1)];
        assert_eq!(at(Period::Minutes, minutes(9)), once);
        assert_eq!(at(Period::Hours, minutes(9)), once);
        assert_eq!(at(Period::Minutes, minutes(10)), []);
        assert_eq!(at(Period::Hours, minutes(59)), once);
        assert_eq!(at(Period::Hours, minutes(61)), once);
        assert!(!top.is_over(minutes(119)));
        assert_eq!(values(&mut top, Period::Hours, Sampler::Reads, minutes(119)), once);
        assert_eq!(values(&mut top, Period::Hours, Sampler::Reads, minutes(120)), []);
        let mut idle = TopPartitions::new(minutes(1), 0);
        idle.note_read(minutes(1), &key(1), QUIET);
        assert!(!idle.is_over(minutes(119)) && idle.is_over(minutes(120)));
        assert_eq!(values(&mut idle, Period::Hours, Sampler::Reads, minutes(300)), []);
    }
}
