//! The parameters of a request, decoded and checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use cql_lite::frame::Consistency;
use cql_lite::types::time::parse_write_time;
use helenus_engine::compaction::Granularity;
use helenus_query::schema::selection::TableSelection;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::admin::{
    DownloadRequest, RepairRanges, RepairRequest, ReplayRequest, RestoreRequest, UploadRequest,
};
use crate::controls::{DenylistSetting, RequestLogChange, SettingChange};

/// Longest name of a snapshot.
const SNAPSHOT_NAME_BYTES_MAX: usize = 128;

/// The lowest rate of hints, as in the configuration.
const HINT_RATE_MIN: u64 = 64 << 10;
/// The parameters of a change of a setting.
pub(super) const SETTINGS: &[&str] = &[
    "stream_throughput_bytes_per_second",
    "hinted_handoff_throttle_bytes_per_second",
    "trace_probability",
    "native_transport",
    "hinted_handoff",
    "hint_delivery",
    "partition_denylist_enabled",
    "denylist_writes_enabled",
    "denylist_reads_enabled",
    "denylist_range_reads_enabled",
    "denylist_max_keys_per_table",
    "denylist_max_keys_total",
    "log_level",
    "log_target",
];

/// The parameters of a change of the audit log.
pub(super) const AUDIT_LOG: &[&str] = &[
    "enabled",
    "logger",
    "included_keyspaces",
    "excluded_keyspaces",
    "included_categories",
    "excluded_categories",
    "included_users",
    "excluded_users",
    "roll_cycle",
    "block",
    "max_queue_weight",
    "max_log_size",
];
/// The parameters of a change of the full query log.
pub(super) const FULL_QUERY_LOG: &[&str] =
    &["enabled", "reset", "path", "roll_cycle", "block", "max_queue_weight", "max_log_size"];

/// The reason why parameters are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ParameterError(String);

/// Refuses two parameters together.
pub(super) fn exclusive(one: &str, other: &str) -> ParameterError {
    ParameterError(format!("parameter '{one}' excludes '{other}'"))
}

/// The decoded parameters of a query, each at most once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<(&'static str, String)>);

