//! The verbs that change something.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use uuid::Uuid;

use super::activity::BYTES_PER_MEGABIT;
use super::cluster;
use super::error::NodetoolError;
use super::format::Addresses;
use crate::ask::Ask;
use crate::command::{AdminCommand, TableScope, Writes, probability};
use crate::guardrails::GuardrailChange;
use crate::repair::RepairArguments;
use crate::reports::{CheckedFileState, ClusterStatus, CompactionsReport, RepairReport, SnapshotReport};
use crate::request_logs::{AuditLogArguments, QueryLogArguments};
use crate::settings::ROOT;
use crate::tables::checked_files;
use crate::text::{checked, part};

/// Rates are given as in Java, in 31 bits: none of them is too large in bytes.
const RATE_MAX: u64 = 0x7fff_ffff;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Act {
    /// Writes memtables to files.
    Flush(Tables),
    /// Merges all files of each table.
    Compact(Tables),
    /// Stops the compactions under way.
    Stop {
        /// COMPACTION; without it cleanups too.
        kind: Option<String>,
    },
    /// Changes what compactions may write, in MiB a second; 0 is no limit.
    Setcompactionthroughput {
        #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(..=RATE_MAX))]
        mebibytes_per_second: u64,
    },
    /// Changes a guardrail until the next start of the node.
    Setguardrailsconfig {
        /// The name of a guardrail, and its values.
        #[arg(allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Lets the strategies choose compactions again.
    Enableautocompaction(Tables),
    /// Keeps the strategies from choosing compactions.
    Disableautocompaction(Tables),
    /// Rewrites files of former formats.
    Upgradesstables {
        /// All files, also those of the present format.
        #[arg(short = 'a', long = "include-all-sstables")]
        all: bool,
        #[command(flatten)]
        tables: Tables,
    },
    /// Rewrites files without what deletions in other files shadow.
    Garbagecollect {
        #[arg(short = 'g', long, default_value = "ROW", value_parser = ["ROW", "CELL"], ignore_case = true)]
        granularity: String,
        #[command(flatten)]
        tables: Tables,
    },
    /// Makes the files of indexes of the node anew.
    #[command(name = "rebuild_index")]
    RebuildIndex {
        keyspace: String,
        table: String,
        #[arg(required = true)]
        indexes: Vec<String>,
    },
    /// Stops accepting requests and flushes everything.
    Drain,
    /// Loads certificates and keys for TLS now.
    Reloadssl,
    /// Makes a group of networks, or gives it other networks.
    Updatecidrgroup {
        group: String,
        #[arg(required = true)]
        networks: Vec<String>,
    },
    /// Removes a group of networks.
    Dropcidrgroup { group: String },
    /// Keeps the present files under a name.
    Snapshot {
        #[arg(short = 't', long = "tag")]
        tag: Option<String>,
        /// The table of the one keyspace that is named. Also -cf.
        #[arg(long, alias = "column-family", requires = "keyspaces")]
        table: Option<String>,
        /// Tables of several keyspaces: KEYSPACE.TABLE, separated by commas. Also -kt, -kc.
        #[arg(long = "kt-list", alias = "kc.list", value_delimiter = ',', conflicts_with_all = ["table", "keyspaces"])]
        list: Vec<String>,
        keyspaces: Vec<String>,
    },
    /// Removes snapshots.
    Clearsnapshot {
        #[arg(short = 't', required_unless_present = "all", conflicts_with = "all")]
        tag: Option<String>,
        /// Those of all names.
        #[arg(long)]
        all: bool,
        #[arg(hide = true)]
        keyspaces: Vec<String>,
    },
    /// Removes the data of ranges that the node does not own.
    Cleanup(Tables),
    /// Makes the replicas of the node's ranges equal. All rows are compared, also without -full.
    Repair(Repair),
    /// Brings all that the replicas in a data center have of the node's ranges to the node.
    Rebuild {
        /// Of this keyspace only. Also -ks.
        #[arg(long)]
        keyspace: Option<String>,
        data_center: String,
    },
    /// Leaves the cluster.
    Decommission {
        /// Also if fewer members remain than a keyspace has replicas.
        #[arg(short = 'f', long)]
        force: bool,
    },
    /// Removes a dead member, or shows with `status` which are being removed.
    Removenode { host_id: String },
    /// Removes a dead member without giving its ranges' rows to others.
    Assassinate { address: String },
    /// Reads the files of tables as a whole and reports which are damaged.
    Verify {
        /// All is read, as always.
        #[arg(short = 'e', long = "extended-verify")]
        is_extended: bool,
        /// Files can always be verified.
        #[arg(short = 'f', long = "force")]
        is_forced: bool,
        #[command(flatten)]
        tables: Tables,
    },
    /// Takes files into use that could not be read before and can be now.
    Scrub {
        /// Gives up what cannot be read.
        #[arg(short = 's', long)]
        skip_corrupted: bool,
        /// No snapshot is taken before, as always. Also -ns.
        #[arg(long = "no-snapshot")]
        is_without_snapshot: bool,
        #[command(flatten)]
        tables: Tables,
    },
    /// Writes the rows of table files to the replicas that have them now.
    Import {
        /// The files stay where they are, as always.
        #[arg(short = 'p', long = "copy-data")]
        copies: bool,
        /// Rows go to the replicas of their tokens, as always.
        #[arg(short = 't', long = "no-tokens")]
        is_without_tokens: bool,
        /// There is no cache of rows.
        #[arg(short = 'c', long = "no-invalidate-caches")]
        keeps_caches: bool,
        keyspace: String,
        table: String,
        #[arg(required = true)]
        directories: Vec<PathBuf>,
    },
    /// Changes what streams may send, in megabits a second; 0 is no limit.
    Setstreamthroughput {
        /// In MiB a second.
        #[arg(short = 'm', long = "mib")]
        is_mebibytes: bool,
        #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(..=RATE_MAX))]
        rate: u64,
    },
    /// Changes what deliveries of hints may send, in KiB a second; 0 is no limit.
    Sethintedhandoffthrottlekb {
        #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(..=RATE_MAX))]
        kibibytes_per_second: u64,
    },
    /// Accepts clients again.
    Enablebinary,
    /// Accepts no more clients.
    Disablebinary,
    /// Keeps hints again.
    Enablehandoff,
    /// Keeps no more hints.
    Disablehandoff,
    /// Delivers no hints.
    Pausehandoff,
    /// Delivers hints again.
    Resumehandoff,
    /// Changes the part of requests that are traced, from 0 to 1.
    Settraceprobability {
        #[arg(value_parser = probability)]
        probability: f64,
    },
    /// Changes which lines are logged; without words to what is configured.
    Setlogginglevel {
        /// A module of the program, or ROOT.
        #[arg(requires = "level")]
        target: Option<String>,
        /// ALL, TRACE, DEBUG, INFO, WARN, ERROR or OFF.
        #[arg(value_parser = ["ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF"], ignore_case = true)]
        level: Option<String>,
    },
    /// Records who does what.
    Enableauditlog(AuditLogArguments),
    /// Records it no more.
    Disableauditlog,
    /// Records every request with its values.
    Enablefullquerylog(QueryLogArguments),
    /// Records them no more.
    Disablefullquerylog,
    /// Ends the full query log and removes its files.
    Resetfullquerylog,
    /// Removes the hints that the node keeps.
    Truncatehints {
        /// Those for this member only.
        address: Option<String>,
    },
}

/// A keyspace and tables of it; all without any.
#[derive(Debug, clap::Args)]
pub(super) struct Tables {
    keyspace: Option<String>,
    tables: Vec<String>,
}

impl Tables {
    /// Each table that is named, or the keyspace.
    fn scopes(&self) -> Vec<TableScope> {
        let scope = |table: Option<String>| TableScope { keyspace: self.keyspace.clone(), table };
        match self.tables.as_slice() {
            [] => vec![scope(None)],
            tables => tables.iter().map(|table| scope(Some(table.clone()))).collect(),
        }
    }

    fn each(&self, command: impl Fn(TableScope) -> AdminCommand) -> Vec<AdminCommand> {
        self.scopes().into_iter().map(command).collect()
    }
}

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Repair {
    /// Only ranges of which the node is the first replica. Also -pr.
    #[arg(long, conflicts_with_all = ["data_centers", "start_token"])]
    partitioner_range: bool,
    /// Only replicas of this data center take part; several times for several. Also -dc.
    #[arg(long = "in-dc")]
    data_centers: Vec<String>,
    /// Only replicas of the node's own data center take part. Also -local.
    #[arg(long, conflicts_with = "data_centers")]
    in_local_dc: bool,
    /// Only the range behind this token, up to the other one. Also -st.
    #[arg(long, requires = "end_token", allow_negative_numbers = true)]
    start_token: Option<i64>,
    /// Also -et.
    #[arg(long, requires = "start_token", allow_negative_numbers = true)]
    end_token: Option<i64>,
    /// Ranges with a replica that is down are repaired among the others. Also -force.
    #[arg(long)]
    force: bool,
    /// All rows are compared, as always. Also -full.
    #[arg(long)]
    full: bool,
    /// Keyspaces with one replica have nothing to repair, as always. Also -iuk.
    #[arg(long = "ignore-unreplicated-keyspaces")]
    ignores_unreplicated: bool,
    /// The state of transactions is no part of a repair, as always. Also -skip-paxos.
    #[arg(long = "skip-paxos")]
    skips_transactions: bool,
    /// One table is repaired at a time: 1. Also -j.
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u32).range(1..=1))]
    job_threads: Option<u32>,
    keyspace: Option<String>,
    tables: Vec<String>,
}

