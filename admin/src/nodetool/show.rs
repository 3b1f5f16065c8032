//! The verbs that only report.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::error::NodetoolError;
use super::format::{self, Addresses};
use super::top_partitions::TopPartitionsArguments;
use super::{activity, cluster, storage};
use crate::ask::Ask;
use crate::command::{AdminCommand, TableScope};
use crate::guardrails::GuardrailsArguments;
use crate::members;
use crate::reports::{
    ActivityReport, ClusterDescription, ClusterStatus, CompactionsReport, CoordinatorLatencies,
    EndpointsReport, NodeReport, RingReport, RuntimeSettings, SnapshotReport, StreamingReport,
    TableLatencies, TableReport,
};
use crate::request_logs;
use crate::text::part;
use crate::top_partitions::TopPartition;
use crate::view_builds;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Show {
    /// The members of the cluster: state, load, tokens, share, host id and rack.
    Status {
        #[command(flatten)]
        names: Names,
        keyspace: Option<String>,
    },
    /// The node itself.
    Info {
        /// All tokens of the node.
        #[arg(short = 'T', long)]
        tokens: bool,
    },
    /// The tokens with their owners.
    Ring {
        #[command(flatten)]
        names: Names,
        keyspace: Option<String>,
    },
    /// Snitch, partitioner, versions of the schema, data centers and replication.
    Describecluster,
    /// The ranges of the ring with the replicas of a keyspace.
    Describering { keyspace: String },
    /// What each member has announced.
    Gossipinfo {
        #[command(flatten)]
        names: Names,
    },
    /// The compactions under way.
    Compactionstats {
        #[command(flatten)]
        sizes: Sizes,
    },
    /// What compactions may write.
    Getcompactionthroughput {
        /// Not as a whole number. Also if it is none.
        #[arg(short = 'd', long = "precise-mib")]
        precise: bool,
    },
    /// Whether the strategies of tables choose compactions.
    Statusautocompaction {
        /// Each table.
        #[arg(short = 'a', long = "all")]
        all: bool,
        keyspace: Option<String>,
        tables: Vec<String>,
    },
    /// The snapshots of the node.
    Listsnapshots {
        /// Only those that do not expire. Also -nt.
        #[arg(long)]
        no_ttl: bool,
    },
    /// The data on its way to the node.
    Netstats {
        #[command(flatten)]
        sizes: Sizes,
    },
    /// Files and sizes of tables.
    #[command(alias = "cfstats")]
    Tablestats {
        #[command(flatten)]
        sizes: Sizes,
        /// All but those that are named.
        #[arg(short = 'i')]
        ignore: bool,
        #[arg(value_name = "KEYSPACE.TABLE")]
        names: Vec<String>,
    },
    /// How long the requests to tables took.
    #[command(alias = "cfhistograms")]
    Tablehistograms {
        /// KEYSPACE TABLE or KEYSPACE.TABLE; all tables without.
        #[arg(value_name = "TABLE", num_args = 0..=2)]
        names: Vec<String>,
    },
    /// How long the requests took that the node has coordinated.
    Proxyhistograms,
    /// What the node does, and what it has given up.
    Tpstats,
    /// The replicas of a partition.
    Getendpoints {
        keyspace: String,
        table: String,
        /// The parts of a composite partition key are separated by `:`.
        key: String,
    },
    /// The groups of networks, or the networks of a group.
    Listcidrgroups { group: Option<String> },
    /// The partitions that were asked for most in the last minutes, and those with the heaviest requests.
    #[command(alias = "profileload")]
    Toppartitions(TopPartitionsArguments),
    /// Whether a materialized view or projection is built; status 1 if it is not.
    Viewbuildstatus {
        /// KEYSPACE VIEW or KEYSPACE.VIEW
        #[arg(value_name = "VIEW", num_args = 0..=2)]
        names: Vec<String>,
    },
    /// The version of the node's program.
    Version,
    /// What streams may send, in megabits a second.
    Getstreamthroughput {
        /// In MiB a second.
        #[arg(short = 'm', long = "mib", conflicts_with = "precise")]
        mebibytes: bool,
        /// Not as a whole number. Also if it is none.
        #[arg(short = 'd', long = "precise-mbit")]
        precise: bool,
    },
    /// Whether clients are accepted.
    Statusbinary,
    /// Whether hints are kept.
    Statushandoff,
    /// The part of requests that are traced.
    Gettraceprobability,
    /// The guardrails of the node.
    Getguardrailsconfig(GuardrailsArguments),
    /// Which lines are logged.
    Getlogginglevels,
    /// What the audit log records.
    Getauditlog,
    /// How requests are recorded.
    Getfullquerylog,
}

/// Names of members instead of addresses.
#[derive(Debug, clap::Args)]
pub(super) struct Names {
    /// Shows names instead of addresses.
    #[arg(short = 'r', long = "resolve-ip")]
    resolves: bool,
}

