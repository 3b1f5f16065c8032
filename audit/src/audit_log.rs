//! The audit log of a node: what it records, where, and its life from `enable` to `disable`.
//!
//! Cost while it is off: the caller looks at [`AuditLog::is_on`], one relaxed load.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use thiserror::Error;

use crate::entry::{Category, Entry, EntryType};
use crate::rotation::{FileNames, RollCycle, RotatingFiles, Rotation};
use crate::sink::{Counts, Output, Sink};

const NAMES: FileNames = FileNames { prefix: "audit", suffix: "log" };

/// The form of the entries, and where they go. Cassandra's name, where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logger {
    /// Files with Cassandra's text.
    File,
    /// Files with a line of JSON for each entry.
    JsonFile,
    /// The log of the process, with the target `helenus::audit`.
    ProcessLog,
}

impl Logger {
    pub const ALL: [Self; 3] = [Self::File, Self::JsonFile, Self::ProcessLog];

    pub fn name(self) -> &'static str {
        match self {
            Self::File => "FileAuditLogger",
            Self::JsonFile => "JsonFileAuditLogger",
            Self::ProcessLog => "ProcessLogAuditLogger",
        }
    }

    /// By its name, which may have a Java package before it.
    pub fn from_name(name: &str) -> Option<Self> {
        let simple = name.rsplit('.').next().unwrap_or(name);
        Self::ALL.into_iter().find(|logger| logger.name() == simple)
    }
}

/// The reason why a log does not begin.
#[derive(Debug, Error)]
pub enum LogError {
    #[error(
        "there is no audit logger '{0}'; there are FileAuditLogger, JsonFileAuditLogger and ProcessLogAuditLogger"
    )]
    Logger(String),
    #[error(
        "'{0}' is no category of the audit log; there are QUERY, DML, DDL, DCL, OTHER, AUTH, ERROR and PREPARE"
    )]
    Category(String),
    #[error("'{0}' is no roll cycle; there are MINUTELY, HOURLY and DAILY")]
    RollCycle(String),
    #[error("the directory {directory} of the {log} cannot be used: {source}")]
    Directory { log: &'static str, directory: String, source: io::Error },
    #[error("the thread of the {log} cannot be started: {source}")]
    Thread { log: &'static str, source: io::Error },
}

/// What is recorded, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    pub logger: Logger,
    pub rotation: Rotation,
    /// Whether requests wait for room in the queue; otherwise entries are dropped.
    pub blocks: bool,
    /// Bytes of entries that may wait to be written.
    pub queue_bytes_max: usize,
    pub filters: AuditFilters,
}

/// Which entries are recorded. Nothing is included: everything is. What is excluded counts more. Keyspaces filter by [`Entry::keyspaces`]: the
/// keyspace that a client uses says nothing of what it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilters {
    pub included_keyspaces: BTreeSet<String>,
    pub excluded_keyspaces: BTreeSet<String>,
    /// Names of categories, in capitals.
    pub included_categories: BTreeSet<String>,
    pub excluded_categories: BTreeSet<String>,
    pub included_users: BTreeSet<String>,
    pub excluded_users: BTreeSet<String>,
}

impl AuditFilters {
    /// Checks the names of categories, and brings them to capitals.
    pub fn checked(mut self) -> Result<Self, LogError> {
        for categories in [&mut self.included_categories, &mut self.excluded_categories] {
            *categories = categories.iter().map(|name| name.to_uppercase()).collect();
            let is_unknown = |name: &&String| Category::ALL.iter().all(|known| known.name() != name.as_str());
            if let Some(unknown) = categories.iter().find(is_unknown) {
                return Err(LogError::Category(unknown.clone()));
            }
        }
        Ok(self)
    }

    /// Whether an entry is recorded.
    pub fn admit(&self, entry: &Entry) -> bool {
        fn admits(value: Option<&str>, included: &BTreeSet<String>, excluded: &BTreeSet<String>) -> bool {
            !value.is_some_and(|value| excluded.contains(value))
                && (included.is_empty() || value.is_some_and(|value| included.contains(value)))
        }
        let category = entry.entry_type.category().name();
        let admits_keyspace =
            |keyspace: &String| admits(Some(keyspace), &self.included_keyspaces, &self.excluded_keyspaces);
        (entry.keyspaces.is_empty() || entry.keyspaces.iter().any(admits_keyspace))
            && admits(Some(category), &self.included_categories, &self.excluded_categories)
            && admits(Some(entry.user()), &self.included_users, &self.excluded_users)
    }
}

