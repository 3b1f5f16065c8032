//! `helenus admin`: an operator's commands, executed by a running node over its HTTP port.
//!
//! Prints tables for people, or with `--json` the node's answer. The exit status is 0 on success. A node that does
//! not answer in time is an error: see `http::call`.

mod http;
mod nodetool;
mod repair;
pub mod reports;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use self::http::{Call, CallError, Method};
pub use self::nodetool::with_long_options;
use self::reports::{
    CheckProgress, CheckedFile, CheckedFileState, ClusterDescription, ClusterSnapshots, ClusterStatus,
    CompactionsReport, NodeReport, ReplayReport, RestoredTable, RingReport, SnapshotReport, StreamingReport,
    TableReport, UnknownTableReport,
};

/// The arguments of `helenus admin`.
#[derive(Debug, clap::Args)]
pub struct AdminArguments {
    /// Where the node's HTTP port is.
    #[arg(long, env = "HELENUS_ADMIN_URL", default_value = "http://127.0.0.1:9180", global = true)]
    url: String,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Seconds to wait for the answer. Default: 30 for commands that only report, no limit for those that change
    /// something.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), global = true)]
    timeout: Option<u64>,
    #[command(subcommand)]
    command: AdminCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Whether the node serves clients: exit status 0, or 1 and the reason.
    Health,
    /// The members of the cluster: which are up, what they own, and the size of their data.
    Status {
        /// Shows the ownership of this keyspace.
        keyspace: Option<String>,
    },
    /// The tokens of the ring in order, with their owners.
    Ring {
        /// Shows the replicas of this keyspace too.
        keyspace: Option<String>,
    },
    /// The node itself.
    Info,
    /// The agreed state of the cluster: schema, data centers, replication.
    Describecluster,
    /// Writes memtables to files.
    Flush(TableScope),
    /// Merges all files of each table.
    Compact(TableScope),
    /// The compactions under way, and what is due.
    Compactionstats,
    /// Stops the compactions under way. Their inputs stay; the strategy chooses anew after ten minutes.
    Stop(TableScope),
    /// Changes what compactions may write, in MiB a second, until the next start; 0 is no limit.
    Setcompactionthroughput { mebibytes_per_second: u64 },
    /// Lets the strategies choose compactions again.
    Enableautocompaction(TableScope),
    /// Keeps the strategies from choosing compactions until the next start.
    Disableautocompaction(TableScope),
    /// Rewrites the files that a former version has written.
    Upgradesstables {
        /// All files, also those of the present format.
        #[arg(short = 'a', long)]
        all: bool,
        #[command(flatten)]
        scope: TableScope,
    },
    /// Rewrites each file of the tables without what deletions in other files shadow.
    Garbagecollect {
        /// ROW: what deletions of partitions, ranges and rows shadow; CELL: also deleted elements and cells, and those that were overwritten.
        #[arg(short = 'g', long, default_value = "ROW", value_parser = ["ROW", "CELL"], ignore_case = true)]
        granularity: String,
        /// A keyspace; all without one.
        keyspace: Option<String>,
        /// Tables of it; all without one.
        tables: Vec<String>,
    },
    /// Stops accepting requests and flushes everything, before a stop.
    Drain,
    /// Keeps the present files under a name.
    Snapshot {
        /// The name; the time in milliseconds without one.
        #[arg(short = 't', long = "name", visible_alias = "tag")]
        name: Option<String>,
        /// Tables of several keyspaces: KEYSPACE.TABLE, separated by commas. Also -kt.
        #[arg(long = "kt-list", value_delimiter = ',', value_name = "KEYSPACE.TABLE", conflicts_with_all = ["table", "keyspaces"])]
        tables: Vec<String>,
        /// The table of the one keyspace that is named. Also -cf.
        #[arg(long, requires = "keyspaces")]
        table: Option<String>,
        /// On all members of the cluster.
        #[arg(long)]
        cluster: bool,
        /// Keyspaces, or a keyspace and a table of it; all without one.
        keyspaces: Vec<String>,
    },
    /// Brings the rows of a snapshot of this node back, and the table if it is missing.
    Restore {
        /// On all members of the cluster, each from its own snapshot.
        #[arg(long)]
        cluster: bool,
        /// The name of the snapshot.
        #[arg(short = 't', long = "name")]
        name: String,
        /// The table of the same keyspace that gets the rows; it is created if it is missing.
        #[arg(long)]
        into: Option<String>,
        #[command(flatten)]
        scope: TableScope,
    },
    /// Writes the rows of table files, copies of snapshots or backups of any node, to the replicas that have them now.
    Import {
        /// The directory at or below which the files lie, on the machine of the node.
        directory: PathBuf,
        #[command(flatten)]
        writes: Writes,
    },
    /// Writes what archived commit logs have of tables that exist, up to a time, to the replicas that have the rows now.
    Replay {
        /// The directory at or below which the archived segments lie, on the machine of the node. A schema.json of a snapshot there names a
        /// table that was dropped.
        directory: PathBuf,
        /// Only writes up to this time: microseconds, or a text as 2026-01-31T12:00:00.123456Z.
        #[arg(long)]
        until: Option<String>,
        /// Only writes after this time.
        #[arg(long)]
        since: Option<String>,
        /// A snapshot of this node, taken of a table that was dropped since: its writes go to the table that has its name now.
        #[arg(long)]
        snapshot: Option<String>,
        #[command(flatten)]
        writes: Writes,
    },
    /// Ends the present segments of the commit log and waits for their copies in the archive.
    Archivelog,
    /// Removes the snapshots of a name.
    Clearsnapshot {
        /// On all members of the cluster.
        #[arg(long)]
        cluster: bool,
        /// The name.
        name: String,
    },
    /// The snapshots of this node, with their sizes and when they expire.
    Listsnapshots {
        /// Those of all members of the cluster.
        #[arg(long)]
        cluster: bool,
    },
    /// Tables that the schema does not name: they are kept and not served.
    Unknowntables,
    /// Reads the files of tables as a whole and reports which are damaged: exit status 1 if one is.
    Verify(TableScope),
    /// As verify, and takes files into use that could not be read before and can be now.
    Scrub {
        /// Gives up what cannot be read: damaged files are replaced by what can be read of them, and go to the quarantine. Rows are
        /// lost on this node.
        #[arg(long)]
        skip_corrupted: bool,
        #[command(flatten)]
        scope: TableScope,
    },
    /// How far verify and scrub are, and what they have found.
    Checks,
    /// Leaves the cluster: the node's data goes to the members that own it then.
    Decommission {
        /// Also if fewer members remain than a keyspace has replicas.
        #[arg(long)]
        force: bool,
        /// Also while others have old data of ranges that they gain: rows that were deleted since may come back.
        #[arg(long)]
        accept_old_data: bool,
    },
    /// Removes dead members, in one transition: the others stream their ranges from each other.
    Removenode {
        /// The members, as `status` shows them.
        #[arg(required = true, num_args = 1..)]
        host_ids: Vec<Uuid>,
        /// Also while others have old data of ranges that they gain: rows that were deleted since may come back.
        #[arg(long)]
        accept_old_data: bool,
        /// Also if they have the only copy of some ranges, whose rows are lost then.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Cancels the join of a member.
    Abortjoin {
        /// The member, as `status` shows it.
        host_id: Uuid,
    },
    /// Removes the data of ranges that the node does not own any more.
    Cleanup {
        /// Of this keyspace only.
        keyspace: Option<String>,
    },
    /// Makes the replicas of ranges equal, whatever they have missed; returns when that is done.
    Repair(repair::RepairArguments),
    /// Brings all that the replicas in a data center have of the node's ranges to the node; returns when that is done.
    Rebuild {
        data_center: String,
        /// Of this keyspace only.
        keyspace: Option<String>,
    },
    /// The streams of data between replicas.
    Netstats,
    /// Files, sizes and counts of tables.
    Tablestats {
        /// Of this keyspace only.
        keyspace: Option<String>,
    },
}

/// Everything, a keyspace, or a table.
#[derive(Debug, clap::Args)]
struct TableScope {
    /// A keyspace; all without one.
    keyspace: Option<String>,
    /// A table of it; all without one.
    table: Option<String>,
}

impl TableScope {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let keyspace = keyspace_parameter(self.keyspace.as_ref());
        let table = self.table.iter().map(|table| ("table", table.clone()));
        keyspace.into_iter().chain(table).collect()
    }
}

