//! A look at the directories of a shard that is not open: whether all that a start needs is there and whole.
//!
//! Invariant: nothing is changed, except that the shard is locked meanwhile.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use super::directories::Directories;
use super::directory::has_entries;
use super::options::ShardOptions;
use super::remains::Remains;
use super::state::Shard;
use super::table_state::TableState;
use crate::commit_log::{CommitLog, LogEnvironment};
use crate::error::EngineError;
use crate::io::{Environment, yield_now};
use crate::manifest::{Loaded, Manifest, ManifestError, ManifestFiles};
use crate::mutation::MutationRef;
use crate::shard::TableOptions;
use crate::table::{ResidentParts, TableError, TableReader, verify};

/// The contents of a shard that is not open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryReport {
    pub tables: u64,
    pub files: u64,
    pub file_bytes: u64,
    /// Records of the commit log, those of files included.
    pub log_records: u64,
    /// Missing and damaged parts, one sentence each.
    pub problems: Vec<String>,
    /// Defects that a start would repair by itself, and files that it would move away, one sentence each.
    pub remarks: Vec<String>,
}

impl Shard {
    /// Looks at everything in the directories of a shard. `options` name them as for a start. Fails if the shard is open.
    pub async fn check(
        environment: &Environment,
        options: &ShardOptions,
    ) -> Result<DirectoryReport, EngineError> {
        let mut report = DirectoryReport::default();
        let missing = ManifestError::Missing { path: ManifestFiles::path(&options.directory) };
        if !ManifestFiles::exists(&*environment.disk, &options.directory).await? {
            report.problems.push(missing.to_string());
            return Ok(report);
        }
        let _lock = environment.disk.lock(&options.directory.join("lock")).await?;
        let loaded = match ManifestFiles::load(&*environment.disk, &options.directory).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => {
                report.problems.push(missing.to_string());
                return Ok(report);
            }
            Err(error) => {
                report.problems.push(error.to_string());
                return Ok(report);
            }
        };
        for defect in loaded.defects() {
            report.remarks.push(format!("{defect}; the next start writes both copies anew"));
        }
        let Loaded { mut manifest, is_old, .. } = loaded;
        if is_old {
            let path = ManifestFiles::path(&options.directory);
            report
                .remarks
                .push(format!("{}: an older version, which the next start replaces", path.display()));
        }
        let directories = Directories::new(options, &mut manifest);
        if let Err(error) = directories.check(&environment.disk, &manifest).await {
            report.problems.push(error.to_string());
        }
        let remains = Remains::find(&*environment.disk, &directories, &manifest).await?;
        for path in remains.unknown_paths() {
            report.remarks.push(format!(
                "{}: the manifest does not know it, and the next start moves it to the quarantine",
                path.display()
            ));
        }
        check_files(environment, &directories, &manifest, &mut report).await;
        if let Err(error) = check_log(environment, options, &manifest, &mut report).await {
            report.problems.push(error.to_string());
        }
        Ok(report)
    }
}

async fn check_files(
    environment: &Environment,
    directories: &Directories,
    manifest: &Manifest,
    report: &mut DirectoryReport,
) {
    for (id, entry) in &manifest.tables {
        report.tables += 1;
        let table =
            TableState::new(directories, &ResidentParts::unlimited(), *id, TableOptions::default(), false);
        for file in &entry.files {
            report.files += 1;
            match check_file(environment, &table.path(file.id()), file.generation).await {
                Ok(bytes) => report.file_bytes += bytes,
                Err(error) => report.problems.push(error.to_string()),
            }
        }
    }
}

async fn check_file(environment: &Environment, path: &std::path::Path, id: u64) -> Result<u64, TableError> {
    let reader = TableReader::open_file(&*environment.disk, path, id).await?;
    let statistics = reader.statistics().clone();
    verify(&reader, &statistics, async |_| yield_now().await).await?;
    Ok(reader.file_bytes())
}

async fn check_log(
    environment: &Environment,
    options: &ShardOptions,
    manifest: &Manifest,
    report: &mut DirectoryReport,
) -> Result<(), EngineError> {
    let own = options.directory.join("commit-log");
    let directory: PathBuf = options.commit_log_directory.clone().unwrap_or(own);
    if !has_entries(&*environment.disk, &directory).await? {
        if !manifest.tables.is_empty() {
            return Err(EngineError::MissingDirectory { path: directory, what: "the commit log" });
        }
        return Ok(());
    }
    let log_environment = LogEnvironment {
        disk: Arc::clone(&environment.disk),
        clock: Rc::clone(&environment.clock),
        random: Rc::clone(&environment.random),
    };
    let log_options = options.commit_log.clone();
    let mut replay =
        CommitLog::open(log_environment, &directory, log_options, manifest.log_needed_from).await?;
    while let Some((_, record)) = replay.next().await? {
        for part in MutationRef::parse(&record).map_err(EngineError::Mutation)?.parts() {
            part.and_then(MutationRef::validate).map_err(EngineError::Mutation)?;
        }
        report.log_records += 1;
    }
    Ok(())
}
