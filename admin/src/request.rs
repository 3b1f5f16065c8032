//! The request to the node that each command of `helenus admin` is.

use std::fmt::Display;
use std::path::Path;

use uuid::Uuid;

use crate::command::{AdminCommand, TableScope, Writes};
use crate::http::{Call, Method};
use crate::settings;

/// Names and values of a request.
type Parameters = Vec<(&'static str, String)>;

/// The reason why a command is no request: what it is about is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Absence {
    #[error(
        "a node does not take files into use that were put into its directories: `helenus admin import DIRECTORY` writes the rows of table files to their replicas"
    )]
    Refresh,
}

impl TableScope {
    fn parameters(&self) -> Parameters {
        let keyspace = keyspace_parameter(self.keyspace.as_ref());
        let table = self.table.iter().map(|table| ("table", table.clone()));
        keyspace.into_iter().chain(table).collect()
    }
}

impl Writes {
    /// With those of the directory that the rows come from.
    fn parameters(&self, directory: &Path) -> Parameters {
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

fn host_parameter(host: Option<&Uuid>) -> Option<(&'static str, String)> {
    Some(("host_id", host?.to_string()))
}

/// A relative path is relative to the directory of the command, which the node does not know.
fn directory_parameter(directory: &Path) -> (&'static str, String) {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    ("directory", absolute.to_string_lossy().into_owned())
}

fn keyspace_parameter(keyspace: Option<&String>) -> Parameters {
    keyspace.into_iter().map(|keyspace| ("keyspace", keyspace.clone())).collect()
}

/// The request that changes a setting.
fn change(name: &'static str, value: &impl Display) -> (Method, &'static str, Parameters) {
    (Method::POST, "/admin/settings", vec![(name, value.to_string())])
}

/// The request that enables a log of requests.
fn enable(path: &'static str, options: Parameters) -> (Method, &'static str, Parameters) {
    let enabled = ("enabled", "true".to_owned());
    (Method::POST, path, std::iter::once(enabled).chain(options).collect())
}

fn accepts_old_data() -> (&'static str, String) {
    ("accept_old_data", "true".to_owned())
}

impl AdminCommand {
    /// The request to the node.
    pub(crate) fn call(&self) -> Result<Call, Absence> {
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
            Self::Compactionstats | Self::Getcompactionthroughput => {
                (Method::GET, "/admin/compactionstats", Vec::new())
            }
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
            Self::Reloadssl => (Method::POST, "/admin/reloadssl", Vec::new()),
            Self::EncryptionKeys => (Method::GET, "/admin/encryption_keys", Vec::new()),
            Self::Clearsnapshot { cluster, name } => {
                let parameters = std::iter::once(("name", name.clone())).chain(cluster_parameter(*cluster));
                (Method::POST, "/admin/clear_snapshot", parameters.collect())
            }
            Self::Listsnapshots { cluster } => {
                (Method::GET, "/admin/listsnapshots", cluster_parameter(*cluster).collect())
            }
            Self::Upload { cluster, name, scope } => {
                let mut parameters = scope.parameters();
                parameters.push(("name", name.clone()));
                parameters.extend(cluster_parameter(*cluster));
                (Method::POST, "/admin/upload", parameters)
            }
            Self::Listuploads { cluster_name } => {
                (Method::GET, "/admin/listuploads", given([("cluster_name", cluster_name)]).collect())
            }
            Self::Download { name, into, host, cluster_name, scope } => {
                let mut parameters = scope.parameters();
                parameters.extend([("name", name.clone()), directory_parameter(into)]);
                parameters.extend(host_parameter(host.as_ref()));
                parameters.extend(given([("cluster_name", cluster_name)]));
                (Method::POST, "/admin/download", parameters)
            }
            Self::Removeupload { cluster, host, name } => {
                let parameters = std::iter::once(("name", name.clone())).chain(host_parameter(host.as_ref()));
                (Method::POST, "/admin/removeupload", parameters.chain(cluster_parameter(*cluster)).collect())
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
            Self::CreateSuperuser { name, reset } => {
                let mut parameters = vec![("name", name.clone())];
                parameters.extend(reset.then(|| ("reset", "true".to_owned())));
                (Method::POST, "/admin/create_superuser", parameters)
            }
            Self::Updatecidrgroup { group, networks } => {
                let parameters = vec![("group", group.clone()), ("networks", networks.join(","))];
                (Method::POST, "/admin/updatecidrgroup", parameters)
            }
            Self::Dropcidrgroup { group } => {
                (Method::POST, "/admin/dropcidrgroup", vec![("group", group.clone())])
            }
            Self::Listcidrgroups { .. } => (Method::GET, "/admin/cidrgroups", Vec::new()),
            Self::DescribeRoles => (Method::GET, "/admin/roles", Vec::new()),
            Self::RecoverMetadata => (Method::POST, "/admin/recovermetadata", Vec::new()),
            Self::Getendpoints { keyspace, table, key } => {
                let names = [("keyspace", keyspace), ("table", table), ("key", key)];
                let parameters = names.map(|(name, value)| (name, value.clone()));
                (Method::GET, "/admin/getendpoints", parameters.into())
            }
            Self::Denylist(command) => command.request(),
            Self::Describering { keyspace } => {
                (Method::GET, "/admin/ring", keyspace_parameter(Some(keyspace)))
            }
            Self::Gossipinfo => (Method::GET, "/admin/status", Vec::new()),
            Self::Tpstats => (Method::GET, "/admin/tpstats", Vec::new()),
            Self::Proxyhistograms => (Method::GET, "/admin/proxyhistograms", Vec::new()),
            Self::Toppartitions { hours, scope } => {
                let period = if *hours { "hours" } else { "minutes" };
                let mut parameters = scope.parameters();
                parameters.push(("period", period.to_owned()));
                (Method::GET, "/admin/toppartitions", parameters)
            }
            Self::Tablehistograms(scope) => (Method::GET, "/admin/tablehistograms", scope.parameters()),
            Self::Feeds(scope) => (Method::GET, "/admin/feeds", scope.parameters()),
            Self::Getstreamthroughput
            | Self::Gethintedhandoffthrottlekb
            | Self::Gettraceprobability
            | Self::Getlogginglevels
            | Self::Statusbinary
            | Self::Statushandoff => (Method::GET, "/admin/settings", Vec::new()),
            Self::Setstreamthroughput { bytes_per_second } => {
                change("stream_throughput_bytes_per_second", bytes_per_second)
            }
            Self::Sethintedhandoffthrottlekb { bytes_per_second } => {
                change("hinted_handoff_throttle_bytes_per_second", bytes_per_second)
            }
            Self::Settraceprobability { probability } => change("trace_probability", probability),
            Self::Setlogginglevel { target, level } => {
                let level = level.as_ref().map_or_else(|| "reset".to_owned(), |level| level.to_lowercase());
                let (method, path, mut parameters) = change("log_level", &level);
                let target = target.iter().filter(|target| !target.eq_ignore_ascii_case(settings::ROOT));
                parameters.extend(target.map(|target| ("log_target", target.clone())));
                (method, path, parameters)
            }
            Self::Enablebinary => change("native_transport", &true),
            Self::Disablebinary => change("native_transport", &false),
            Self::Enablehandoff => change("hinted_handoff", &true),
            Self::Disablehandoff => change("hinted_handoff", &false),
            Self::Resumehandoff => change("hint_delivery", &true),
            Self::Pausehandoff => change("hint_delivery", &false),
            Self::Truncatehints { member } => {
                (Method::POST, "/admin/truncatehints", given([("member", member)]).collect())
            }
            Self::Assassinate { member } => {
                (Method::POST, "/admin/assassinate", vec![("member", member.clone())])
            }
            Self::Getguardrailsconfig(arguments) => {
                (Method::GET, "/admin/guardrails", given([("name", &arguments.name)]).collect())
            }
            Self::Setguardrailsconfig(change) => (Method::POST, "/admin/guardrails", change.parameters()),
            Self::Getauditlog => (Method::GET, "/admin/auditlog", Vec::new()),
            Self::Enableauditlog(arguments) => enable("/admin/auditlog", arguments.parameters()),
            Self::Disableauditlog => (Method::POST, "/admin/auditlog", vec![("enabled", "false".to_owned())]),
            Self::Getfullquerylog => (Method::GET, "/admin/fullquerylog", Vec::new()),
            Self::Enablefullquerylog(arguments) => enable("/admin/fullquerylog", arguments.parameters()),
            Self::Disablefullquerylog => {
                (Method::POST, "/admin/fullquerylog", vec![("enabled", "false".to_owned())])
            }
            Self::Resetfullquerylog => {
                (Method::POST, "/admin/fullquerylog", vec![("reset", "true".to_owned())])
            }
            Self::Version => (Method::GET, "/version", Vec::new()),
            Self::Viewbuildstatus { keyspace, view } => {
                let parameters = vec![("keyspace", keyspace.clone()), ("view", view.clone())];
                (Method::GET, "/admin/viewbuildstatus", parameters)
            }
            Self::RebuildIndex { keyspace, table, indexes } => {
                let names = [("keyspace", keyspace), ("table", table), ("indexes", &indexes.join(","))];
                let parameters = names.map(|(name, value)| (name, value.clone()));
                (Method::POST, "/admin/rebuild_index", parameters.into())
            }
            Self::Refresh(_) => return Err(Absence::Refresh),
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
        Ok(Call { method, path, parameters, password: None })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::command::parse;
    use crate::long_options::with_long_options;

    fn call(arguments: &[&str]) -> String {
        parse(arguments).unwrap().call().unwrap().to_string()
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
        assert_eq!(
            call(&["rebuild_index", "ks", "t", "a", "b"]),
            "POST /admin/rebuild_index?keyspace=ks&table=t&indexes=a%2Cb"
        );
        assert!(parse(&["rebuild_index", "ks", "t"]).is_err());
        assert_eq!(call(&["drain"]), "POST /admin/drain");
        assert_eq!(
            call(&["enableauditlog", "--included-users", "a,b", "--block", "true"]),
            "POST /admin/auditlog?enabled=true&included_users=a%2Cb&block=true"
        );
        assert_eq!(call(&["disableauditlog"]), "POST /admin/auditlog?enabled=false");
        assert_eq!(call(&["getauditlog"]), "GET /admin/auditlog");
        assert_eq!(call(&["getguardrailsconfig", "-c", "flags"]), "GET /admin/guardrails");
        assert_eq!(
            call(&["setguardrailsconfig", "tables_threshold", "20", "-1"]),
            "POST /admin/guardrails?name=tables%5Fthreshold&values=20%2C%2D1"
        );
        let named = call(&["getguardrailsconfig", "tables_threshold"]);
        assert_eq!(named, "GET /admin/guardrails?name=tables%5Fthreshold");
        assert_eq!(
            call(&["enablefullquerylog", "--path", "/q", "--max-log-size", "7"]),
            "POST /admin/fullquerylog?enabled=true&path=%2Fq&max_log_size=7"
        );
        assert_eq!(call(&["disablefullquerylog"]), "POST /admin/fullquerylog?enabled=false");
        assert_eq!(call(&["resetfullquerylog"]), "POST /admin/fullquerylog?reset=true");
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
        assert_eq!(call(&["reloadssl"]), "POST /admin/reloadssl");
        assert_eq!(call(&["encryption-keys"]), "GET /admin/encryption_keys");
        assert_eq!(call(&["clearsnapshot", "n"]), "POST /admin/clear_snapshot?name=n");
        assert_eq!(
            call(&["clearsnapshot", "n", "--cluster"]),
            "POST /admin/clear_snapshot?name=n&cluster=true"
        );
        assert_eq!(call(&["listsnapshots"]), "GET /admin/listsnapshots");
        assert_eq!(call(&["listsnapshots", "--cluster"]), "GET /admin/listsnapshots?cluster=true");
        assert_eq!(
            call(&["upload", "-t", "n", "--cluster", "ks", "t"]),
            "POST /admin/upload?keyspace=ks&table=t&name=n&cluster=true"
        );
        assert_eq!(call(&["listuploads"]), "GET /admin/listuploads");
        assert_eq!(call(&["listuploads", "--cluster-name", "c"]), "GET /admin/listuploads?cluster_name=c");
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
            call(&["download", "-t", "n", "--into", "/b", "--host", host_id, "--cluster-name", "c", "ks"]),
            format!(
                "POST /admin/download?keyspace=ks&name=n&directory=%2Fb&host_id={encoded}&cluster_name=c"
            )
        );
        assert_eq!(
            call(&["removeupload", "-t", "n", "--host", host_id]),
            format!("POST /admin/removeupload?name=n&host_id={encoded}")
        );
        assert_eq!(
            call(&["removeupload", "-t", "n", "--cluster"]),
            "POST /admin/removeupload?name=n&cluster=true"
        );
        assert!(parse(&["removeupload", "-t", "n", "--cluster", "--host", host_id]).is_err());
        assert!(parse(&["download", "-t", "n"]).is_err() && parse(&["upload"]).is_err());
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
            assert!(parse(refused).is_err(), "{refused:?}");
        }
        // Only there.
        let words = ["helenus", "shell", "-kt", "snapshot"].map(OsString::from);
        assert_eq!(with_long_options(words.clone().into_iter()), words);
    }

    #[test]
    fn settings_are_read_and_changed_one_at_a_time() {
        for words in [
            &["getstreamthroughput"] as &[&str],
            &["gethintedhandoffthrottlekb"],
            &["gettraceprobability"],
            &["getlogginglevels"],
            &["statusbinary"],
            &["statushandoff"],
        ] {
            assert_eq!(call(words), "GET /admin/settings");
        }
        for (words, parameters) in [
            (&["setstreamthroughput", "24"] as &[&str], "stream_throughput_bytes_per_second=25165824"),
            (&["setstreamthroughput", "0"], "stream_throughput_bytes_per_second=0"),
            (&["sethintedhandoffthrottlekb", "1024"], "hinted_handoff_throttle_bytes_per_second=1048576"),
            (&["settraceprobability", "0.25"], "trace_probability=0%2E25"),
            (&["setlogginglevel"], "log_level=reset"),
            (
                &["setlogginglevel", "helenus::streaming", "DEBUG"],
                "log_level=debug&log_target=helenus%3A%3Astreaming",
            ),
            (&["setlogginglevel", "ROOT", "warn"], "log_level=warn"),
            (&["enablebinary"], "native_transport=true"),
            (&["disablebinary"], "native_transport=false"),
            (&["enablehandoff"], "hinted_handoff=true"),
            (&["disablehandoff"], "hinted_handoff=false"),
            (&["resumehandoff"], "hint_delivery=true"),
            (&["pausehandoff"], "hint_delivery=false"),
        ] {
            assert_eq!(call(words), format!("POST /admin/settings?{parameters}"));
        }
        for refused in [
            &["setstreamthroughput"] as &[&str],
            &["setstreamthroughput", "-1"],
            &["setstreamthroughput", "17592186044417"],
            &["settraceprobability", "1.5"],
            &["settraceprobability", "NaN"],
            &["setlogginglevel", "helenus"],
            &["setlogginglevel", "helenus", "loud"],
        ] {
            assert!(parse(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn commands_of_nodetool_become_requests() {
        assert_eq!(
            call(&["getendpoints", "ks", "t", "a:7"]),
            "GET /admin/getendpoints?keyspace=ks&table=t&key=a%3A7"
        );
        assert_eq!(call(&["describering", "ks"]), "GET /admin/ring?keyspace=ks");
        assert_eq!(call(&["gossipinfo"]), "GET /admin/status");
        assert_eq!(call(&["tpstats"]), "GET /admin/tpstats");
        assert_eq!(call(&["proxyhistograms"]), "GET /admin/proxyhistograms");
        assert_eq!(call(&["toppartitions"]), "GET /admin/toppartitions?period=minutes");
        assert_eq!(
            call(&["toppartitions", "--hours", "ks", "t"]),
            "GET /admin/toppartitions?keyspace=ks&table=t&period=hours"
        );
        assert_eq!(call(&["feeds", "ks", "t"]), "GET /admin/feeds?keyspace=ks&table=t");
        assert_eq!(call(&["tablehistograms"]), "GET /admin/tablehistograms");
        assert_eq!(call(&["tablehistograms", "ks", "t"]), "GET /admin/tablehistograms?keyspace=ks&table=t");
        assert_eq!(call(&["getcompactionthroughput"]), "GET /admin/compactionstats");
        assert_eq!(call(&["truncatehints"]), "POST /admin/truncatehints");
        assert_eq!(call(&["truncatehints", "10.0.0.2"]), "POST /admin/truncatehints?member=10%2E0%2E0%2E2");
        assert_eq!(call(&["create-superuser", "anna"]), "POST /admin/create_superuser?name=anna");
        assert_eq!(call(&["describe-roles"]), "GET /admin/roles");
        assert_eq!(
            call(&["create-superuser", "anna", "--reset", "--data-dir", "/data"]),
            "POST /admin/create_superuser?name=anna&reset=true"
        );
        assert_eq!(call(&["recover-metadata"]), "POST /admin/recovermetadata");
        assert_eq!(
            call(&["assassinate", "10.0.0.2:7000"]),
            "POST /admin/assassinate?member=10%2E0%2E0%2E2%3A7000"
        );
        assert_eq!(call(&["version"]), "GET /version");
        assert_eq!(call(&["viewbuildstatus", "ks", "v"]), "GET /admin/viewbuildstatus?keyspace=ks&view=v");
    }

    #[test]
    fn what_is_not_there_is_no_request() {
        let absent = |words: &[&str]| parse(words).unwrap().call().unwrap_err();
        assert_eq!(absent(&["refresh", "ks", "t"]), Absence::Refresh);
        assert!(Absence::Refresh.to_string().contains("`helenus admin import DIRECTORY`"));
    }
}
