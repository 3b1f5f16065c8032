//! The commands of `helenus admin`, as the command line has them.

use std::path::PathBuf;

use clap::Subcommand;
use uuid::Uuid;

use crate::certificates::CertificatesCommand;
use crate::denylist::DenylistCommand;
use crate::guardrails::{GuardrailChange, GuardrailsArguments};
use crate::login::LoginArguments;
use crate::place::PlaceArguments;
use crate::repair::RepairArguments;
use crate::request_logs::{AuditLogArguments, QueryLogArguments};

/// The arguments of `helenus admin`.
#[derive(Debug, clap::Args)]
pub struct AdminArguments {
    /// Where the node's port is: `http://HOST:PORT`, or `https://HOST:PORT`. Also `HELENUS_ADMIN_URL`. Default: the node is asked over the Unix socket in its data directory
    /// (`HELENUS_DATA_DIR`, else helenus-data), or at `http://127.0.0.1:9180` if nobody listens there.
    #[arg(long, global = true, conflicts_with_all = ["http_port", "socket", "data_dir"])]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) login: LoginArguments,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Seconds to wait for the answer. Default: 30 for commands that only report, no limit for those that change
    /// something.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), global = true)]
    pub(crate) timeout: Option<u64>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command for a node, or one without.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    OfNode(AdminCommand),
    /// Makes certificates for TLS, of an authority in a directory. No node is asked.
    #[command(subcommand)]
    Certificates(CertificatesCommand),
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
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
    /// Loads certificates and keys for TLS now, which the node does by itself some seconds after they have changed; and the master keys of encrypted
    /// files.
    Reloadssl,
    /// The master keys of the node's encrypted files, and how many files of each kind need which of them.
    EncryptionKeys,
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
    /// Copies this node's part of a snapshot to the store that `[backup_store]` names. What is there already is not copied again.
    Upload {
        /// On all members of the cluster, each its own part.
        #[arg(long)]
        cluster: bool,
        /// The name of the snapshot.
        #[arg(short = 't', long = "name")]
        name: String,
        #[command(flatten)]
        scope: TableScope,
    },
    /// The snapshots of all hosts that are in the store, and what this node does with the store now.
    Listuploads {
        /// Of the cluster of this name. That of the node without one.
        #[arg(long)]
        cluster_name: Option<String>,
    },
    /// Brings an uploaded snapshot into a directory that import can read, and checks every file.
    Download {
        /// The name of the snapshot.
        #[arg(short = 't', long = "name")]
        name: String,
        /// The directory, on the machine of the node.
        #[arg(long)]
        into: PathBuf,
        /// The part of this host only. Those of all hosts without one.
        #[arg(long, value_name = "HOST_ID")]
        host: Option<Uuid>,
        /// Of the cluster of this name. That of the node without one.
        #[arg(long)]
        cluster_name: Option<String>,
        #[command(flatten)]
        scope: TableScope,
    },
    /// Removes this node's upload of a snapshot from the store, and the files that no other upload of the node needs.
    Removeupload {
        /// On all members of the cluster, each its own.
        #[arg(long, conflicts_with = "host")]
        cluster: bool,
        /// The host id of a former member, whose upload is removed.
        #[arg(long, value_name = "HOST_ID")]
        host: Option<Uuid>,
        /// The name of the snapshot.
        #[arg(short = 't', long = "name")]
        name: String,
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
    /// Lets the metadata log go on when the majority of its voters is lost for good. Run it on a member that is left; those that are lost must
    /// never be started again with their data.
    RecoverMetadata,
    /// Makes the first role that may log in and do everything, with a password that is read from standard input. Only over the node's Unix
    /// socket, and only while there is no such role.
    CreateSuperuser {
        /// The name of the role.
        name: String,
        /// Also if there is one: a role of that name becomes one and gets the password.
        #[arg(long)]
        reset: bool,
    },
    /// Makes a group of networks for `ACCESS FROM CIDRS`, or gives it other networks.
    Updatecidrgroup {
        /// The name of the group.
        group: String,
        /// Its networks: `10.1.0.0/16`, `fd00::/8`.
        #[arg(required = true)]
        networks: Vec<String>,
    },
    /// Removes a group of networks that no role names.
    Dropcidrgroup {
        /// The name of the group.
        group: String,
    },
    /// The groups of networks.
    Listcidrgroups {
        /// This group only.
        group: Option<String>,
    },
    /// The statements that make all roles again, with the hashes of passwords: a copy to keep apart. Only over the node's Unix socket.
    DescribeRoles,
    /// Removes the data of ranges that the node does not own any more.
    Cleanup {
        /// Of this keyspace only.
        keyspace: Option<String>,
    },
    /// Makes the replicas of ranges equal, whatever they have missed; returns when that is done.
    Repair(RepairArguments),
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
    /// The replicas of a partition.
    Getendpoints {
        keyspace: String,
        table: String,
        /// The partition key; the parts of a composite one are separated by `:`.
        key: String,
    },
    /// The partition denylist: partitions that clients may not use.
    #[command(subcommand)]
    Denylist(DenylistCommand),
    /// The ranges of the ring with the replicas of a keyspace.
    Describering { keyspace: String },
    /// What each member has announced, as this node knows it.
    Gossipinfo,
    /// What the node does, and what it has given up since its start.
    Tpstats,
    /// How long the requests took that the node has coordinated since its start.
    Proxyhistograms,
    /// How long the requests to each table took since the start of the node.
    Tablehistograms(TableScope),
    /// The partitions that are asked for most, and those with the heaviest requests, of the last minutes.
    Toppartitions {
        /// Of the last hours instead.
        #[arg(long)]
        hours: bool,
        #[command(flatten)]
        scope: TableScope,
    },
    /// The change feeds of tables: how much they hold on this node, and since when.
    Feeds(TableScope),
    /// What streams of data may send.
    Getstreamthroughput,
    /// Changes what streams of data may send, in MiB a second, until the next start; 0 is no limit.
    Setstreamthroughput {
        #[arg(value_name = "MEBIBYTES_PER_SECOND", value_parser = mebibytes)]
        bytes_per_second: u64,
    },
    /// What compactions may write.
    Getcompactionthroughput,
    /// What deliveries of hints may send.
    Gethintedhandoffthrottlekb,
    /// Changes what deliveries of hints may send, in KiB a second, until the next start; 0 is no limit.
    Sethintedhandoffthrottlekb {
        #[arg(value_name = "KIBIBYTES_PER_SECOND", value_parser = kibibytes)]
        bytes_per_second: u64,
    },
    /// The part of requests that are traced.
    Gettraceprobability,
    /// Changes the part of requests that are traced, from 0 to 1, until the next start.
    Settraceprobability {
        #[arg(value_parser = probability)]
        probability: f64,
    },
    /// The guardrails of the node, which the settings have.
    Getguardrailsconfig(GuardrailsArguments),
    /// Changes a guardrail of this node, until its next start.
    Setguardrailsconfig(GuardrailChange),
    /// Which lines are logged.
    Getlogginglevels,
    /// Changes which lines are logged, until the next start; without words to what is configured.
    Setlogginglevel {
        /// A module of the program, as lines of the log name it; ROOT: all that are not named.
        #[arg(requires = "level")]
        target: Option<String>,
        /// What is logged of it: error, warn, info, debug, trace or off.
        #[arg(value_parser = ["error", "warn", "info", "debug", "trace", "off"], ignore_case = true)]
        level: Option<String>,
    },
    /// Accepts clients again.
    Enablebinary,
    /// Accepts no more clients, and closes the connections of those that are there.
    Disablebinary,
    /// Whether clients are accepted.
    Statusbinary,
    /// Keeps hints for replicas that miss writes, again.
    Enablehandoff,
    /// Keeps no more hints for replicas that miss writes, until the next start.
    Disablehandoff,
    /// Whether hints are kept, and delivered.
    Statushandoff,
    /// Delivers no hints until the next start; they are still kept.
    Pausehandoff,
    /// Delivers hints again.
    Resumehandoff,
    /// Removes the hints that the node keeps: the writes reach their replicas by a repair only.
    Truncatehints {
        /// Those for this member only: its host id or address.
        member: Option<String>,
    },
    /// Removes a dead member as removenode does, also if it has the only copy of some rows, or others have old data of its ranges.
    Assassinate {
        /// Its host id or address, with or without port.
        member: String,
    },
    /// Records who does what, until the next start.
    Enableauditlog(AuditLogArguments),
    /// Records it no more, until the next start.
    Disableauditlog,
    /// What the audit log records, and what became of its entries.
    Getauditlog,
    /// Records every request with its values for `helenus replay`, until the next start.
    Enablefullquerylog(QueryLogArguments),
    /// Records them no more, until the next start.
    Disablefullquerylog,
    /// Ends the full query log and removes its files.
    Resetfullquerylog,
    /// How requests are recorded, and what became of the records.
    Getfullquerylog,
    /// The version of the node's program.
    Version,
    /// Whether a materialized view or projection is built, and on which members.
    Viewbuildstatus { keyspace: String, view: String },
    /// Makes the files of indexes of the node anew; they are searched until then.
    #[command(name = "rebuild_index")]
    RebuildIndex {
        keyspace: String,
        table: String,
        /// Indexes of the table.
        #[arg(required = true)]
        indexes: Vec<String>,
    },
    /// Not there: see import.
    Refresh(Absent),
}

/// The words of a command of nodetool whose feature is not there.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Absent {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Everything, a keyspace, or a table.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TableScope {
    /// A keyspace; all without one.
    pub(crate) keyspace: Option<String>,
    /// A table of it; all without one.
    pub(crate) table: Option<String>,
}