/// Sizes for people.
#[derive(Debug, clap::Args)]
pub(super) struct Sizes {
    /// Shows sizes in KiB, MiB, GiB, TiB.
    #[arg(short = 'H', long = "human-readable")]
    human_readable: bool,
}

/// The answer to a command.
fn get<T: DeserializeOwned>(node: &dyn Ask, command: &AdminCommand) -> Result<T, NodetoolError> {
    Ok(serde_json::from_value(node.ask(command)?)?)
}

/// A part of the answer to a command.
fn get_part<T: DeserializeOwned>(
    node: &dyn Ask,
    command: &AdminCommand,
    name: &'static str,
) -> Result<T, NodetoolError> {
    Ok(part(&node.ask(command)?, name)?)
}

fn members(node: &dyn Ask, keyspace: Option<&String>) -> Result<ClusterStatus, NodetoolError> {
    get(node, &AdminCommand::Status { keyspace: keyspace.cloned() })
}

fn tables(node: &dyn Ask) -> Result<Vec<TableReport>, NodetoolError> {
    get_part(node, &AdminCommand::Tablestats { keyspace: None }, "tables")
}

fn settings(node: &dyn Ask, command: &AdminCommand) -> Result<RuntimeSettings, NodetoolError> {
    get(node, command)
}

/// The table that words name; all without words.
fn table_of(names: &[String]) -> Result<TableScope, NodetoolError> {
    let named = match names {
        [] => return Ok(TableScope::default()),
        [name] => name.split_once('.'),
        [keyspace, table, ..] => Some((keyspace.as_str(), table.as_str())),
    };
    let (keyspace, table) = named
        .ok_or_else(|| NodetoolError::usage("a keyspace and a table are expected, or KEYSPACE.TABLE"))?;
    Ok(TableScope { keyspace: Some(keyspace.to_owned()), table: Some(table.to_owned()) })
}

impl Show {
    /// What is printed.
    pub fn text(&self, node: &dyn Ask, have_ports: bool) -> Result<String, NodetoolError> {
        let plain = Addresses { have_ports, are_names: false };
        let named = |names: &Names| Addresses { have_ports, are_names: names.resolves };
        Ok(match self {
            Self::Status { names, keyspace } => {
                cluster::status(&members(node, keyspace.as_ref())?, named(names))
            }
            Self::Info { tokens } => {
                let report: NodeReport = get(node, &AdminCommand::Info)?;
                let settings = settings(node, &AdminCommand::Statusbinary)?;
                let tokens = if *tokens { Some(own_tokens(node, &report)?) } else { None };
                cluster::info(&report, &settings, tokens.as_deref())
            }
            Self::Ring { names, keyspace } => {
                let ring: RingReport = get(node, &AdminCommand::Ring { keyspace: keyspace.clone() })?;
                cluster::ring(&ring, &members(node, keyspace.as_ref())?, named(names))
            }
            Self::Describecluster => {
                let report: ClusterDescription = get(node, &AdminCommand::Describecluster)?;
                cluster::describe(&report, &members(node, None)?, plain)
            }
            Self::Describering { keyspace } => {
                let command = AdminCommand::Describering { keyspace: keyspace.clone() };
                let ring: RingReport = get(node, &command)?;
                let report: NodeReport = get(node, &AdminCommand::Info)?;
                let status = members(node, None)?;
                let ranges = members::token_ranges(&ring, &status.members, have_ports);
                format!("Schema Version:{}\n{ranges}", report.schema_version)
            }
            Self::Gossipinfo { names } => {
                let status: ClusterStatus = get(node, &AdminCommand::Gossipinfo)?;
                // A slash is before an address, not before a name.
                let slash = if names.resolves { "" } else { "/" };
                members::gossip(&status, |address| format!("{slash}{}", named(names).text(address)))
            }
            Self::Compactionstats { sizes } => {
                let report: CompactionsReport = get(node, &AdminCommand::Compactionstats)?;
                storage::compactions(&report, sizes.human_readable)
            }
            Self::Getcompactionthroughput { precise } => {
                let report: CompactionsReport = get(node, &AdminCommand::Getcompactionthroughput)?;
                activity::compaction_throughput(report.bytes_per_second.unwrap_or(0), *precise)?
            }
            Self::Statusautocompaction { all, keyspace, tables: names } => {
                let report: CompactionsReport = get(node, &AdminCommand::Compactionstats)?;
                let disabled = report.disabled_tables;
                storage::automatic_compactions(&tables(node)?, &disabled, keyspace.as_ref(), names, *all)?
            }
            Self::Listsnapshots { no_ttl } => {
                let command = AdminCommand::Listsnapshots { cluster: false };
                storage::snapshots(&get_part::<Vec<SnapshotReport>>(node, &command, "snapshots")?, !no_ttl)
            }
            Self::Netstats { sizes } => {
                let report: StreamingReport = get(node, &AdminCommand::Netstats)?;
                storage::streams(&report, &members(node, None)?, plain, sizes.human_readable)
            }
            Self::Tablestats { sizes, ignore, names } => {
                storage::table_statistics(&tables(node)?, names, *ignore, sizes.human_readable)?
            }
            Self::Tablehistograms { names } => {
                let command = AdminCommand::Tablehistograms(table_of(names)?);
                activity::tables(&get_part::<Vec<TableLatencies>>(node, &command, "tables")?)
            }
            Self::Proxyhistograms => {
                activity::coordinator(&get::<CoordinatorLatencies>(node, &AdminCommand::Proxyhistograms)?)
            }
            Self::Tpstats => activity::stages(&get::<ActivityReport>(node, &AdminCommand::Tpstats)?),
            Self::Getendpoints { keyspace, table, key } => {
                let (keyspace, table, key) = (keyspace.clone(), table.clone(), key.clone());
                let report: EndpointsReport =
                    get(node, &AdminCommand::Getendpoints { keyspace, table, key })?;
                report.endpoints.iter().map(|replica| plain.text(&replica.address) + "\n").collect()
            }
            Self::Toppartitions(arguments) => {
                let command = AdminCommand::Toppartitions { hours: false, scope: arguments.scope()? };
                arguments.text(&get_part::<Vec<TopPartition>>(node, &command, "partitions")?)?
            }
            Self::Listcidrgroups { group } => network_groups(node, group.as_ref())?,
            Self::Viewbuildstatus { names } => view_build_status(node, names)?,
            Self::Version => {
                let version: String = get_part(node, &AdminCommand::Version, "version")?;
                format!("ReleaseVersion: {version}\n")
            }
            Self::Getstreamthroughput { mebibytes, precise } => {
                let settings = settings(node, &AdminCommand::Getstreamthroughput)?;
                activity::stream_throughput(&settings, *mebibytes, *precise)?
            }
            Self::Statusbinary => {
                let settings = settings(node, &AdminCommand::Statusbinary)?;
                format!("{}\n", if settings.native_transport { "running" } else { "not running" })
            }
            Self::Statushandoff => {
                let settings = settings(node, &AdminCommand::Statushandoff)?;
                let word = if settings.hinted_handoff { "running" } else { "not running" };
                format!("Hinted handoff is {word}\n")
            }
            Self::Gettraceprobability => {
                let settings = settings(node, &AdminCommand::Gettraceprobability)?;
                format!("Current trace probability: {:?}\n", settings.trace_probability)
            }
            Self::Getguardrailsconfig(arguments) => {
                let command = AdminCommand::Getguardrailsconfig(arguments.clone());
                format::table(&arguments.rows(&get_part(node, &command, "guardrails")?), " ")
            }
            Self::Getauditlog => request_logs::options(&get(node, &AdminCommand::Getauditlog)?),
            Self::Getfullquerylog => request_logs::options(&get(node, &AdminCommand::Getfullquerylog)?),
            Self::Getlogginglevels => activity::log_levels(&settings(node, &AdminCommand::Getlogginglevels)?),
        })
    }
}