impl Parameters {
    pub(super) fn parse(query: &str, known: &'static [&'static str]) -> Result<Self, ParameterError> {
        let refuse = |message| Err(ParameterError(message));
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return refuse(format!("unknown parameter '{name}'; known here: {known}"));
            };
            let Ok(value) = percent_decode_str(value).decode_utf8() else {
                return refuse(format!("parameter '{name}' is not UTF-8"));
            };
            // An unset variable in a script must not turn one keyspace into all of them.
            if value.is_empty() {
                return refuse(format!("parameter '{name}' is empty"));
            }
            if parameters.0.iter().any(|(seen, _)| seen == name) {
                return refuse(format!("parameter '{name}' is given twice"));
            }
            parameters.0.push((name, value.into_owned()));
        }
        Ok(parameters)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(candidate, _)| *candidate == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Keyspace and table.
    pub(super) fn scope(&mut self) -> Result<(Option<String>, Option<String>), ParameterError> {
        let (keyspace, table) = (self.take("keyspace"), self.take("table"));
        if keyspace.is_none() && table.is_some() {
            return Err(ParameterError("parameter 'table' needs parameter 'keyspace'".to_owned()));
        }
        Ok((keyspace, table))
    }

    /// Keyspace, table and partition key, which must be given.
    pub(super) fn partition(&mut self) -> Result<(String, String, String), ParameterError> {
        Ok((self.needed("keyspace")?, self.needed("table")?, self.needed("key")?))
    }

    /// Keyspace and view, which must be given.
    pub(super) fn view(&mut self) -> Result<(String, String), ParameterError> {
        Ok((self.needed("keyspace")?, self.needed("view")?))
    }

    /// Keyspace, and any number of tables of it.
    pub(super) fn tables(&mut self) -> Result<(Option<String>, Vec<String>), ParameterError> {
        let (keyspace, tables) = (self.take("keyspace"), self.take("tables"));
        if keyspace.is_none() && tables.is_some() {
            return Err(ParameterError("parameter 'tables' needs parameter 'keyspace'".to_owned()));
        }
        let tables: Vec<String> =
            tables.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
        if tables.iter().any(String::is_empty) {
            return Err(ParameterError("parameter 'tables' has an empty name".to_owned()));
        }
        Ok((keyspace, tables))
    }

    /// What is to be repaired.
    pub(super) fn repair(&mut self) -> Result<RepairRequest, ParameterError> {
        let (keyspace, tables) = self.tables()?;
        let ranges =
            match (self.take("ranges").as_deref(), self.token("start_token")?, self.token("end_token")?) {
                (None | Some("all"), None, None) => RepairRanges::All,
                (Some("node"), None, None) => RepairRanges::OfNode,
                (Some("primary"), None, None) => RepairRanges::PrimaryOfNode,
                (None, Some(start), Some(end)) => RepairRanges::Range { start, end },
                _ => {
                    let message =
                        "either parameter 'ranges' (all, node, primary), or 'start_token' and 'end_token'";
                    return Err(ParameterError(message.to_owned()));
                }
            };
        let data_centers = self.take("data_centers");
        let data_centers: Vec<String> =
            data_centers.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
        let is_local = self.flag("local")?;
        if is_local && !data_centers.is_empty() {
            return Err(ParameterError("either parameter 'data_centers' or 'local'".to_owned()));
        }
        Ok(RepairRequest { keyspace, tables, ranges, data_centers, is_local, force: self.flag("force")? })
    }

    /// Refuses parameters where none are expected.
    pub(super) fn refuse_any(&self) -> Result<(), ParameterError> {
        let refuse = |(name, _): &(&str, String)| ParameterError(format!("parameter '{name}' needs POST"));
        self.0.first().map_or(Ok(()), |first| Err(refuse(first)))
    }

    /// The change of one setting.
    pub(super) fn setting(&mut self) -> Result<SettingChange, ParameterError> {
        let target = self.take("log_target");
        let [(name, _)] = self.0[..] else {
            return Err(ParameterError(format!(
                "one parameter of these is expected: {}",
                SETTINGS.join(", ")
            )));
        };
        if target.is_some() && name != "log_level" {
            return Err(ParameterError("parameter 'log_target' needs parameter 'log_level'".to_owned()));
        }
        Ok(match name {
            "stream_throughput_bytes_per_second" => SettingChange::StreamThroughput(self.number(name)?),
            "hinted_handoff_throttle_bytes_per_second" => {
                let rate: u64 = self.number(name)?;
                if (1..HINT_RATE_MIN).contains(&rate) {
                    return Err(ParameterError(format!(
                        "parameter '{name}' must be 0 or at least {HINT_RATE_MIN}"
                    )));
                }
                SettingChange::HintedHandoffThrottle(rate)
            }
            "trace_probability" => {
                let probability: f64 = self.number(name)?;
                if !(0.0..=1.0).contains(&probability) {
                    return Err(ParameterError(format!("parameter '{name}' must be from 0 to 1")));
                }
                SettingChange::TraceProbability(probability)
            }
            "native_transport" => SettingChange::NativeTransport(self.flag(name)?),
            "hinted_handoff" => SettingChange::HintedHandoff(self.flag(name)?),
            "hint_delivery" => SettingChange::HintDelivery(self.flag(name)?),
            _ if DenylistSetting::NAMES.contains(&name) => {
                let setting = DenylistSetting::parse(name, &self.needed(name)?);
                let refused = |reason| ParameterError(format!("parameter '{name}': {reason}"));
                SettingChange::Denylist(setting.map_err(refused)?)
            }
            _ => SettingChange::LogLevel { target, level: self.needed("log_level")? },
        })
    }

    /// The change of a log of requests.
    pub(super) fn request_log_change(&mut self) -> Result<RequestLogChange, ParameterError> {
        let (is_reset, is_named) = (self.flag("reset")?, self.has("enabled"));
        let is_enabled = self.flag("enabled")?;
        let options: BTreeMap<&'static str, String> = std::mem::take(&mut self.0).into_iter().collect();
        match (is_reset, is_named, is_enabled) {
            (false, true, true) => Ok(RequestLogChange::Enable(options)),
            (true, false, _) if options.is_empty() => Ok(RequestLogChange::Reset),
            (false, true, false) if options.is_empty() => Ok(RequestLogChange::Disable),
            _ => Err(ParameterError(
                "parameter 'enabled' is expected: true with options, or false alone".to_owned(),
            )),
        }
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Result<T, ParameterError> {
        let text = self.needed(name)?;
        text.parse()
            .map_err(|_| ParameterError(format!("parameter '{name}': '{text}' is no number that fits")))
    }

    /// A parameter that must be given.
    pub(super) fn needed(&mut self, name: &str) -> Result<String, ParameterError> {
        self.take(name).ok_or_else(|| ParameterError(format!("parameter '{name}' is missing")))
    }

    fn token(&mut self, name: &'static str) -> Result<Option<i64>, ParameterError> {
        let parse = |text: String| {
            text.parse().map_err(|_| ParameterError(format!("parameter '{name}': '{text}' is no token")))
        };
        self.take(name).map(parse).transpose()
    }

    /// A number.
    pub(super) fn id(&mut self) -> Result<Option<u64>, ParameterError> {
        let parse = |text: String| {
            text.parse().map_err(|_| ParameterError(format!("parameter 'id': '{text}' is no number")))
        };
        self.take("id").map(parse).transpose()
    }

    /// ROW when it is not given.
    pub(super) fn granularity(&mut self) -> Result<Granularity, ParameterError> {
        match self.take("granularity").map(|name| name.to_uppercase()).as_deref() {
            None | Some("ROW") => Ok(Granularity::Row),
            Some("CELL") => Ok(Granularity::Cell),
            Some(other) => {
                Err(ParameterError(format!("parameter 'granularity' is '{other}', not ROW or CELL")))
            }
        }
    }

    /// `true` or `false`; `false` when it is not given.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ParameterError> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(ParameterError(format!("parameter '{name}' is '{other}', not true or false"))),
        }
    }

    pub(super) fn host_id(&mut self) -> Result<Uuid, ParameterError> {
        let mut host_ids = self.host_ids()?;
        match (host_ids.pop(), host_ids.is_empty()) {
            (Some(host_id), true) => Ok(host_id),
            _ => Err(ParameterError("parameter 'host_id' must be one UUID".to_owned())),
        }
    }

    /// One or more, with commas between them.
    pub(super) fn host_ids(&mut self) -> Result<Vec<Uuid>, ParameterError> {
        let Some(text) = self.take("host_id") else {
            return Err(ParameterError("parameter 'host_id' is missing".to_owned()));
        };
        let parsed = text.split(',').map(|host_id| {
            host_id
                .parse()
                .map_err(|_| ParameterError(format!("parameter 'host_id': '{host_id}' is no UUID")))
        });
        parsed.collect()
    }

    /// Bytes a second, given as MiB; 0 is no limit.
    pub(super) fn rate(&mut self) -> Result<Option<u64>, ParameterError> {
        let text = self.take("mebibytes_per_second").unwrap_or_default();
        let mebibytes = text.parse::<u64>().ok().filter(|mebibytes| *mebibytes <= 1 << 20);
        let Some(mebibytes) = mebibytes else {
            let message = "parameter 'mebibytes_per_second' must be a number up to 1048576; 0 is no limit";
            return Err(ParameterError(message.to_owned()));
        };
        Ok((mebibytes > 0).then_some(mebibytes << 20))
    }

    /// What is to be written of archived commit logs.
    pub(super) fn replay(&mut self) -> Result<ReplayRequest, ParameterError> {
        let (keyspace, table) = self.scope()?;
        let since = self.write_time("since")?.map_or(i64::MIN, |since| since.saturating_add(1));
        let until = self.write_time("until")?.unwrap_or(i64::MAX);
        if since > until {
            return Err(ParameterError("parameter 'since' must be before 'until'".to_owned()));
        }
        let snapshot = self.given_snapshot_name()?;
        Ok(ReplayRequest {
            directory: self.directory()?,
            snapshot,
            keyspace,
            table,
            into: self.take("into"),
            timestamps: since..=until,
            consistency: self.write_level()?,
        })
    }

    /// The time of a write, in microseconds.
    fn write_time(&mut self, name: &str) -> Result<Option<i64>, ParameterError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        parse_write_time(&text).map(Some).map_err(|_| {
            ParameterError(format!(
                "parameter '{name}' is neither a number of microseconds nor a time: {text}"
            ))
        })
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(candidate, _)| *candidate == name)
    }

    /// A directory of this machine.
    pub(super) fn directory(&mut self) -> Result<PathBuf, ParameterError> {
        let directory = self.take("directory").map(PathBuf::from);
        directory.filter(|path| path.is_absolute()).ok_or_else(|| {
            ParameterError("parameter 'directory' must be an absolute path of this machine".to_owned())
        })
    }

    /// A consistency level of writes; ALL when it is not given.
    pub(super) fn write_level(&mut self) -> Result<Consistency, ParameterError> {
        use Consistency::{All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Three, Two};
        let Some(text) = self.take("consistency") else { return Ok(All) };
        let levels = [All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Three, Two];
        text.parse().ok().filter(|level| levels.contains(level)).ok_or_else(|| {
            ParameterError(format!("parameter 'consistency' is no consistency level of writes: {text}"))
        })
    }

    /// Keyspaces and tables of a snapshot; as nodetool has it, one of the two ways to name tables excludes the other.
    pub(super) fn selection(&mut self) -> Result<TableSelection, ParameterError> {
        let (tables, keyspaces, table) = (self.list("tables")?, self.list("keyspace")?, self.take("table"));
        let refuse = |message: &str| Err(ParameterError(message.to_owned()));
        match (tables, keyspaces, table) {
            (None, None, None) => Ok(TableSelection::All),
            (None, Some(keyspaces), None) => Ok(TableSelection::Keyspaces(keyspaces)),
            (None, Some(keyspaces), Some(table)) => match <[String; 1]>::try_from(keyspaces) {
                Ok([keyspace]) => Ok(TableSelection::Tables(vec![(keyspace, table)])),
                Err(_) => refuse("parameter 'table' needs one and only one keyspace"),
            },
            (None, None, Some(_)) => refuse("parameter 'table' needs parameter 'keyspace'"),
            (Some(tables), None, None) => {
                let names = tables.into_iter().map(|name| match name.split_once('.') {
                    Some((keyspace, table))
                        if !keyspace.is_empty() && !table.is_empty() && !table.contains('.') =>
                    {
                        Ok((keyspace.to_owned(), table.to_owned()))
                    }
                    _ => Err(ParameterError(format!("'{name}' in parameter 'tables' is not KEYSPACE.TABLE"))),
                });
                names.collect::<Result<_, _>>().map(TableSelection::Tables)
            }
            (Some(_), _, _) => refuse("parameter 'tables' excludes 'keyspace' and 'table'"),
        }
    }

    /// Names that are separated by commas, one or more.
    pub(super) fn needed_list(&mut self, name: &str) -> Result<Vec<String>, ParameterError> {
        self.list(name)?.ok_or_else(|| ParameterError(format!("parameter '{name}' is missing")))
    }

    /// Names that are separated by commas.
    fn list(&mut self, name: &str) -> Result<Option<Vec<String>>, ParameterError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        if names.iter().any(String::is_empty) {
            return Err(ParameterError(format!("parameter '{name}' has an empty name: {text}")));
        }
        Ok(Some(names))
    }

    /// What is to be restored from a snapshot.
    pub(super) fn restore(&mut self) -> Result<RestoreRequest, ParameterError> {
        let (keyspace, table) = self.scope()?;
        Ok(RestoreRequest { name: self.snapshot_name()?, keyspace, table, into: self.take("into") })
    }

    /// What is to be uploaded.
    pub(super) fn upload(&mut self) -> Result<UploadRequest, ParameterError> {
        let (keyspace, table) = self.scope()?;
        Ok(UploadRequest { name: self.snapshot_name()?, keyspace, table })
    }

    /// What is to be downloaded.
    pub(super) fn download(&mut self) -> Result<DownloadRequest, ParameterError> {
        let (keyspace, table) = self.scope()?;
        Ok(DownloadRequest {
            name: self.snapshot_name()?,
            keyspace,
            table,
            directory: self.directory()?,
            host_id: self.given_host_id()?,
            cluster_name: self.take("cluster_name").filter(|name| !name.is_empty()),
        })
    }

    /// A UUID, if one is given.
    pub(super) fn given_host_id(&mut self) -> Result<Option<Uuid>, ParameterError> {
        if self.has("host_id") { self.host_id().map(Some) } else { Ok(None) }
    }

    /// The name of a snapshot, if one is given.
    pub(super) fn given_snapshot_name(&mut self) -> Result<Option<String>, ParameterError> {
        if self.has("name") { self.snapshot_name().map(Some) } else { Ok(None) }
    }

    /// The name of a snapshot, which becomes the name of a directory.
    pub(super) fn snapshot_name(&mut self) -> Result<String, ParameterError> {
        let Some(name) = self.take("name") else {
            return Err(ParameterError("parameter 'name' is missing".to_owned()));
        };
        let is_safe = name.len() <= SNAPSHOT_NAME_BYTES_MAX
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !is_safe {
            return Err(ParameterError(format!(
                "parameter 'name' must be at most {SNAPSHOT_NAME_BYTES_MAX} letters, digits, '_', '-' or '.', \
                 not starting with '.'"
            )));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["keyspace", "table", "name"];

    fn refused(query: &str) -> String {
        Parameters::parse(query, KNOWN).unwrap_err().to_string()
    }

    #[test]
    fn parameters_are_decoded() {
        let mut parameters = Parameters::parse("table=Caf%C3%A9&keyspace=a%26b", KNOWN).unwrap();
        assert_eq!(parameters.scope(), Ok((Some("a&b".to_owned()), Some("Café".to_owned()))));
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        assert_eq!(refused("tabel=x"), "unknown parameter 'tabel'; known here: keyspace, table, name");
        assert_eq!(refused("table=x&table=y"), "parameter 'table' is given twice");
        assert_eq!(refused("table=%FF"), "parameter 'table' is not UTF-8");
        assert_eq!(refused("keyspace="), "parameter 'keyspace' is empty");
        assert_eq!(refused("keyspace"), "parameter 'keyspace' is empty");
    }

    #[test]
    fn a_table_needs_its_keyspace() {
        let refusal = Parameters::parse("table=x", KNOWN).unwrap().scope().unwrap_err();
        assert_eq!(refusal.to_string(), "parameter 'table' needs parameter 'keyspace'");
    }

    #[test]
    fn a_snapshot_name_cannot_leave_its_directory() {
        for name in ["..", ".hidden", "a/b", "a%2Fb", "a%00", "a b", &"x".repeat(129)] {
            let mut parameters = Parameters::parse(&format!("name={name}"), KNOWN).unwrap();
            assert!(parameters.snapshot_name().is_err(), "{name}");
        }
        let mut parameters = Parameters::parse("name=before_upgrade-1.2", KNOWN).unwrap();
        assert_eq!(parameters.snapshot_name(), Ok("before_upgrade-1.2".to_owned()));
    }

    #[test]
    fn tables_are_selected_as_in_nodetool() {
        let select =
            |query: &str| Parameters::parse(query, &["keyspace", "table", "tables"]).unwrap().selection();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(select(""), Ok(TableSelection::All));
        assert_eq!(select("keyspace=a"), Ok(TableSelection::Keyspaces(names(&["a"]))));
        assert_eq!(select("keyspace=a,b"), Ok(TableSelection::Keyspaces(names(&["a", "b"]))));
        let table = |keyspace: &str, table: &str| (keyspace.to_owned(), table.to_owned());
        assert_eq!(select("keyspace=a&table=t"), Ok(TableSelection::Tables(vec![table("a", "t")])));
        let tables = TableSelection::Tables(vec![table("a", "t"), table("b", "u")]);
        assert_eq!(select("tables=a.t,b.u"), Ok(tables));
        for (query, message) in [
            ("keyspace=a,b&table=t", "parameter 'table' needs one and only one keyspace"),
            ("table=t", "parameter 'table' needs parameter 'keyspace'"),
            ("tables=a.t&keyspace=a", "parameter 'tables' excludes 'keyspace' and 'table'"),
            ("tables=a.t&table=t", "parameter 'tables' excludes 'keyspace' and 'table'"),
            ("tables=a", "'a' in parameter 'tables' is not KEYSPACE.TABLE"),
            ("tables=a.", "'a.' in parameter 'tables' is not KEYSPACE.TABLE"),
            ("tables=a.t.u", "'a.t.u' in parameter 'tables' is not KEYSPACE.TABLE"),
            ("keyspace=a,,b", "parameter 'keyspace' has an empty name: a,,b"),
        ] {
            assert_eq!(select(query).unwrap_err().to_string(), message);
        }
    }
}