/// Where rows from elsewhere are written to.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Writes {
    /// The table of the same keyspace that gets the rows; it is created if it is missing.
    #[arg(long)]
    pub(crate) into: Option<String>,
    /// The consistency level of the writes. ALL without one.
    #[arg(long)]
    pub(crate) consistency: Option<String>,
    #[command(flatten)]
    pub(crate) scope: TableScope,
}

/// Mebibytes as bytes.
fn mebibytes(text: &str) -> Result<u64, String> {
    scaled(text, 1 << 20)
}

/// Kibibytes as bytes.
fn kibibytes(text: &str) -> Result<u64, String> {
    scaled(text, 1 << 10)
}

fn scaled(text: &str, unit: u64) -> Result<u64, String> {
    let count: u64 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    count.checked_mul(unit).ok_or_else(|| "the number is too large".to_owned())
}

/// A part of 1.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    let probability: f64 = text.parse().map_err(|error: std::num::ParseFloatError| error.to_string())?;
    if (0.0..=1.0).contains(&probability) {
        Ok(probability)
    } else {
        Err("a number from 0 to 1 is expected".to_owned())
    }
}

/// The arguments as a command of the program.
#[cfg(test)]
pub(crate) fn parse(arguments: &[&str]) -> Result<AdminCommand, clap::Error> {
    parse_any(arguments).map(|command| match command {
        Command::OfNode(command) => command,
        Command::Certificates(command) => unreachable!("it is for no node: {command:?}"),
    })
}

/// The arguments as a command of the program.
#[cfg(test)]
pub(crate) fn parse_any(arguments: &[&str]) -> Result<Command, clap::Error> {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        arguments: AdminArguments,
    }

    let words = ["helenus", "admin"].iter().chain(arguments).map(Into::into);
    let words = crate::long_options::with_long_options(words).into_iter().skip(1);
    Program::try_parse_from(words).map(|program| program.arguments.command)
}
