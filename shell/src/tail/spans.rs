//! Which span of time is read next, and from the streams of which generation.
//!
//! Invariants:
//! * Spans follow each other without a gap and without an overlap: each begins where the one before it ends.
//! * A span lies in one generation, so its entries are in the streams of that generation.
//! * No span reaches into what is younger than the window of confidence.

/// Changes that are held in memory at a time, about: a span with more is read in parts.
pub const ENTRIES_MAX: usize = 50_000;
/// Bytes of the cells of these changes, about.
pub const CELL_BYTES_MAX: usize = 64 << 20;
/// A span with fewer entries may be followed by a longer one.
const ENTRIES_FEW: usize = ENTRIES_MAX / 8;
/// The length of the first span.
const FIRST_SPAN_MS: i64 = 60_000;

/// A span of time to read. Times are milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "units stand at the end of names")]
pub struct Span {
    /// The time of the generation whose streams have the entries.
    pub generation_ms: i64,
    /// Its first millisecond.
    pub begin_ms: i64,
    /// The first millisecond that is asked for; `None`: there is no bound, and nothing before the span.
    pub from_ms: Option<i64>,
    /// The first millisecond behind it.
    pub until_ms: i64,
}

/// Makes spans.
#[derive(Debug, Clone)]
pub struct Spans {
    /// Where the next one begins; `None`: with the first generation.
    begin_ms: Option<i64>,
    /// Whether reads have a first millisecond. Those from the beginning have none until there is something: a feed that has
    /// lost its first entries refuses a read that begins with them, and where those that are left begin is not known before.
    is_bounded: bool,
    length_ms: i64,
}

impl Spans {
    /// Spans from a millisecond on, or from the first entry on.
    pub fn from(from_ms: Option<i64>) -> Self {
        Self { begin_ms: from_ms, is_bounded: from_ms.is_some(), length_ms: FIRST_SPAN_MS }
    }

    /// Where the next one begins; `None`: nothing was read yet from the first entry on.
    pub fn begin_ms(&self) -> Option<i64> {
        self.begin_ms
    }

    /// The next span, which ends at `safe_ms` at the latest; `None`: there is none yet. `generations_ms`: the times of the generations
    /// in order.
    pub fn next(&self, generations_ms: &[i64], safe_ms: i64) -> Option<Span> {
        let first_ms = *generations_ms.first()?;
        // What lies before the first generation that is known lies in its streams, if it is kept at all.
        let begin_ms = self.begin_ms.map_or(first_ms, |begin_ms| begin_ms.max(first_ms));
        let known = generations_ms.partition_point(|time_ms| *time_ms <= begin_ms);
        let generation_ms = *generations_ms.get(known.checked_sub(1)?)?;
        let end_ms = generations_ms.get(known).copied().unwrap_or(i64::MAX);
        let until_ms = begin_ms.saturating_add(self.length_ms).min(end_ms).min(safe_ms);
        let from_ms = self.begin_ms.filter(|_| self.is_bounded);
        (until_ms > begin_ms).then_some(Span { generation_ms, begin_ms, from_ms, until_ms })
    }

    /// The span was read, with that many entries. `safe_ms`: that of [`Spans::next`].
    pub fn done(&mut self, span: &Span, entries: usize, safe_ms: i64) {
        self.begin_ms = Some(span.until_ms);
        self.is_bounded |= entries > 0 || span.until_ms >= safe_ms;
        if entries < ENTRIES_FEW {
            self.length_ms = self.length_ms.saturating_mul(2);
        }
    }

    /// The span has too many entries. Returns whether a shorter one may have fewer.
    pub fn shorten(&mut self, span: &Span) -> bool {
        let read_ms = span.until_ms - span.begin_ms;
        self.length_ms = (read_ms / 2).max(1);
        read_ms > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spans until there is none, each with that many entries.
    fn all(from_ms: Option<i64>, generations_ms: &[i64], safe_ms: i64, entries: usize) -> Vec<Span> {
        let mut spans = Spans::from(from_ms);
        let mut found = Vec::new();
        while let Some(span) = spans.next(generations_ms, safe_ms) {
            found.push(span);
            spans.done(&span, entries, safe_ms);
        }
        found
    }

    #[test]
    fn spans_are_without_gaps_and_end_with_their_generation() {
        let found = all(Some(1_500), &[1_000, 50_000, 300_000], 1_000_000, 0);
        let first = Span { generation_ms: 1_000, begin_ms: 1_500, from_ms: Some(1_500), until_ms: 50_000 };
        assert_eq!(found[0], first);
        for pair in found.windows(2) {
            assert_eq!(pair[1].begin_ms, pair[0].until_ms);
            assert_eq!(pair[1].from_ms, Some(pair[0].until_ms));
        }
        for span in &found {
            let next_ms =
                [50_000, 300_000, i64::MAX].into_iter().find(|time_ms| *time_ms > span.generation_ms);
            assert!(span.begin_ms >= span.generation_ms && Some(span.until_ms) <= next_ms, "{span:?}");
        }
        assert_eq!(found.last().unwrap().until_ms, 1_000_000);
    }

    #[test]
    fn the_beginning_has_no_bound_until_there_is_something() {
        let generations_ms = [1_000];
        let safe_ms = 10 * FIRST_SPAN_MS;
        let bounds = |entries| {
            all(None, &generations_ms, safe_ms, entries).iter().map(|span| span.from_ms).collect::<Vec<_>>()
        };
        let empty = bounds(0);
        assert!(empty.len() > 2 && empty.iter().all(Option::is_none), "{empty:?}");
        assert_eq!(bounds(1)[..2], [None, Some(1_000 + FIRST_SPAN_MS)]);
        // Once all is read that there is, only what is new.
        let mut spans = Spans::from(None);
        let span = spans.next(&generations_ms, 3_000).unwrap();
        assert_eq!(span, Span { generation_ms: 1_000, begin_ms: 1_000, from_ms: None, until_ms: 3_000 });
        spans.done(&span, 0, 3_000);
        assert_eq!(spans.next(&generations_ms, 4_000).unwrap().from_ms, Some(3_000));
    }

    #[test]
    fn what_is_older_than_the_first_generation_is_asked_of_it() {
        let before = all(Some(10), &[1_000], 3_000, 0);
        assert_eq!(
            before,
            [Span { generation_ms: 1_000, begin_ms: 1_000, from_ms: Some(10), until_ms: 3_000 }]
        );
    }

    #[test]
    fn nothing_is_read_that_is_not_safe_yet() {
        assert_eq!(Spans::from(Some(5_000)).next(&[1_000], 5_000), None);
        assert_eq!(Spans::from(Some(5_000)).next(&[1_000], 4_000), None);
        assert_eq!(Spans::from(Some(5_000)).next(&[6_000], 5_500), None);
        assert_eq!(Spans::from(Some(5_000)).next(&[], 9_000), None);
    }

    #[test]
    fn spans_grow_while_there_is_little_and_shrink_before_too_much() {
        let few = all(Some(0), &[0], 100 * FIRST_SPAN_MS, 0);
        assert!(few.len() < 10, "{few:?}");
        let many = all(Some(0), &[0], 10 * FIRST_SPAN_MS, ENTRIES_FEW);
        assert_eq!(many.len(), 10);

        let mut spans = Spans::from(Some(0));
        let mut tries = 0;
        loop {
            let span = spans.next(&[0], FIRST_SPAN_MS).unwrap();
            tries += 1;
            if !spans.shorten(&span) {
                assert_eq!(span.until_ms, 1);
                break;
            }
        }
        assert!(tries < 20, "{tries}");
    }
}