impl Repair {
    fn command(&self) -> AdminCommand {
        AdminCommand::Repair(RepairArguments {
            primary_range: self.partitioner_range,
            // Those of a node are what nodetool repairs, where `helenus admin` repairs all.
            this_node: !self.partitioner_range && self.start_token.is_none(),
            start_token: self.start_token,
            end_token: self.end_token,
            data_centers: self.data_centers.clone(),
            in_local_dc: self.in_local_dc,
            force: self.force,
            full: self.full,
            keyspace: self.keyspace.clone(),
            tables: self.tables.clone(),
            ..RepairArguments::default()
        })
    }
}

impl Act {
    /// Carries the verb out; returns what is printed.
    pub fn execute(&self, node: &dyn Ask, have_ports: bool) -> Result<String, NodetoolError> {
        match self {
            Self::Snapshot { tag, table, list, keyspaces } => {
                snapshot(node, tag.as_ref(), table.as_ref(), list, keyspaces)
            }
            Self::Clearsnapshot { tag, keyspaces, .. } => clear_snapshots(node, tag.as_ref(), keyspaces),
            Self::Repair(repair) => {
                let report: RepairReport = serde_json::from_value(node.ask(&repair.command())?)?;
                let time = report.ended_at.unwrap_or(report.began_at);
                let id = report.id;
                Ok(format!(
                    "[{time}] Repair completed successfully\n[{time}] Repair command #{id} finished\n"
                ))
            }
            Self::Removenode { host_id } if host_id == "status" => {
                let answer = node.ask(&AdminCommand::Status { keyspace: None })?;
                let status: ClusterStatus = serde_json::from_value(answer)?;
                Ok(cluster::removals(&status, Addresses { have_ports, are_names: false }))
            }
            _ => {
                let commands = self.commands()?;
                if let Self::Stop { kind: Some(_) } = self {
                    refuse_other_compactions(node)?;
                }
                for command in commands {
                    let answer = node.ask(&command)?;
                    if command.has_failed(&answer)? {
                        let mut files = checked(&answer)?;
                        files.retain(|file| file.state == CheckedFileState::Damaged);
                        return Err(NodetoolError::Failed(checked_files(&files).trim_end().to_owned()));
                    }
                }
                Ok(String::new())
            }
        }
    }