/// Where rows from elsewhere are written to.
#[derive(Debug, clap::Args)]
struct Writes {
    /// The table of the same keyspace that gets the rows; it is created if it is missing.
    #[arg(long)]
    into: Option<String>,
    /// The consistency level of the writes. ALL without one.
    #[arg(long)]
    consistency: Option<String>,
    #[command(flatten)]
    scope: TableScope,
}

impl Writes {
    /// With those of the directory that the rows come from.
    fn parameters(&self, directory: &Path) -> Vec<(&'static str, String)> {
        let mut parameters = self.scope.parameters();
        parameters.push(directory_parameter(directory));
        parameters.extend(given([("into", &self.into), ("consistency", &self.consistency)]));
        parameters
    }
}

/// The parameters that have a value.
fn given<'a, const COUNT: usize>(
    options: [(&'static str, &'a Option<String>); COUNT],
) -> impl Iterator<Item = (&'static str, String)> + use<'a, COUNT> {
    options.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)))
}

/// Whether all members are asked.
fn cluster_parameter(cluster: bool) -> impl Iterator<Item = (&'static str, String)> {
    cluster.then(|| ("cluster", "true".to_owned())).into_iter()
}

/// A relative path is relative to the directory of the command, which the node does not know.
fn directory_parameter(directory: &Path) -> (&'static str, String) {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    ("directory", absolute.to_string_lossy().into_owned())
}