/// The names of all groups of networks, or the networks of one, as a column. Nothing is printed where there is none.
fn network_groups(node: &dyn Ask, group: Option<&String>) -> Result<String, NodetoolError> {
    let command = AdminCommand::Listcidrgroups { group: group.cloned() };
    let groups: BTreeMap<String, Vec<String>> = get_part(node, &command, "groups")?;
    let (heading, values) = match group {
        None => ("CIDR Groups", groups.into_keys().collect()),
        Some(group) => {
            let networks = groups.get(group).cloned();
            ("CIDRs", networks.ok_or_else(|| NodetoolError::Usage(format!("there is no group '{group}'")))?)
        }
    };
    if values.is_empty() {
        return Ok(String::new());
    }
    Ok(std::iter::once(heading.to_owned()).chain(values).map(|line| line + "\n").collect())
}

/// Whether a view is built.
fn view_build_status(node: &dyn Ask, names: &[String]) -> Result<String, NodetoolError> {
    let named = match names {
        [name] => name.split_once('.'),
        [keyspace, view] => Some((keyspace.as_str(), view.as_str())),
        _ => None,
    };
    let (keyspace, view) = named
        .ok_or_else(|| NodetoolError::usage("viewbuildstatus requires keyspace and view name arguments"))?;
    let command = AdminCommand::Viewbuildstatus { keyspace: keyspace.to_owned(), view: view.to_owned() };
    let members = get_part(node, &command, "members")?;
    let heading = view_builds::heading(keyspace, view, &members);
    if view_builds::is_built(&members) {
        return Ok(heading);
    }
    Err(NodetoolError::Unfinished(heading + &format::table(&view_builds::rows(&members), " ")))
}

/// The tokens of the node that is asked.
fn own_tokens(node: &dyn Ask, report: &NodeReport) -> Result<Vec<String>, NodetoolError> {
    let ring: RingReport = get(node, &AdminCommand::Ring { keyspace: None })?;
    let own = ring.tokens.into_iter().filter(|token| token.host_id == report.host_id);
    Ok(own.map(|token| token.token).collect())
}