    /// The commands that it is, of which nothing is printed.
    fn commands(&self) -> Result<Vec<AdminCommand>, NodetoolError> {
        let one = |command| Ok(vec![command]);
        match self {
            Self::Setguardrailsconfig { words } => match words.split_first() {
                None => Err(NodetoolError::usage("No arguments.")),
                Some((name, values)) => {
                    let (name, values) = (name.clone(), values.to_vec());
                    one(AdminCommand::Setguardrailsconfig(GuardrailChange { name, values }))
                }
            },
            Self::Flush(tables) => Ok(tables.each(AdminCommand::Flush)),
            Self::Compact(tables) => Ok(tables.each(AdminCommand::Compact)),
            Self::Stop { kind } => match kind.as_deref() {
                None | Some("COMPACTION") => one(AdminCommand::Stop(TableScope::default())),
                Some(kind) => Err(NodetoolError::Usage(format!(
                    "stop {kind} cannot be obeyed: only COMPACTION can be stopped, or without a kind all that is under way"
                ))),
            },
            Self::Setcompactionthroughput { mebibytes_per_second } => {
                one(AdminCommand::Setcompactionthroughput { mebibytes_per_second: *mebibytes_per_second })
            }
            Self::Enableautocompaction(tables) => Ok(tables.each(AdminCommand::Enableautocompaction)),
            Self::Disableautocompaction(tables) => Ok(tables.each(AdminCommand::Disableautocompaction)),
            Self::Upgradesstables { all, tables } => {
                Ok(tables.each(|scope| AdminCommand::Upgradesstables { all: *all, scope }))
            }
            Self::Garbagecollect { granularity, tables } => one(AdminCommand::Garbagecollect {
                granularity: granularity.clone(),
                keyspace: tables.keyspace.clone(),
                tables: tables.tables.clone(),
            }),
            Self::RebuildIndex { keyspace, table, indexes } => one(AdminCommand::RebuildIndex {
                keyspace: keyspace.clone(),
                table: table.clone(),
                indexes: indexes.clone(),
            }),
            Self::Drain => one(AdminCommand::Drain),
            Self::Reloadssl => one(AdminCommand::Reloadssl),
            Self::Updatecidrgroup { group, networks } => {
                one(AdminCommand::Updatecidrgroup { group: group.clone(), networks: networks.clone() })
            }
            Self::Dropcidrgroup { group } => one(AdminCommand::Dropcidrgroup { group: group.clone() }),
            Self::Cleanup(Tables { keyspace, tables }) => {
                if !tables.is_empty() {
                    return Err(NodetoolError::usage(
                        "cleanup of single tables cannot be obeyed: it goes over whole keyspaces",
                    ));
                }
                one(AdminCommand::Cleanup { keyspace: keyspace.clone() })
            }
            Self::Rebuild { keyspace, data_center } => {
                one(AdminCommand::Rebuild { data_center: data_center.clone(), keyspace: keyspace.clone() })
            }
            Self::Decommission { force } => {
                one(AdminCommand::Decommission { force: *force, accept_old_data: false })
            }
            Self::Removenode { host_id } => remove_node(host_id).and_then(one),
            Self::Assassinate { address } => one(AdminCommand::Assassinate { member: address.clone() }),
            Self::Verify { tables, .. } => Ok(tables.each(AdminCommand::Verify)),
            Self::Scrub { skip_corrupted, tables, .. } => {
                Ok(tables.each(|scope| AdminCommand::Scrub { skip_corrupted: *skip_corrupted, scope }))
            }
            Self::Import { keyspace, table, directories, .. } => {
                let scope = TableScope { keyspace: Some(keyspace.clone()), table: Some(table.clone()) };
                let command = |directory: &PathBuf| AdminCommand::Import {
                    directory: directory.clone(),
                    writes: Writes { scope: scope.clone(), ..Writes::default() },
                };
                Ok(directories.iter().map(command).collect())
            }
            Self::Setstreamthroughput { is_mebibytes, rate } => {
                let unit = if *is_mebibytes { 1 << 20 } else { BYTES_PER_MEGABIT };
                one(AdminCommand::Setstreamthroughput { bytes_per_second: rate * unit })
            }
            Self::Sethintedhandoffthrottlekb { kibibytes_per_second } => {
                let bytes_per_second = kibibytes_per_second << 10;
                one(AdminCommand::Sethintedhandoffthrottlekb { bytes_per_second })
            }
            Self::Enablebinary => one(AdminCommand::Enablebinary),
            Self::Disablebinary => one(AdminCommand::Disablebinary),
            Self::Enablehandoff => one(AdminCommand::Enablehandoff),
            Self::Disablehandoff => one(AdminCommand::Disablehandoff),
            Self::Pausehandoff => one(AdminCommand::Pausehandoff),
            Self::Resumehandoff => one(AdminCommand::Resumehandoff),
            Self::Settraceprobability { probability } => {
                one(AdminCommand::Settraceprobability { probability: *probability })
            }
            Self::Setlogginglevel { target, level } => {
                log_level(target.as_ref(), level.as_ref()).and_then(one)
            }
            Self::Enableauditlog(arguments) => one(AdminCommand::Enableauditlog(arguments.clone())),
            Self::Disableauditlog => one(AdminCommand::Disableauditlog),
            Self::Enablefullquerylog(arguments) => one(AdminCommand::Enablefullquerylog(arguments.clone())),
            Self::Disablefullquerylog => one(AdminCommand::Disablefullquerylog),
            Self::Resetfullquerylog => one(AdminCommand::Resetfullquerylog),
            Self::Truncatehints { address } => one(AdminCommand::Truncatehints { member: address.clone() }),
            // These print something: see `execute`.
            Self::Snapshot { .. } | Self::Clearsnapshot { .. } | Self::Repair(_) => Ok(Vec::new()),
        }
    }
}

