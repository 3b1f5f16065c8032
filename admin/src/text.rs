//! What each command of `helenus admin` prints, and whether it has failed.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::command::AdminCommand;
use crate::denylist::DenylistCommand;
use crate::encryption_keys::EncryptionKeysReport;
use crate::feeds::{self, FeedReport};
use crate::guardrails::GuardrailsArguments;
use crate::reports::uploads::UploadsReport;
use crate::reports::{
    CheckProgress, CheckedFile, CheckedFileState, ClusterDescription, ClusterSnapshots, ClusterStatus,
    CompactionsReport, NodeReport, ReplayReport, RestoredTable, RingReport, RuntimeSettings, SnapshotReport,
    StreamingReport, TableLatencies, TableReport, UnknownTableReport,
};
use crate::top_partitions::{self, TopPartition};
use crate::{activity, denylist, members, repair, request_logs, settings, tables, uploads, view_builds};

impl AdminCommand {
    /// The node's answer as text for people.
    pub(crate) fn text(&self, answer: Value) -> Result<String, serde_json::Error> {
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
            Self::Upload { cluster: true, .. } => tables::cluster_snapshots(&read(answer)?, |member| {
                member.uploaded.as_ref().map_or_else(|| "done\n".to_owned(), uploads::uploaded)
            }),
            Self::Removeupload { cluster: true, .. } => tables::cluster_snapshots(&read(answer)?, |member| {
                member.removed.as_ref().map_or_else(|| "done\n".to_owned(), uploads::removed)
            }),
            Self::Upload { .. } => uploads::uploaded(&read(answer)?),
            Self::Removeupload { .. } => uploads::removed(&read(answer)?),
            Self::Listuploads { .. } => uploads::listed(&read(answer)?),
            Self::Download { .. } => uploads::downloaded(&read(answer)?),
            Self::Snapshot { .. } => match answer.get("name").and_then(Value::as_str) {
                Some(name) => format!("snapshot: {name}\n"),
                // The node has an older program: the name is the one that was given.
                None => "done\n".to_owned(),
            },
            Self::Health => match answer.get("remark").and_then(Value::as_str) {
                Some(remark) => format!("up; {remark}\n"),
                None => "up\n".to_owned(),
            },
            Self::Status { .. } => members::status(&read::<ClusterStatus>(answer)?),
            Self::Ring { .. } => members::ring(&read::<RingReport>(answer)?),
            Self::Info => tables::info(&read::<NodeReport>(answer)?),
            Self::Describecluster => tables::description(&read::<ClusterDescription>(answer)?),
            Self::Tablestats { .. } => {
                tables::table_statistics(&part::<Vec<TableReport>>(&answer, "tables")?)
            }
            Self::Listsnapshots { .. } => {
                tables::snapshots(&part::<Vec<SnapshotReport>>(&answer, "snapshots")?)
            }
            Self::Restore { .. } | Self::Import { .. } => {
                tables::restored(&part::<Vec<RestoredTable>>(&answer, "tables")?)
            }
            Self::Replay { .. } => tables::replayed(&read::<ReplayReport>(answer)?),
            Self::Unknowntables => {
                tables::unknown_tables(&part::<Vec<UnknownTableReport>>(&answer, "tables")?)
            }
            Self::Verify(_) | Self::Scrub { .. } => tables::checked_files(&checked(&answer)?),
            Self::Checks => {
                tables::checks(&part::<Vec<CheckProgress>>(&answer, "shards")?)
            }
            Self::Compactionstats => tables::compactions(&read::<CompactionsReport>(answer)?),
            Self::CreateSuperuser { name, .. } => format!("{name} is a superuser\n"),
            Self::Listcidrgroups { group } => {
                let groups: BTreeMap<String, Vec<String>> = part(&answer, "groups")?;
                let shown = groups.iter().filter(|(name, _)| group.as_ref().is_none_or(|group| group == *name));
                shown.flat_map(|(name, networks)| [name.clone(), ": ".to_owned(), networks.join(", "), "\n".to_owned()]).collect()
            }
            Self::DescribeRoles => {
                let statements: Vec<String> = part(&answer, "statements")?;
                statements.iter().flat_map(|statement| [statement.as_str(), ";\n"]).collect()
            }
            Self::EncryptionKeys => read::<EncryptionKeysReport>(answer)?.text(),
            Self::Drain => "drained\n".to_owned(),
            Self::Archivelog => "archived\n".to_owned(),
            Self::Repair(arguments) if arguments.asks_for_status() => repair::status(&read(answer)?),
            Self::Repair(arguments) if !arguments.cancels() => repair::ended(&read(answer)?),
            Self::Rebuild { .. } => repair::ended(&read(answer)?),
            Self::Netstats => tables::streams(&read::<StreamingReport>(answer)?),
            Self::Getendpoints { .. } => members::endpoints(&read(answer)?),
            Self::Denylist(DenylistCommand::List { .. }) => denylist::list(&read(answer)?),
            Self::Denylist(DenylistCommand::Settings | DenylistCommand::Set { .. }) => {
                denylist::settings(&read(answer)?)
            }
            Self::Denylist(_) => denylist::partition(&read(answer)?),
            Self::Describering { .. } => members::ranges(&read(answer)?),
            Self::Gossipinfo => members::announced(&read(answer)?),
            Self::Tpstats => activity::stages(&read(answer)?),
            Self::Proxyhistograms => activity::coordinator(&read(answer)?),
            Self::Toppartitions { .. } => {
                top_partitions::text(&part::<Vec<TopPartition>>(&answer, "partitions")?)
            }
            Self::Viewbuildstatus { keyspace, view } => view_builds::text(keyspace, view, &part(&answer, "members")?),
            Self::Feeds(_) => feeds::text(&part::<Vec<FeedReport>>(&answer, "feeds")?),
            Self::Tablehistograms(_) => {
                activity::tables(&part::<Vec<TableLatencies>>(&answer, "tables")?)
            }
            Self::Getcompactionthroughput => {
                let rate = read::<CompactionsReport>(answer)?.bytes_per_second;
                settings::limit("compaction throughput", rate.unwrap_or(0))
            }
            Self::Getstreamthroughput | Self::Setstreamthroughput { .. } => {
                let settings = read::<RuntimeSettings>(answer)?;
                settings::limit("stream throughput", settings.stream_throughput_bytes_per_second)
            }
            Self::Gethintedhandoffthrottlekb | Self::Sethintedhandoffthrottlekb { .. } => {
                let settings = read::<RuntimeSettings>(answer)?;
                settings::limit("hint throughput", settings.hinted_handoff_throttle_bytes_per_second)
            }
            Self::Gettraceprobability | Self::Settraceprobability { .. } => {
                format!("trace probability: {}\n", read::<RuntimeSettings>(answer)?.trace_probability)
            }
            Self::Getguardrailsconfig(arguments) => {
                tables::columns(&arguments.rows(&part(&answer, "guardrails")?))
            }
            Self::Setguardrailsconfig(_) => {
                tables::columns(&GuardrailsArguments::default().rows(&part(&answer, "guardrails")?))
            }
            Self::Getlogginglevels | Self::Setlogginglevel { .. } => {
                settings::log_levels(&read::<RuntimeSettings>(answer)?)
            }
            Self::Enablebinary | Self::Disablebinary | Self::Statusbinary => {
                settings::native_transport(&read::<RuntimeSettings>(answer)?)
            }
            Self::Enablehandoff
            | Self::Disablehandoff
            | Self::Statushandoff
            | Self::Pausehandoff
            | Self::Resumehandoff => settings::hints(&read::<RuntimeSettings>(answer)?),
            Self::Enableauditlog(_)
            | Self::Disableauditlog
            | Self::Getauditlog
            | Self::Enablefullquerylog(_)
            | Self::Disablefullquerylog
            | Self::Resetfullquerylog
            | Self::Getfullquerylog => request_logs::state(&read(answer)?),
            Self::Version => {
                format!("{}\n", part::<String>(&answer, "version")?)
            }
            Self::RecoverMetadata => {
                members::recovered(&part::<Vec<String>>(&answer, "down")?)
            }
            Self::Reloadssl
            | Self::Flush(_)
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
            | Self::Updatecidrgroup { .. }
            | Self::Dropcidrgroup { .. }
            | Self::Cleanup { .. }
            | Self::Truncatehints { .. }
            | Self::Assassinate { .. }
            | Self::RebuildIndex { .. }
            // Those that are no requests have no answers.
            | Self::Refresh(_) => "done\n".to_owned(),
        })
    }

    /// Whether an answer shows that the command has not been carried out everywhere, or has found damage.
    pub(crate) fn has_failed(&self, answer: &Value) -> Result<bool, serde_json::Error> {
        Ok(match self {
            Self::Viewbuildstatus { .. } => !view_builds::is_built(&part(answer, "members")?),
            Self::Verify(_) | Self::Scrub { .. } => {
                checked(answer)?.iter().any(|file| file.state == CheckedFileState::Damaged)
            }
            Self::Snapshot { cluster: true, .. }
            | Self::Restore { cluster: true, .. }
            | Self::Clearsnapshot { cluster: true, .. }
            | Self::Upload { cluster: true, .. }
            | Self::Removeupload { cluster: true, .. }
            | Self::Listsnapshots { cluster: true } => {
                let report = read::<ClusterSnapshots>(answer.clone())?;
                report.members.iter().any(|member| member.error.is_some())
            }
            Self::Listuploads { .. } => {
                read::<UploadsReport>(answer.clone())?.uploads.iter().any(|upload| upload.error.is_some())
            }
            _ => false,
        })
    }
}

/// The files of an answer to verify or scrub.
pub(crate) fn checked(answer: &Value) -> Result<Vec<CheckedFile>, serde_json::Error> {
    part(answer, "files")
}

/// A part of an answer, which must be there.
pub(crate) fn part<T: DeserializeOwned>(answer: &Value, name: &'static str) -> Result<T, serde_json::Error> {
    read(answer.get(name).cloned().ok_or_else(|| serde::de::Error::missing_field(name))?)
}

pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(answer)
}

#[cfg(test)]
mod tests {
    use crate::command::parse;

    #[test]
    fn a_member_that_failed_is_named_and_the_command_has_failed() {
        let report = serde_json::json!({ "name": "n", "members": [
            { "host_id": "1", "address": "10.0.0.1:7000", "error": null, "snapshots": [
                { "name": "n", "table_id": "7", "keyspace": "a", "table": "t", "created_at": "", "expires_at": "", "disk_bytes": 512 },
            ], "tables": [{ "keyspace": "a", "table": "t", "file_count": 1, "disk_bytes": 512 }] },
            { "host_id": "2", "address": "10.0.0.2:7000", "error": "the member is down" },
        ] });
        let command = |words: &[&str]| parse(words).unwrap();
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
