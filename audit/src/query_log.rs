//! The full query log of a node: every request with its values, in files that `helenus replay` reads.
//!
//! Cost while it is off: the caller looks at [`QueryLog::is_on`], one relaxed load.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::audit_log::LogError;
use crate::record::{HEAD, Record};
use crate::rotation::{FileNames, RollCycle, RotatingFiles, Rotation};
use crate::sink::{Counts, Output, Sink};

/// The names of the files.
pub const NAMES: FileNames = FileNames { prefix: "queries", suffix: "fql" };

const LOG: &str = "full query log";

/// How requests are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLogOptions {
    pub rotation: Rotation,
    /// Whether requests wait for room in the queue; otherwise records are dropped.
    pub blocks: bool,
    /// Bytes of records that may wait to be written.
    pub queue_bytes_max: usize,
}

/// The changes that an operator may make when the log is enabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryLogChange {
    pub directory: Option<PathBuf>,
    pub roll_cycle: Option<String>,
    pub blocks: Option<bool>,
    pub queue_bytes_max: Option<usize>,
    pub log_bytes_max: Option<u64>,
}

/// A log that is on.
#[derive(Debug)]
struct Running {
    options: QueryLogOptions,
    sink: Sink,
}

/// The full query log of a node.
#[derive(Debug)]
pub struct QueryLog {
    configured: QueryLogOptions,
    /// Where the last log was, which a reset removes too.
    last_directory: Mutex<Option<PathBuf>>,
    is_on: AtomicBool,
    running: RwLock<Option<Arc<Running>>>,
    pub counts: Arc<Counts>,
}

impl QueryLog {
    /// A log that is off.
    pub fn new(configured: QueryLogOptions) -> Self {
        Self {
            configured,
            last_directory: Mutex::new(None),
            is_on: AtomicBool::new(false),
            running: RwLock::new(None),
            counts: Arc::default(),
        }
    }

    /// Whether anything is recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn running(&self) -> Option<Arc<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Also keeps other changes out.
    fn last_directory(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.last_directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options in force, and while it is off those of the configuration.
    pub fn options(&self) -> QueryLogOptions {
        self.running().map_or_else(|| self.configured.clone(), |running| running.options.clone())
    }

    /// Begins to record, with the configured options and these changes. A log that is on goes on with the new options.
    pub fn enable(&self, change: QueryLogChange) -> Result<(), LogError> {
        let mut last_directory = self.last_directory();
        let mut options = self.configured.clone();
        if let Some(name) = change.roll_cycle {
            options.rotation.cycle = RollCycle::from_name(&name).ok_or(LogError::RollCycle(name))?;
        }
        options.rotation.directory = change.directory.unwrap_or(options.rotation.directory);
        options.rotation.log_bytes_max = change.log_bytes_max.unwrap_or(options.rotation.log_bytes_max);
        options.blocks = change.blocks.unwrap_or(options.blocks);
        options.queue_bytes_max = change.queue_bytes_max.unwrap_or(options.queue_bytes_max);
        self.stop_running();
        let directory = options.rotation.directory.display().to_string();
        let files = RotatingFiles::open(options.rotation.clone(), NAMES, HEAD)
            .map_err(|source| LogError::Directory { log: LOG, directory, source })?;
        let (bytes_max, blocks) = (options.queue_bytes_max, options.blocks);
        let sink = Sink::start(LOG, bytes_max, blocks, self.counts.clone(), QueryOutput(files))
            .map_err(|source| LogError::Thread { log: LOG, source })?;
        *last_directory = Some(options.rotation.directory.clone());
        let running = Some(Arc::new(Running { options, sink }));
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = running;
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the log. What is queued is still written.
    pub fn disable(&self) {
        let _one = self.last_directory();
        self.stop_running();
    }

    /// Ends the log and removes its files, in the configured directory and where it was written last.
    pub fn reset(&self) -> Result<(), LogError> {
        let last_directory = self.last_directory();
        self.stop_running();
        let configured = &self.configured.rotation.directory;
        let other = last_directory.as_ref().filter(|last| *last != configured);
        for directory in std::iter::once(configured).chain(other) {
            let failed =
                |source| LogError::Directory { log: LOG, directory: directory.display().to_string(), source };
            for (_, path) in NAMES.list(directory).map_err(failed)? {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Ends the log and waits until it is written, but not longer than this.
    pub fn stop(&self, longest: Duration) {
        let running = self.running();
        self.disable();
        if running.is_some_and(|running| !running.sink.wait_for_end(longest)) {
            tracing::warn!("the end of the full query log was not written in time");
        }
    }

    fn stop_running(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        let running = self.running.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.sink.close();
            // A log that is enabled anew may write to the same files.
            running.sink.wait_for_end(Duration::from_secs(1));
        }
    }

    /// Records a request.
    pub fn record(&self, record: &Record) {
        if let Some(running) = self.running() {
            running.sink.push(record.encode());
        }
    }

    /// Whether requests should wait now.
    pub fn holds_requests(&self) -> bool {
        self.is_on() && self.running().is_some_and(|running| running.sink.holds_requests())
    }

    /// Resolves when requests need not wait.
    pub async fn admits_requests(&self) {
        if let Some(running) = self.running() {
            running.sink.admits_requests().await;
        }
    }
}

/// The end of the way of records.
struct QueryOutput(RotatingFiles);

impl Output for QueryOutput {
    fn write(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        self.0.write(records)
    }

    fn gap(&self, missing: u64) -> Vec<u8> {
        Record::Gap(missing).encode()
    }
}
