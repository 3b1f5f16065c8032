//! What is done with a data directory while no node runs on it.
//!
//! `helenus check`: whether it has all that a start needs. Nothing is changed.
//!
//! `helenus encrypt`: all files of the node are encrypted by the current master key. One that is not encrypted is replaced by a copy, one with
//! another key gets another header. Each of them is whole wherever a crash comes, and whoever runs it again goes on there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use helenus_admin::encryption_keys::{FileProtection, StoredFiles};
use helenus_at_rest::Update;
use helenus_config::Config;
use helenus_engine::io::{
    BackgroundPool, Clock, Environment, ReadPool, RealClock, SystemRandom, ThreadedDisk,
};
use helenus_engine::shard::DirectoryReport;
use helenus_engine::{Shard, ShardOptions};

use super::assembly::set_directories;
use super::identity::{self, Identity, shard_directory};
use crate::cluster::own_files::{self, OwnFile};
use crate::cluster::stored::{self, CATALOG_FILE, CHANGES_FILE, decode_files};
use crate::node::error::StartError;
use helenus_node_files::DirectoryLock;
use helenus_node_files::at_rest::AtRest;
use helenus_node_files::small_files::NodeFiles;

/// The findings in a data directory.
#[derive(Debug, Default)]
pub struct DataReport {
    shards: Vec<DirectoryReport>,
    /// Of the node's own files.
    problems: Vec<String>,
    /// What the next start repairs in the node's own files, and the master keys that files need.
    remarks: Vec<String>,
}

impl DataReport {
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty() || self.shards.iter().any(|shard| !shard.problems.is_empty())
    }

    /// The content of one of the node's own files, if there is one that can be read.
    async fn look_at(&mut self, files: &NodeFiles, name: &str) -> Option<Bytes> {
        match files.look_at(name).await {
            Ok(Some((bytes, defect))) => {
                self.remarks.extend(defect.map(|defect| format!("{defect}; the other copy is whole")));
                Some(bytes)
            }
            Ok(None) => None,
            Err(error) => {
                self.problems.push(error.to_string());
                None
            }
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            // A string does not fail.
            let _ = writeln!(text, "problem: {problem}");
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "remark: {remark}");
        }
        for (index, shard) in self.shards.iter().enumerate() {
            let DirectoryReport { tables, files, file_bytes, log_records, problems, remarks } = shard;
            let _ = writeln!(
                text,
                "shard {index}: {tables} tables, {files} files with {file_bytes} bytes that can be read, {log_records} records in the \
                 commit log"
            );
            for problem in problems {
                let _ = writeln!(text, "problem: {problem}");
            }
            for remark in remarks {
                let _ = writeln!(text, "remark: {remark}");
            }
        }
        text.push_str(if self.has_problems() { "There are problems\n" } else { "All is there and whole\n" });
        text
    }
}