fn snapshot(
    node: &dyn Ask,
    tag: Option<&String>,
    table: Option<&String>,
    list: &[String],
    keyspaces: &[String],
) -> Result<String, NodetoolError> {
    let answer = node.ask(&AdminCommand::Snapshot {
        name: tag.cloned(),
        tables: list.to_vec(),
        table: table.cloned(),
        cluster: false,
        keyspaces: keyspaces.to_vec(),
    })?;
    let name = answer.get("name").and_then(serde_json::Value::as_str).or(tag.map(String::as_str));
    let name = name.ok_or_else(|| NodetoolError::Failed("the node has not named the snapshot".to_owned()))?;
    let scope = match (list, keyspaces) {
        ([], []) => "all keyspaces".to_owned(),
        ([], keyspaces) => keyspaces.join(", "),
        (list, _) => list.join(","),
    };
    Ok(format!(
        "Requested creating snapshot(s) for [{scope}] with snapshot name [{name}] and options {{skipFlush=false}}\nSnapshot directory: {name}\n"
    ))
}

/// Removes the snapshots of a name, or all.
fn clear_snapshots(
    node: &dyn Ask,
    tag: Option<&String>,
    keyspaces: &[String],
) -> Result<String, NodetoolError> {
    if !keyspaces.is_empty() {
        return Err(NodetoolError::usage(
            "clearsnapshot of single keyspaces cannot be obeyed: it removes all snapshots of a name",
        ));
    }
    let names = if let Some(tag) = tag {
        vec![tag.clone()]
    } else {
        let answer = node.ask(&AdminCommand::Listsnapshots { cluster: false })?;
        let snapshots: Vec<SnapshotReport> = part(&answer, "snapshots")?;
        let names: BTreeSet<String> = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
        names.into_iter().collect()
    };
    for name in names {
        node.ask(&AdminCommand::Clearsnapshot { cluster: false, name })?;
    }
    let which = tag.map_or_else(|| "[all snapshots]".to_owned(), |tag| format!("snapshot name [{tag}]"));
    Ok(format!("Requested clearing snapshot(s) for [all keyspaces] with {which}\n"))
}