fn keyspace_parameter(keyspace: Option<&String>) -> Vec<(&'static str, String)> {
    keyspace.into_iter().map(|keyspace| ("keyspace", keyspace.clone())).collect()
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the node's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

impl AdminCommand {
    /// The request to the node.
    fn call(&self) -> Call {
        let (method, path, parameters) = match self {
            Self::Health => (Method::GET, "/health", Vec::new()),
            Self::Status { keyspace } => {
                (Method::GET, "/admin/status", keyspace_parameter(keyspace.as_ref()))
            }
            Self::Ring { keyspace } => (Method::GET, "/admin/ring", keyspace_parameter(keyspace.as_ref())),
            Self::Info => (Method::GET, "/admin/info", Vec::new()),
            Self::Describecluster => (Method::GET, "/admin/describecluster", Vec::new()),
            Self::Flush(scope) => (Method::POST, "/admin/flush", scope.parameters()),
            Self::Compact(scope) => (Method::POST, "/admin/compact", scope.parameters()),
            Self::Compactionstats => (Method::GET, "/admin/compactionstats", Vec::new()),
            Self::Stop(scope) => (Method::POST, "/admin/stop", scope.parameters()),
            Self::Setcompactionthroughput { mebibytes_per_second } => {
                let rate = ("mebibytes_per_second", mebibytes_per_second.to_string());
                (Method::POST, "/admin/setcompactionthroughput", vec![rate])
            }
            Self::Enableautocompaction(scope) => {
                (Method::POST, "/admin/enableautocompaction", scope.parameters())
            }
            Self::Disableautocompaction(scope) => {
                (Method::POST, "/admin/disableautocompaction", scope.parameters())
            }
            Self::Upgradesstables { all, scope } => {
                let mut parameters = scope.parameters();
                parameters.extend(all.then(|| ("all", "true".to_owned())));
                (Method::POST, "/admin/upgradesstables", parameters)
            }
            Self::Garbagecollect { granularity, keyspace, tables } => {
                let mut parameters = keyspace_parameter(keyspace.as_ref());
                parameters.extend((!tables.is_empty()).then(|| ("tables", tables.join(","))));
                parameters.push(("granularity", granularity.to_uppercase()));
                (Method::POST, "/admin/garbagecollect", parameters)
            }
            Self::Drain => (Method::POST, "/admin/drain", Vec::new()),
            Self::Snapshot { name, tables, table, cluster, keyspaces } => {
                let list = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
                let (keyspaces, tables) = (list(keyspaces), list(tables));
                let options =
                    [("keyspace", &keyspaces), ("table", table), ("tables", &tables), ("name", name)];
                let parameters = given(options).chain(cluster_parameter(*cluster)).collect();
                (Method::POST, "/admin/snapshot", parameters)
            }
            Self::Restore { cluster, name, into, scope } => {
                let mut parameters = scope.parameters();
                parameters.push(("name", name.clone()));
                parameters.extend(given([("into", into)]).chain(cluster_parameter(*cluster)));
                (Method::POST, "/admin/restore", parameters)
            }
            Self::Import { directory, writes } => {
                (Method::POST, "/admin/import", writes.parameters(directory))
            }
            Self::Replay { directory, until, since, snapshot, writes } => {
                let mut parameters = writes.parameters(directory);
                parameters.extend(given([("until", until), ("since", since), ("name", snapshot)]));
                (Method::POST, "/admin/replay", parameters)
            }
            Self::Archivelog => (Method::POST, "/admin/archivelog", Vec::new()),
            Self::Clearsnapshot { cluster, name } => {
                let parameters = std::iter::once(("name", name.clone())).chain(cluster_parameter(*cluster));
                (Method::POST, "/admin/clear_snapshot", parameters.collect())
            }
            Self::Listsnapshots { cluster } => {
                (Method::GET, "/admin/listsnapshots", cluster_parameter(*cluster).collect())
            }
            Self::Unknowntables => (Method::GET, "/admin/unknowntables", Vec::new()),
            Self::Verify(scope) => (Method::POST, "/admin/verify", scope.parameters()),
            Self::Scrub { skip_corrupted, scope } => {
                let mut parameters = scope.parameters();
                parameters.extend(skip_corrupted.then(|| ("skip_corrupted", "true".to_owned())));
                (Method::POST, "/admin/scrub", parameters)
            }
            Self::Checks => (Method::GET, "/admin/checks", Vec::new()),
            Self::Decommission { force, accept_old_data } => {
                let force = force.then(|| ("force", "true".to_owned()));
                let accepts = accept_old_data.then(accepts_old_data);
                (Method::POST, "/admin/decommission", force.into_iter().chain(accepts).collect())
            }
            Self::Removenode { host_ids, accept_old_data, accept_loss } => {
                let list = host_ids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(",");
                let accepts = accept_old_data.then(accepts_old_data);
                let loss = accept_loss.then(|| ("accept_loss", "true".to_owned()));
                let parameters = [("host_id", list)].into_iter().chain(accepts).chain(loss);
                (Method::POST, "/admin/removenode", parameters.collect())
            }
            Self::Abortjoin { host_id } => {
                (Method::POST, "/admin/abortjoin", vec![("host_id", host_id.to_string())])
            }
            Self::Cleanup { keyspace } => {
                (Method::POST, "/admin/cleanup", keyspace_parameter(keyspace.as_ref()))
            }
            Self::Repair(arguments) => arguments.request(),
            Self::Rebuild { data_center, keyspace } => {
                let mut parameters = vec![("data_center", data_center.clone())];
                parameters.extend(keyspace_parameter(keyspace.as_ref()));
                (Method::POST, "/admin/rebuild", parameters)
            }
            Self::Netstats => (Method::GET, "/admin/netstats", Vec::new()),
            Self::Tablestats { keyspace } => {
                (Method::GET, "/admin/tablestats", keyspace_parameter(keyspace.as_ref()))
            }
        };
        Call { method, path, parameters }
    }

    /// The node's answer as text for people.
    fn text(&self, answer: Value) -> Result<String, serde_json::Error> {
        Ok(match self {
            Self::Snapshot { cluster: true, .. } => tables::cluster_snapshots(&read(answer)?, tables::taken),
            Self::Listsnapshots { cluster: true } => {
                tables::cluster_snapshots(&read(answer)?, |member| tables::snapshots(&member.snapshots))
            }
            Self::Clearsnapshot { cluster: true, .. } => {
                tables::cluster_snapshots(&read(answer)?, |_| "removed\n".to_owned())
            }
            Self::Restore { cluster: true, .. } => {
                tables::cluster_snapshots(&read(answer)?, |member| tables::restored(&member.tables))
            }
            Self::Snapshot { .. } => match answer.get("name").and_then(Value::as_str) {
                Some(name) => format!("snapshot: {name}\n"),
                // The node has an older program: the name is the one that was given.
                None => "done\n".to_owned(),
            },
            Self::Health => match answer.get("remark").and_then(Value::as_str) {
                Some(remark) => format!("up; {remark}\n"),
                None => "up\n".to_owned(),
            },
            Self::Status { .. } => tables::status(&read::<ClusterStatus>(answer)?),
            Self::Ring { .. } => tables::ring(&read::<RingReport>(answer)?),
            Self::Info => tables::info(&read::<NodeReport>(answer)?),
            Self::Describecluster => tables::description(&read::<ClusterDescription>(answer)?),
            Self::Tablestats { .. } => {
                let reports = answer.get("tables").cloned().unwrap_or_default();
                tables::table_statistics(&read::<Vec<TableReport>>(reports)?)
            }
            Self::Listsnapshots { .. } => {
                let reports = answer.get("snapshots").cloned().unwrap_or_default();
                tables::snapshots(&read::<Vec<SnapshotReport>>(reports)?)
            }
            Self::Restore { .. } | Self::Import { .. } => {
                let tables = answer.get("tables").cloned().unwrap_or_default();
                tables::restored(&read::<Vec<RestoredTable>>(tables)?)
            }
            Self::Replay { .. } => tables::replayed(&read::<ReplayReport>(answer)?),
            Self::Unknowntables => {
                let reports = answer.get("tables").cloned().unwrap_or_default();
                tables::unknown_tables(&read::<Vec<UnknownTableReport>>(reports)?)
            }
            Self::Verify(_) | Self::Scrub { .. } => tables::checked_files(&checked(&answer)?),
            Self::Checks => {
                let shards = answer.get("shards").cloned().unwrap_or_default();
                tables::checks(&read::<Vec<CheckProgress>>(shards)?)
            }
            Self::Compactionstats => tables::compactions(&read::<CompactionsReport>(answer)?),
            Self::Drain => "drained\n".to_owned(),
            Self::Archivelog => "archived\n".to_owned(),
            Self::Repair(arguments) if arguments.asks_for_status() => repair::status(&read(answer)?),
            Self::Repair(arguments) if !arguments.cancels() => repair::ended(&read(answer)?),
            Self::Rebuild { .. } => repair::ended(&read(answer)?),
            Self::Netstats => tables::streams(&read::<StreamingReport>(answer)?),
            Self::Flush(_)
            | Self::Compact(_)
            | Self::Repair(_)
            | Self::Stop(_)
            | Self::Setcompactionthroughput { .. }
            | Self::Enableautocompaction(_)
            | Self::Disableautocompaction(_)
            | Self::Upgradesstables { .. }
            | Self::Garbagecollect { .. }
            | Self::Clearsnapshot { .. }
            | Self::Decommission { .. }
            | Self::Removenode { .. }
            | Self::Abortjoin { .. }
            | Self::Cleanup { .. } => "done\n".to_owned(),
        })
    }
}

fn accepts_old_data() -> (&'static str, String) {
    ("accept_old_data", "true".to_owned())
}

impl AdminCommand {
    /// Whether an answer shows that the command has not been carried out everywhere, or has found damage.
    fn has_failed(&self, answer: &Value) -> Result<bool, serde_json::Error> {
        Ok(match self {
            Self::Verify(_) | Self::Scrub { .. } => {
                checked(answer)?.iter().any(|file| file.state == CheckedFileState::Damaged)
            }
            Self::Snapshot { cluster: true, .. }
            | Self::Restore { cluster: true, .. }
            | Self::Clearsnapshot { cluster: true, .. }
            | Self::Listsnapshots { cluster: true } => {
                let report = read::<ClusterSnapshots>(answer.clone())?;
                report.members.iter().any(|member| member.error.is_some())
            }
            _ => false,
        })
    }
}

/// The files of an answer to verify or scrub.
fn checked(answer: &Value) -> Result<Vec<CheckedFile>, serde_json::Error> {
    read(answer.get("files").cloned().unwrap_or_default())
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(answer)
}

/// Executes a command and prints its result.
pub fn main_with_args(arguments: &AdminArguments) -> ExitCode {
    match run(arguments) {
        Ok(status) => status,
        Err(error) => {
            // If it cannot be written, the exit status still shows the error.
            let _ = writeln!(std::io::stderr(), "helenus admin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &AdminArguments) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let timeout = arguments.timeout.map(Duration::from_secs);
    let called = runtime.block_on(http::call(&arguments.url, &arguments.command.call(), timeout));
    // A look-up of a name that is still in progress is not waited for.
    runtime.shutdown_background();
    let (answer, mut status) = match called {
        // This is the requested answer, and the exit status shows which one it is.
        Err(CallError::NotServing { answer, .. }) if arguments.json => (answer, ExitCode::FAILURE),
        called => (called?, ExitCode::SUCCESS),
    };
    if arguments.command.has_failed(&answer)? {
        status = ExitCode::FAILURE;
    }
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&answer)?)
    } else {
        arguments.command.text(answer)?
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: AdminArguments,
    }

    fn call(arguments: &[&str]) -> String {
        let words = ["helenus", "admin"].iter().chain(arguments).map(Into::into);
        let program = Program::try_parse_from(with_long_options(words).into_iter().skip(1)).unwrap();
        program.arguments.command.call().to_string()
    }

    #[test]
    fn commands_become_requests() {
        assert_eq!(call(&["health"]), "GET /health");
        assert_eq!(call(&["status", "--timeout", "3"]), "GET /admin/status");
        assert_eq!(call(&["ring", "shop", "--json"]), "GET /admin/ring?keyspace=shop");
        assert_eq!(call(&["info"]), "GET /admin/info");
        assert_eq!(call(&["describecluster"]), "GET /admin/describecluster");
        assert_eq!(call(&["flush"]), "POST /admin/flush");
        assert_eq!(call(&["compact", "a b", "t"]), "POST /admin/compact?keyspace=a%20b&table=t");
        assert_eq!(call(&["compactionstats"]), "GET /admin/compactionstats");
        assert_eq!(call(&["stop", "ks", "t"]), "POST /admin/stop?keyspace=ks&table=t");
        assert_eq!(
            call(&["setcompactionthroughput", "16"]),
            "POST /admin/setcompactionthroughput?mebibytes_per_second=16"
        );
        assert_eq!(call(&["enableautocompaction"]), "POST /admin/enableautocompaction");
        assert_eq!(call(&["disableautocompaction", "ks"]), "POST /admin/disableautocompaction?keyspace=ks");
        assert_eq!(
            call(&["upgradesstables", "-a", "ks"]),
            "POST /admin/upgradesstables?keyspace=ks&all=true"
        );
        assert_eq!(call(&["garbagecollect"]), "POST /admin/garbagecollect?granularity=ROW");
        assert_eq!(
            call(&["garbagecollect", "-g", "cell", "ks", "t", "u"]),
            "POST /admin/garbagecollect?keyspace=ks&tables=t%2Cu&granularity=CELL"
        );
        assert_eq!(call(&["drain"]), "POST /admin/drain");
        assert_eq!(call(&["snapshot", "-t", "n", "ks"]), "POST /admin/snapshot?keyspace=ks&name=n");
        assert_eq!(call(&["snapshot"]), "POST /admin/snapshot");
        assert_eq!(call(&["restore", "-t", "n"]), "POST /admin/restore?name=n");
        assert_eq!(
            call(&["restore", "--cluster", "-t", "n", "ks"]),
            "POST /admin/restore?keyspace=ks&name=n&cluster=true"
        );
        assert_eq!(
            call(&["restore", "-t", "n", "ks", "t", "--into", "u"]),
            "POST /admin/restore?keyspace=ks&table=t&name=n&into=u"
        );
        assert_eq!(
            call(&["import", "/b", "ks", "--consistency", "quorum"]),
            "POST /admin/import?keyspace=ks&directory=%2Fb&consistency=quorum"
        );
        assert_eq!(
            call(&[
                "replay",
                "/b",
                "ks",
                "t",
                "--until",
                "7",
                "--since",
                "3",
                "--snapshot",
                "n",
                "--into",
                "u"
            ]),
            "POST /admin/replay?keyspace=ks&table=t&directory=%2Fb&into=u&until=7&since=3&name=n"
        );
        assert_eq!(call(&["archivelog"]), "POST /admin/archivelog");
        assert_eq!(call(&["clearsnapshot", "n"]), "POST /admin/clear_snapshot?name=n");
        assert_eq!(
            call(&["clearsnapshot", "n", "--cluster"]),
            "POST /admin/clear_snapshot?name=n&cluster=true"
        );
        assert_eq!(call(&["listsnapshots"]), "GET /admin/listsnapshots");
        assert_eq!(call(&["listsnapshots", "--cluster"]), "GET /admin/listsnapshots?cluster=true");
        assert_eq!(call(&["unknowntables"]), "GET /admin/unknowntables");
        assert_eq!(call(&["verify", "shop"]), "POST /admin/verify?keyspace=shop");
        assert_eq!(call(&["scrub"]), "POST /admin/scrub");
        assert_eq!(
            call(&["scrub", "--skip-corrupted", "shop", "t"]),
            "POST /admin/scrub?keyspace=shop&table=t&skip_corrupted=true"
        );
        assert_eq!(call(&["checks"]), "GET /admin/checks");
        assert_eq!(call(&["tablestats"]), "GET /admin/tablestats");
        assert_eq!(call(&["decommission"]), "POST /admin/decommission");
        assert_eq!(call(&["decommission", "--force"]), "POST /admin/decommission?force=true");
        let host_id = "7f3c1c5e-0000-4000-8000-000000000001";
        let encoded = host_id.replace('-', "%2D");
        assert_eq!(
            call(&["decommission", "--accept-old-data"]),
            "POST /admin/decommission?accept_old_data=true"
        );
        assert_eq!(
            call(&["removenode", "--accept-old-data", host_id]),
            format!("POST /admin/removenode?host_id={encoded}&accept_old_data=true")
        );
        assert_eq!(call(&["removenode", host_id]), format!("POST /admin/removenode?host_id={encoded}"));
        assert_eq!(call(&["abortjoin", host_id]), format!("POST /admin/abortjoin?host_id={encoded}"));
        assert_eq!(call(&["cleanup", "shop"]), "POST /admin/cleanup?keyspace=shop");
        assert_eq!(call(&["netstats"]), "GET /admin/netstats");
        assert_eq!(call(&["repair"]), "POST /admin/repair");
        assert_eq!(
            call(&["repair", "-full", "-pr", "-local", "ks", "t", "u"]),
            "POST /admin/repair?keyspace=ks&tables=t%2Cu&ranges=primary&local=true"
        );
        assert_eq!(
            call(&["repair", "-st", "-5", "-et", "7", "-dc", "a", "--in-dc", "b", "--force"]),
            "POST /admin/repair?start_token=%2D5&end_token=7&data_centers=a%2Cb&force=true"
        );
        assert_eq!(call(&["rebuild", "dc1", "ks"]), "POST /admin/rebuild?data_center=dc1&keyspace=ks");
        assert_eq!(call(&["repair", "--status"]), "GET /admin/repairs");
        assert_eq!(call(&["repair", "--cancel"]), "POST /admin/cancelrepair");
        assert_eq!(call(&["repair", "--cancel", "3"]), "POST /admin/cancelrepair?id=3");
    }

    #[test]
    fn tables_of_a_snapshot_are_named_as_in_nodetool() {
        assert_eq!(call(&["snapshot", "a", "b", "c"]), "POST /admin/snapshot?keyspace=a%2Cb%2Cc");
        assert_eq!(call(&["snapshot", "--tag", "n", "a", "t"]), "POST /admin/snapshot?keyspace=a%2Ct&name=n");
        assert_eq!(
            call(&["snapshot", "-cf", "t", "-t", "n", "a"]),
            "POST /admin/snapshot?keyspace=a&table=t&name=n"
        );
        let of_list = "POST /admin/snapshot?tables=a%2Et%2Cb%2Eu&cluster=true";
        assert_eq!(call(&["snapshot", "-kt", "a.t,b.u", "--cluster"]), of_list);
        assert_eq!(call(&["snapshot", "--kt-list", "a.t", "--kt-list=b.u", "--cluster"]), of_list);
        for refused in [
            &["snapshot", "-kt", "a.t", "b"] as &[&str],
            &["snapshot", "-kt", "a.t", "-cf", "u"],
            &["snapshot", "-cf", "u"],
            &["snapshot", "-kt"],
        ] {
            let words = ["helenus", "admin"].iter().chain(refused).map(Into::into);
            assert!(Program::try_parse_from(with_long_options(words).into_iter().skip(1)).is_err());
        }
        // Only there.
        let words = ["helenus", "shell", "-kt", "snapshot"].map(OsString::from);
        assert_eq!(with_long_options(words.clone().into_iter()), words);
    }

    #[test]
    fn a_member_that_failed_is_named_and_the_command_has_failed() {
        let report = serde_json::json!({ "name": "n", "members": [
            { "host_id": "1", "address": "10.0.0.1:7000", "error": null, "snapshots": [
                { "name": "n", "table_id": "7", "keyspace": "a", "table": "t", "created_at": "", "expires_at": "", "disk_bytes": 512 },
            ], "tables": [{ "keyspace": "a", "table": "t", "file_count": 1, "disk_bytes": 512 }] },
            { "host_id": "2", "address": "10.0.0.2:7000", "error": "the member is down" },
        ] });
        let command = |words: &[&str]| {
            Program::try_parse_from(std::iter::once(&"admin").chain(words)).unwrap().arguments.command
        };
        let taken = command(&["snapshot", "--cluster"]);
        assert!(taken.has_failed(&report).unwrap());
        assert_eq!(
            taken.text(report.clone()).unwrap(),
            "snapshot: n\n10.0.0.1:7000: taken, 1 tables, 512 bytes\n10.0.0.2:7000: failed: the member is down\n"
        );
        assert_eq!(
            command(&["listsnapshots", "--cluster"]).text(report.clone()).unwrap(),
            "snapshot: n\n10.0.0.1:7000:\nName  Keyspace  Table  Size       Created  Expires\n\
             n     a         t      512 bytes\n10.0.0.2:7000: failed: the member is down\n"
        );
        let restore = command(&["restore", "-t", "n", "--cluster"]);
        assert!(
            restore.text(report.clone()).unwrap().contains("10.0.0.1:7000:\nKeyspace  Table  Files  Size\n")
        );
        let clear = command(&["clearsnapshot", "n", "--cluster"]);
        assert!(clear.text(report).unwrap().contains("10.0.0.1:7000: removed\n"));
        let whole = serde_json::json!({ "name": "n", "members": [{ "host_id": "1", "address": "a", "error": null }] });
        assert!(!clear.has_failed(&whole).unwrap());
    }
}