/// The changes that an operator may make when the log is enabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditChange {
    pub logger: Option<String>,
    pub included_keyspaces: Option<BTreeSet<String>>,
    pub excluded_keyspaces: Option<BTreeSet<String>>,
    pub included_categories: Option<BTreeSet<String>>,
    pub excluded_categories: Option<BTreeSet<String>>,
    pub included_users: Option<BTreeSet<String>>,
    pub excluded_users: Option<BTreeSet<String>>,
    pub roll_cycle: Option<String>,
    pub blocks: Option<bool>,
    pub queue_bytes_max: Option<usize>,
    pub log_bytes_max: Option<u64>,
}

/// A log that is on.
#[derive(Debug)]
struct Running {
    options: AuditOptions,
    sink: Sink,
}

/// The audit log of a node.
#[derive(Debug)]
pub struct AuditLog {
    configured: AuditOptions,
    /// The address of this node in entries.
    host: SocketAddr,
    is_on: AtomicBool,
    running: RwLock<Option<Arc<Running>>>,
    /// One change at a time.
    changes: Mutex<()>,
    pub counts: Arc<Counts>,
}

impl AuditLog {
    /// A log that is off.
    pub fn new(configured: AuditOptions, host: SocketAddr) -> Self {
        Self {
            configured,
            host,
            is_on: AtomicBool::new(false),
            running: RwLock::new(None),
            changes: Mutex::new(()),
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

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options in force, and while it is off those of the configuration.
    pub fn options(&self) -> AuditOptions {
        self.running().map_or_else(|| self.configured.clone(), |running| running.options.clone())
    }

    /// Begins to record, with the configured options and these changes. A log that is on goes on with the new options.
    pub fn enable(&self, change: AuditChange) -> Result<(), LogError> {
        let _one = self.change();
        let mut options = self.configured.clone();
        if let Some(name) = change.logger {
            options.logger = Logger::from_name(&name).ok_or(LogError::Logger(name))?;
        }
        if let Some(name) = change.roll_cycle {
            options.rotation.cycle = RollCycle::from_name(&name).ok_or(LogError::RollCycle(name))?;
        }
        let filters = &mut options.filters;
        for (filter, names) in [
            (&mut filters.included_keyspaces, change.included_keyspaces),
            (&mut filters.excluded_keyspaces, change.excluded_keyspaces),
            (&mut filters.included_categories, change.included_categories),
            (&mut filters.excluded_categories, change.excluded_categories),
            (&mut filters.included_users, change.included_users),
            (&mut filters.excluded_users, change.excluded_users),
        ] {
            *filter = names.unwrap_or_else(|| std::mem::take(filter));
        }
        options.filters = options.filters.checked()?;
        options.blocks = change.blocks.unwrap_or(options.blocks);
        options.queue_bytes_max = change.queue_bytes_max.unwrap_or(options.queue_bytes_max);
        options.rotation.log_bytes_max = change.log_bytes_max.unwrap_or(options.rotation.log_bytes_max);
        self.stop_running();
        let output = AuditOutput::open(&options, self.host)?;
        let (bytes_max, blocks) = (options.queue_bytes_max, options.blocks);
        let sink = Sink::start("audit log", bytes_max, blocks, self.counts.clone(), output)
            .map_err(|source| LogError::Thread { log: "audit log", source })?;
        let running = Some(Arc::new(Running { options, sink }));
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = running;
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the log. What is queued is still written.
    pub fn disable(&self) {
        let _one = self.change();
        self.stop_running();
    }

    /// Ends the log and waits until it is written, but not longer than this.
    pub fn stop(&self, longest: Duration) {
        let running = self.running();
        self.disable();
        if running.is_some_and(|running| !running.sink.wait_for_end(longest)) {
            tracing::warn!("the end of the audit log was not written in time");
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

    /// Whether an entry is one of those that are asked for.
    pub fn admits(&self, entry: &Entry) -> bool {
        self.running().is_some_and(|running| running.options.filters.admit(entry))
    }

    /// Records an entry, if it is one of those that are asked for.
    pub fn record(&self, entry: &Entry) {
        let Some(running) = self.running() else { return };
        if running.options.filters.admit(entry) {
            let line = match running.options.logger {
                Logger::File | Logger::ProcessLog => entry.text(self.host),
                Logger::JsonFile => entry.json(self.host),
            };
            running.sink.push(line.into_bytes());
        }
    }

    /// Records an attempt of a client to log in: with whose name, from where, when (milliseconds since the epoch), and why it failed if it
    /// did.
    pub fn login(&self, user: Option<&str>, source: SocketAddr, millis: i64, outcome: Result<(), &str>) {
        if !self.is_on() {
            return;
        }
        self.record(&login_entry(user, source, millis, outcome));
    }

    /// Resolves when there is room for the entry of an attempt to log in, however it ends; at once if none is asked for, or entries are dropped
    /// for lack of room.
    pub async fn admits_login(&self, user: Option<&str>, source: SocketAddr) {
        let ends = [Ok(()), Err("")].map(|outcome| login_entry(user, source, 0, outcome));
        if ends.iter().any(|entry| self.admits(entry)) {
            self.admits_requests().await;
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

fn login_entry(user: Option<&str>, source: SocketAddr, millis: i64, outcome: Result<(), &str>) -> Entry {
    let (entry_type, operation) = match outcome {
        Ok(()) => (EntryType::LoginSuccess, "LOGIN SUCCESSFUL"),
        Err(_) => (EntryType::LoginError, "LOGIN FAILURE"),
    };
    Entry {
        user: user.map(str::to_owned),
        source,
        millis,
        entry_type,
        batch: None,
        keyspace: None,
        scope: None,
        keyspaces: BTreeSet::new(),
        operation: operation.to_owned(),
        error: outcome.err().map(str::to_owned),
    }
}

/// The end of the way of entries.
enum AuditOutput {
    Files { files: RotatingFiles, is_json: bool, host: SocketAddr },
    ProcessLog { host: SocketAddr },
}

impl AuditOutput {
    fn open(options: &AuditOptions, host: SocketAddr) -> Result<Self, LogError> {
        let is_json = options.logger == Logger::JsonFile;
        if options.logger == Logger::ProcessLog {
            return Ok(Self::ProcessLog { host });
        }
        let directory = options.rotation.directory.display().to_string();
        let files = RotatingFiles::open(options.rotation.clone(), NAMES, b"")
            .map_err(|source| LogError::Directory { log: "audit log", directory, source })?;
        Ok(Self::Files { files, is_json, host })
    }
}

/// The entry that tells of missing ones.
fn gap_entry(missing: u64) -> Entry {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Entry {
        user: Some("system".to_owned()),
        source: SocketAddr::from(([0, 0, 0, 0], 0)),
        millis: now.as_millis() as i64,
        entry_type: EntryType::EntriesDropped,
        batch: None,
        keyspace: None,
        scope: None,
        keyspaces: BTreeSet::new(),
        operation: format!("{missing} entries are missing"),
        error: None,
    }
}

impl Output for AuditOutput {
    fn write(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        match self {
            Self::Files { files, .. } => files.write(records),
            Self::ProcessLog { .. } => {
                for record in records {
                    let line = String::from_utf8_lossy(record);
                    tracing::info!(target: "helenus::audit", "{}", line.trim_end());
                }
                Ok(())
            }
        }
    }

    fn gap(&self, missing: u64) -> Vec<u8> {
        let entry = gap_entry(missing);
        match self {
            Self::Files { is_json: true, host, .. } => entry.json(*host),
            Self::Files { host, .. } | Self::ProcessLog { host } => entry.text(*host),
        }
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::entry::ANONYMOUS;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn entry(keyspace: Option<&str>, user: Option<&str>, entry_type: EntryType) -> Entry {
        Entry {
            user: user.map(str::to_owned),
            source: "127.0.0.1:1".parse().unwrap(),
            millis: 5,
            entry_type,
            batch: None,
            keyspace: keyspace.map(str::to_owned),
            scope: None,
            keyspaces: keyspace.map(str::to_owned).into_iter().collect(),
            operation: "x".to_owned(),
            error: None,
        }
    }

    fn options(directory: &Path) -> AuditOptions {
        AuditOptions {
            logger: Logger::File,
            rotation: Rotation {
                directory: directory.to_owned(),
                file_bytes_max: 1 << 20,
                log_bytes_max: 1 << 30,
                files_max: 0,
                cycle: RollCycle::Hourly,
            },
            blocks: false,
            queue_bytes_max: 1 << 20,
            filters: AuditFilters::default(),
        }
    }

    #[test]
    fn filters_choose_by_keyspace_category_and_user() {
        let admits = |filters: &AuditFilters, entry: &Entry| filters.clone().checked().unwrap().admit(entry);
        let select = entry(Some("ks"), None, EntryType::Select);
        let everything = AuditFilters::default();
        assert!(admits(&everything, &select));
        let some = AuditFilters { included_keyspaces: set(&["ks"]), ..everything.clone() };
        assert!(admits(&some, &select));
        assert!(!admits(&some, &entry(Some("other"), None, EntryType::Select)));
        // What has no keyspace of its own is not left out by one, whatever the client uses.
        assert!(admits(&some, &entry(None, None, EntryType::LoginSuccess)));
        let unnamed =
            Entry { keyspaces: BTreeSet::new(), ..entry(Some("other"), None, EntryType::CreateRole) };
        assert!(admits(&some, &unnamed));
        // One of several is enough to be recorded.
        let several = Entry { keyspaces: set(&["ks", "other"]), ..entry(None, None, EntryType::Batch) };
        assert!(admits(&some, &several));
        let without = AuditFilters { excluded_keyspaces: set(&["other"]), ..everything.clone() };
        assert!(admits(&without, &several) && admits(&without, &unnamed));
        assert!(!admits(&without, &entry(Some("other"), None, EntryType::Select)));
        let both = AuditFilters { excluded_keyspaces: set(&["ks"]), ..some };
        assert!(!admits(&both, &select));
        let categories = AuditFilters { included_categories: set(&["dml", "Auth"]), ..everything.clone() };
        assert!(!admits(&categories, &select));
        assert!(admits(&categories, &entry(None, None, EntryType::LoginError)));
        let users = AuditFilters { excluded_users: set(&[ANONYMOUS]), ..everything.clone() };
        assert!(!admits(&users, &select));
        assert!(admits(&users, &entry(Some("ks"), Some("alice"), EntryType::Select)));
        let unknown = AuditFilters { excluded_categories: set(&["DDL", "MINE"]), ..everything };
        assert!(unknown.checked().unwrap_err().to_string().starts_with("'MINE' is no category"));
    }

    #[tokio::test]
    async fn without_room_logins_wait_that_are_to_be_recorded() {
        let directory = tempfile::tempdir().unwrap();
        // There is never room.
        let options = AuditOptions { blocks: true, queue_bytes_max: 0, ..options(directory.path()) };
        let log = AuditLog::new(options, "127.0.0.1:7000".parse().unwrap());
        let source = "127.0.0.2:9".parse().unwrap();
        let goes_on = async |user| {
            tokio::select! {
                biased;
                () = log.admits_login(user, source) => true,
                () = std::future::ready(()) => false,
            }
        };
        assert!(goes_on(Some("alice")).await);
        log.enable(AuditChange { excluded_users: Some(set(&["bob"])), ..AuditChange::default() }).unwrap();
        assert!(log.holds_requests());
        assert!(!goes_on(Some("alice")).await && !goes_on(None).await);
        assert!(goes_on(Some("bob")).await);
        let failures = AuditChange {
            included_categories: Some(set(&["ERROR"])),
            blocks: Some(true),
            ..AuditChange::default()
        };
        log.enable(failures).unwrap();
        assert!(goes_on(Some("alice")).await);
        log.disable();
        assert!(goes_on(Some("alice")).await);
    }

    #[test]
    fn entries_get_into_files_between_enable_and_disable() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::new(options(directory.path()), "127.0.0.1:7000".parse().unwrap());
        let written = || {
            let files = NAMES.list(directory.path()).unwrap();
            files.iter().map(|(_, path)| std::fs::read_to_string(path).unwrap()).collect::<String>()
        };
        log.record(&entry(None, Some("before"), EntryType::Select));
        assert!(!log.is_on());
        log.enable(AuditChange { excluded_users: Some(set(&["nobody"])), ..AuditChange::default() }).unwrap();
        assert!(log.is_on() && log.options().filters.excluded_users.contains("nobody"));
        log.login(Some("alice"), "127.0.0.2:9".parse().unwrap(), 7, Ok(()));
        log.login(None, "127.0.0.2:9".parse().unwrap(), 8, Err("wrong"));
        log.record(&entry(None, Some("nobody"), EntryType::Select));
        log.stop(Duration::from_mins(1));
        assert!(!log.is_on() && log.options().filters.excluded_users.is_empty());
        let expected = "\
user:alice|host:/127.0.0.1:7000|source:/127.0.0.2|port:9|timestamp:7|type:LOGIN_SUCCESS|category:AUTH|operation:LOGIN SUCCESSFUL
user:anonymous|host:/127.0.0.1:7000|source:/127.0.0.2|port:9|timestamp:8|type:LOGIN_ERROR|category:AUTH|operation:LOGIN FAILURE; wrong
";
        assert_eq!(written(), expected);
        let json =
            AuditChange { logger: Some("org.x.JsonFileAuditLogger".to_owned()), ..AuditChange::default() };
        log.enable(json).unwrap();
        log.login(None, "127.0.0.2:9".parse().unwrap(), 9, Ok(()));
        log.stop(Duration::from_mins(1));
        assert!(written().ends_with("\"user\":\"anonymous\"}\n"), "{}", written());
        let unknown = AuditChange { logger: Some("BinAuditLogger".to_owned()), ..AuditChange::default() };
        assert!(log.enable(unknown).unwrap_err().to_string().contains("'BinAuditLogger'"));
    }
}