/// A stop ends cleanups and the like too: where some are under way it is no stop of compactions alone.
fn refuse_other_compactions(node: &dyn Ask) -> Result<(), NodetoolError> {
    let report: CompactionsReport = serde_json::from_value(node.ask(&AdminCommand::Compactionstats)?)?;
    match report.compactions.iter().find(|running| !running.kind.eq_ignore_ascii_case("compaction")) {
        None => Ok(()),
        Some(other) => Err(NodetoolError::Usage(format!(
            "stop COMPACTION cannot be obeyed while there is other work ({} of {}), which would be stopped too: `stop` stops all",
            other.kind, other.table
        ))),
    }
}

fn remove_node(host_id: &str) -> Result<AdminCommand, NodetoolError> {
    if host_id == "force" {
        return Err(NodetoolError::usage(
            "removenode force cannot be obeyed: `helenus admin removenode` has --accept-loss and --accept-old-data",
        ));
    }
    let host_id: Uuid =
        host_id.parse().map_err(|_| NodetoolError::Usage(format!("{host_id} is no host id")))?;
    Ok(AdminCommand::Removenode { host_ids: vec![host_id], accept_old_data: false, accept_loss: false })
}

fn log_level(target: Option<&String>, level: Option<&String>) -> Result<AdminCommand, NodetoolError> {
    // Groups of Cassandra's classes.
    const COMPONENTS: [&str; 6] = ["bootstrap", "compaction", "repair", "streaming", "cql", "ring"];
    if let Some(target) = target
        && (COMPONENTS.contains(&target.as_str()) || target.starts_with("org.apache.cassandra"))
    {
        return Err(NodetoolError::Usage(format!(
            "{target} is of Cassandra: a module of Helenus is expected, for example helenus::streaming, or {ROOT}"
        )));
    }
    let level = level.map(|level| level.to_lowercase());
    let level = level.map(|level| if level == "all" { "trace".to_owned() } else { level });
    Ok(AdminCommand::Setlogginglevel { target: target.cloned(), level })
}
