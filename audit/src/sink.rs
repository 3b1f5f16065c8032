//! The way of records from the shards to a disk: a queue that is bounded in bytes, and a thread that writes it out.
//!
//! Invariants:
//! * [`Sink::push`] never waits for the disk. The queue is locked for moments only, never while the disk is written.
//! * Bytes count as queued until they are written or given up, so a disk that does not answer cannot fill the memory.
//! * A record that is not written is counted, and a record in the log tells how many are missing, as soon as it can be written.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The least time between two lines of the process's log about the same trouble.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Where records are written to.
pub trait Output: Send {
    /// Writes whole records; after an error none of them counts as written.
    fn write(&mut self, records: &[Vec<u8>]) -> io::Result<()>;

    /// The record that tells of missing ones.
    fn gap(&self, missing: u64) -> Vec<u8>;
}

/// What became of the records of a log, since the start of the node.
#[derive(Debug, Default)]
pub struct Counts {
    pub written: AtomicU64,
    /// Neither written nor to be written.
    pub dropped: AtomicU64,
    /// Failed attempts to write.
    pub write_errors: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Vec<u8>>,
    /// With those that are being written.
    bytes: usize,
    /// Missing records that the log itself does not tell of yet.
    untold: u64,
    is_closed: bool,
    has_ended: bool,
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    bytes_max: usize,
    waiting: Mutex<Waiting>,
    /// Notified when there are records, and when the thread has ended.
    changed: Condvar,
    room: Notify,
    counts: Arc<Counts>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Each change is a whole one: a panic of another holder of the lock leaves the queue usable.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_record(&self, waiting: &mut Waiting, count: u64) {
        waiting.untold += count;
        self.counts.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// A log that is being written.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
    /// Requests wait while the queue is full, and no record is dropped for lack of room.
    blocks: bool,
}

impl Sink {
    /// Starts the thread. `name`: of the log.
    pub fn start(
        name: &'static str,
        bytes_max: usize,
        blocks: bool,
        counts: Arc<Counts>,
        output: impl Output + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            name,
            bytes_max,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            room: Notify::new(),
            counts,
        });
        let writer = Writer { shared: shared.clone(), output, is_failing: false, told_at: None };
        std::thread::Builder::new().name(name.replace(' ', "-")).spawn(move || writer.run())?;
        Ok(Self { shared, blocks })
    }

    /// Adds a record to the queue. Without room it is dropped and counted, unless requests wait for room: then those that are under way
    /// still have it.
    pub fn push(&self, record: Vec<u8>) {
        let mut waiting = self.shared.lock();
        if waiting.is_closed {
            return;
        }
        let is_full = waiting.bytes.saturating_add(record.len()) > self.shared.bytes_max;
        if is_full && !self.blocks {
            self.shared.drop_record(&mut waiting, 1);
            return;
        }
        waiting.bytes += record.len();
        waiting.records.push_back(record);
        drop(waiting);
        self.shared.changed.notify_all();
    }

    /// Whether requests should wait now.
    pub fn holds_requests(&self) -> bool {
        self.blocks && {
            let waiting = self.shared.lock();
            !waiting.is_closed && waiting.bytes >= self.shared.bytes_max
        }
    }

    /// Resolves when requests need not wait.
    pub async fn admits_requests(&self) {
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            if !self.holds_requests() {
                return;
            }
            room.await;
        }
    }

    /// Takes no more records. What is queued is written.
    pub fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        self.shared.room.notify_waiters();
    }

    /// Waits until a closed log is written, but not longer than this. Returns whether it is.
    pub fn wait_for_end(&self, longest: Duration) -> bool {
        let waiting = self.shared.lock();
        let ended = self.shared.changed.wait_timeout_while(waiting, longest, |waiting| !waiting.has_ended);
        ended.map_or_else(|poisoned| poisoned.into_inner().0.has_ended, |(waiting, _)| waiting.has_ended)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread of a log.
struct Writer<O> {
    shared: Arc<Shared>,
    output: O,
    /// The last attempt to write has failed.
    is_failing: bool,
    told_at: Option<Instant>,
}

impl<O: Output> Writer<O> {
    fn run(mut self) {
        while let Some((records, untold)) = self.next() {
            self.write(records, untold);
            self.shared.room.notify_waiters();
        }
        let untold = std::mem::take(&mut self.shared.lock().untold);
        if untold > 0 {
            self.write(Vec::new(), untold);
        }
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
    }

    /// The records that wait, and how many are missing before them; `None`: the log is closed and written.
    fn next(&self) -> Option<(Vec<Vec<u8>>, u64)> {
        let mut waiting = self.shared.lock();
        // While writes fail, missing records alone are no reason for another attempt.
        while waiting.records.is_empty() && (waiting.untold == 0 || self.is_failing) {
            if waiting.is_closed {
                return None;
            }
            waiting = self.shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let records = waiting.records.drain(..).collect();
        Some((records, std::mem::take(&mut waiting.untold)))
    }

    fn write(&mut self, records: Vec<Vec<u8>>, untold: u64) {
        let bytes: usize = records.iter().map(Vec::len).sum();
        let count = records.len() as u64;
        let gap = (untold > 0).then(|| self.output.gap(untold));
        let all: Vec<Vec<u8>> = gap.into_iter().chain(records).collect();
        let written = self.output.write(&all);
        let counts = &self.shared.counts;
        let mut waiting = self.shared.lock();
        waiting.bytes -= bytes;
        self.is_failing = written.is_err();
        if let Err(error) = written {
            counts.write_errors.fetch_add(1, Ordering::Relaxed);
            waiting.untold += untold;
            self.shared.drop_record(&mut waiting, count);
            drop(waiting);
            self.tell(&error);
        } else {
            counts.written.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn tell(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.told_at.is_none_or(|told_at| now.duration_since(told_at) >= TOLD_EVERY) {
            self.told_at = Some(now);
            tracing::error!(%error, "the {} cannot be written; entries are lost", self.shared.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes into memory, each time when the test lets it.
    struct Stalled {
        go: mpsc::Receiver<io::Result<()>>,
        written: mpsc::Sender<Vec<Vec<u8>>>,
    }

    impl Output for Stalled {
        fn write(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
            self.written.send(records.to_vec()).unwrap();
            self.go.recv().unwrap_or(Ok(()))
        }

        fn gap(&self, missing: u64) -> Vec<u8> {
            format!("missing {missing}").into_bytes()
        }
    }

    struct Bench {
        sink: Sink,
        counts: Arc<Counts>,
        go: mpsc::Sender<io::Result<()>>,
        written: mpsc::Receiver<Vec<Vec<u8>>>,
    }

    impl Bench {
        fn new(blocks: bool) -> Self {
            let ((go, wait), (tell, written)) = (mpsc::channel(), mpsc::channel());
            let counts = Arc::new(Counts::default());
            let output = Stalled { go: wait, written: tell };
            let sink = Sink::start("test log", 10, blocks, counts.clone(), output).unwrap();
            Self { sink, counts, go, written }
        }

        fn push(&self, text: &str) {
            self.sink.push(text.as_bytes().to_vec());
        }

        fn written(&self) -> Vec<String> {
            let records = self.written.recv().unwrap();
            records.into_iter().map(|record| String::from_utf8(record).unwrap()).collect()
        }
    }

    #[test]
    fn what_a_stalled_disk_leaves_no_room_for_is_counted_and_told() {
        let bench = Bench::new(false);
        bench.push("0123456789");
        assert_eq!(bench.written(), ["0123456789"]);
        for text in ["a", "b", "c"] {
            bench.push(text);
        }
        assert!(!bench.sink.holds_requests());
        assert_eq!(bench.counts.dropped.load(Ordering::Relaxed), 3);
        bench.go.send(Ok(())).unwrap();
        assert_eq!(bench.written(), ["missing 3"]);
        bench.push("d");
        bench.go.send(Ok(())).unwrap();
        assert_eq!(bench.written(), ["d"]);
        drop(bench.go);
        bench.sink.close();
        assert!(bench.sink.wait_for_end(Duration::from_mins(1)));
        assert_eq!(bench.counts.written.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_a_disk_refuses_is_counted_and_told_when_it_takes_something() {
        let bench = Bench::new(true);
        bench.push("a");
        assert_eq!(bench.written(), ["a"]);
        bench.go.send(Err(io::Error::other("full"))).unwrap();
        bench.push("b");
        bench.go.send(Ok(())).unwrap();
        assert_eq!(bench.written(), ["missing 1", "b"]);
        drop(bench.go);
        bench.sink.close();
        assert!(bench.sink.wait_for_end(Duration::from_mins(1)));
        let counts = [&bench.counts.written, &bench.counts.dropped, &bench.counts.write_errors];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 1, 1]);
    }

    #[tokio::test]
    async fn requests_wait_for_room_where_that_is_asked_for() {
        let bench = Bench::new(true);
        bench.push("0123456789");
        assert!(bench.sink.holds_requests());
        // Under way already: it is kept.
        bench.push("a");
        assert_eq!(bench.counts.dropped.load(Ordering::Relaxed), 0);
        let go = bench.go.clone();
        std::thread::spawn(move || go.send(Ok(())));
        bench.sink.admits_requests().await;
        assert!(!bench.sink.holds_requests());
        drop(bench.go);
    }

    #[tokio::test]
    async fn a_closed_log_holds_nobody() {
        let bench = Bench::new(true);
        bench.push("0123456789");
        bench.sink.close();
        bench.sink.admits_requests().await;
        drop(bench.go);
    }
}