/// Looks at the data directory of a configuration. Fails if there is none, or if a node runs on it.
pub fn check(config: &Config) -> Result<DataReport, StartError> {
    let data_dir = config.data_dir.clone();
    let _lock = lock(&data_dir)?;
    let disk = ReadPool::start(1).and_then(|reads| ThreadedDisk::start("disk-check", reads));
    let configured = AtRest::open(config)?;
    let refuses_plain_files = configured.refuses_plain_files();
    // What the start would refuse is looked at nevertheless.
    let at_rest = configured.that_accepts_plain_files();
    let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
    let environment = Environment {
        disk: at_rest.disk(disk.map_err(StartError::Thread)?),
        background: Rc::new(
            BackgroundPool::start_on(1, &at_rest.disk_of_jobs()).map_err(StartError::Thread)?,
        ),
        clock,
        random: Rc::new(SystemRandom),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(StartError::Thread)?;
    let mut report = runtime.block_on(check_directory(config, &environment, data_dir, &at_rest))?;
    if !at_rest.key_ids().is_empty() {
        report.remarks.extend(master_keys(&own_files::usage(config, config.commit_log_archive_dir.clone())?));
    }
    let plain = if refuses_plain_files { own_files::plain(config, &at_rest)? } else { Vec::new() };
    if !plain.is_empty() {
        report.problems.push(StartError::PlainFiles(own_files::named(&plain)).to_string());
    }
    Ok(report)
}

/// The master keys that files need, and the files that need none.
fn master_keys(files: &[StoredFiles]) -> Vec<String> {
    let mut all: BTreeMap<&FileProtection, (u64, u64)> = BTreeMap::new();
    for StoredFiles { protection, files, bytes, .. } in files {
        let (all_files, all_bytes) = all.entry(protection).or_default();
        *all_files += files;
        *all_bytes += bytes;
    }
    let told = |(protection, (files, bytes)): (&FileProtection, (u64, u64))| match protection {
        FileProtection::Key(key) => format!("{files} files with {bytes} bytes need the master key {key}"),
        FileProtection::Plain => format!("{files} files with {bytes} bytes are not encrypted"),
        FileProtection::Damaged => {
            format!("{files} encrypted files with {bytes} bytes have a damaged header")
        }
    };
    all.into_iter().map(told).collect()
}

/// What was done to the files of a node that is stopped.
#[derive(Debug, Default)]
pub struct Updates {
    encrypted: usize,
    rewrapped: usize,
    unchanged: usize,
    damaged: Vec<PathBuf>,
    /// The archive of commit logs, which is left as it is.
    archive: Option<PathBuf>,
}

impl Updates {
    /// Whether all files of the node were brought up to date.
    pub fn is_complete(&self) -> bool {
        self.damaged.is_empty()
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let Self { encrypted, rewrapped, unchanged, damaged, archive } = self;
        let mut text = format!(
            "{encrypted} files were not encrypted and are now\n{rewrapped} files needed another master key than the current one and need that now\n\
             {unchanged} files are as they were\n"
        );
        if !damaged.is_empty() {
            // A string does not fail.
            let _ = writeln!(
                text,
                "left as they are, because their header is damaged: {}",
                own_files::named(damaged)
            );
        }
        if let Some(archive) = archive {
            let _ = writeln!(
                text,
                "left as it is: the archive of commit logs {}, whose segments need the keys that they were written with",
                archive.display()
            );
        }
        text
    }
}

/// Encrypts all files of a node by the current master key, or those that its tables choose. Fails if a node runs on them, or at the first file that cannot be encrypted.
pub fn encrypt(config: &Config) -> Result<Updates, StartError> {
    config.validate()?;
    let _lock = lock(&config.data_dir)?;
    let at_rest = AtRest::open(config)?.that_accepts_plain_files();
    let disk = at_rest.disk_of_updates().ok_or(StartError::NoEncryption)?;
    check_owner(&config.data_dir)?;
    if at_rest.encrypts_by_table() {
        note_stored_catalog(config, &at_rest)?;
    }
    let mut done = Updates { archive: config.commit_log_archive_dir.clone(), ..Updates::default() };
    for OwnFile { path, .. } in own_files::list(config)? {
        match futures::executor::block_on(disk.bring_up_to_date(&path)) {
            Ok(Update::Encrypted) => done.encrypted += 1,
            Ok(Update::Rewrapped) => done.rewrapped += 1,
            Ok(Update::None) => done.unchanged += 1,
            Ok(Update::Damaged) => done.damaged.push(path),
            // A copy that a crash has left went with the file that it is of.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Goes by the catalog that the node has stored. Without one all files are encrypted.
fn note_stored_catalog(config: &Config, at_rest: &AtRest) -> Result<(), StartError> {
    let contents = futures::executor::block_on(async {
        let files = NodeFiles::open(at_rest.disk_of_jobs(), config.data_dir.clone()).await?;
        Ok::<_, StartError>(stored::load(&files).await?)
    })?;
    if let Some(contents) = contents {
        at_rest.note_catalog(contents.catalog());
    }
    Ok(())
}

/// Refuses to make files for another user than the node's: it could not open them.
fn check_owner(data_dir: &Path) -> Result<(), StartError> {
    let owner = std::fs::metadata(data_dir).map(|found| found.uid()).map_err(|source| StartError::File {
        what: "cannot look at the data directory",
        path: data_dir.to_path_buf(),
        source,
    })?;
    let user = rustix::process::geteuid().as_raw();
    if owner == user {
        Ok(())
    } else {
        Err(StartError::OtherOwner { path: data_dir.to_path_buf(), owner, user })
    }
}

/// Locks a data directory that is there.
fn lock(data_dir: &Path) -> Result<DirectoryLock, StartError> {
    let file_error = |what: &'static str| {
        let path = data_dir.to_path_buf();
        move |source| StartError::File { what, path, source }
    };
    if !data_dir.is_dir() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(file_error("cannot find the data directory")(missing));
    }
    DirectoryLock::acquire(data_dir).map_err(file_error("cannot lock"))
}

async fn check_directory(
    config: &Config,
    environment: &Environment,
    data_dir: PathBuf,
    at_rest: &AtRest,
) -> Result<DataReport, StartError> {
    let mut report = DataReport::default();
    let files = NodeFiles::open(Arc::clone(&environment.disk), data_dir).await?;
    let Some(bytes) = report.look_at(&files, identity::FILE).await else {
        if !report.has_problems() {
            report.problems.push(format!("{} is missing", files.path(identity::FILE).display()));
        }
        return Ok(report);
    };
    let shards = match Identity::decode(&bytes, &files, config.shards) {
        Ok(identity) => identity.shards,
        Err(error) => {
            report.problems.push(error.to_string());
            return Ok(report);
        }
    };
    // A node that was never founded has none.
    let before = report.problems.len();
    let catalog = report.look_at(&files, CATALOG_FILE).await;
    let changes = report.look_at(&files, CHANGES_FILE).await;
    // A file that cannot be read is a problem already.
    if report.problems.len() == before {
        match decode_files(&files, catalog.as_deref(), changes.as_deref()) {
            Ok(contents) => {
                if let Some(contents) = contents {
                    at_rest.note_catalog(contents.catalog());
                }
            }
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    for index in 0..shards {
        let mut options = ShardOptions::new(shard_directory(&files, index));
        set_directories(&mut options, config, index);
        let shard = Shard::check(environment, &options).await;
        report
            .shards
            .push(shard.map_err(|error| StartError::Shard { shard: index, message: error.to_string() })?);
    }
    Ok(report)
}
