//! What an operator reads and turns on a running node, without a change of its data.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use helenus_admin::feeds::FeedReport;
use helenus_admin::reports::{
    ActivityReport, CoordinatorLatencies, DeniedPartitionReport, DenylistReport, EndpointsReport, RequestLog,
    RequestLogReport, RuntimeSettings, TableLatencies,
};
use helenus_admin::top_partitions::TopPartition;

use crate::error::AdminError;

/// A change of a setting, until the next start.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingChange {
    /// Bytes a second; 0: no limit.
    StreamThroughput(u64),
    /// Bytes a second; 0: no limit.
    HintedHandoffThrottle(u64),
    /// From 0 to 1.
    TraceProbability(f64),
    NativeTransport(bool),
    HintedHandoff(bool),
    HintDelivery(bool),
    Denylist(DenylistSetting),
    /// Without a target, of all that has no level of its own.
    LogLevel {
        target: Option<String>,
        level: String,
    },
}

/// What a node makes of the partition denylist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenylistSetting {
    Enabled(bool),
    Writes(bool),
    Reads(bool),
    RangeReads(bool),
    KeysPerTableMax(u64),
    KeysMax(u64),
}

impl DenylistSetting {
    /// The names that the settings of a node have for them.
    pub const NAMES: [&'static str; 6] = helenus_admin::denylist::SETTINGS;

    /// A setting by its name, with the text of its value; or what is wrong with them.
    pub fn parse(name: &str, value: &str) -> Result<Self, String> {
        let flag = || value.parse().map_err(|_| format!("'{value}' is neither true nor false"));
        let number = || match value.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("'{value}' is no number from 1 on")),
        };
        Ok(match name {
            "partition_denylist_enabled" => Self::Enabled(flag()?),
            "denylist_writes_enabled" => Self::Writes(flag()?),
            "denylist_reads_enabled" => Self::Reads(flag()?),
            "denylist_range_reads_enabled" => Self::RangeReads(flag()?),
            "denylist_max_keys_per_table" => Self::KeysPerTableMax(number()?),
            "denylist_max_keys_total" => Self::KeysMax(number()?),
            _ => return Err(format!("there is no setting '{name}' of the denylist")),
        })
    }
}

/// A change of a log of requests, until the next start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestLogChange {
    /// With these options, by their names; the others are as in the settings.
    Enable(BTreeMap<&'static str, String>),
    Disable,
    /// Ends the log and removes its files.
    Reset,
}

/// The instruments of a node.
pub trait Controls: Send + Sync {
    /// The replicas of a partition. `key`: the values of the partition key as texts, with `:` between them.
    fn endpoints(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<EndpointsReport, AdminError>>;

    /// Denies a partition to clients, or denies it no more, on all nodes. `key`: as for `endpoints`.
    fn change_denylist(
        &self,
        keyspace: String,
        table: String,
        key: String,
        denies: bool,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>>;

    /// Whether a partition is denied. `key`: as for `endpoints`.
    fn denied_partition(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>>;

    /// The denied partitions of a table, of a keyspace, or all.
    fn denylist(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<DenylistReport, AdminError>>;

    /// What the node does now, and has done.
    fn activity(&self) -> BoxFuture<'_, Result<ActivityReport, AdminError>>;

    /// How long the requests of clients took.
    fn latencies(&self) -> BoxFuture<'_, Result<CoordinatorLatencies, AdminError>>;

    /// The same by table, ordered by keyspace and table. Tables without requests are left out unless one is named.
    fn table_latencies(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableLatencies>, AdminError>>;

    /// The partitions that are asked for most, and those with the heaviest requests, ordered by table, sampler and rank. `period`: `minutes`
    /// or `hours`; `None`: both, ordered by it after the table.
    fn top_partitions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        period: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TopPartition>, AdminError>>;

    /// The change feeds, ordered by keyspace and table.
    fn feeds(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<FeedReport>, AdminError>>;

    /// How far a view is built on each member, by its address: `STARTED` or `SUCCESS`.
    fn view_build_status(
        &self,
        keyspace: String,
        view: String,
    ) -> BoxFuture<'_, Result<BTreeMap<String, String>, AdminError>>;

    fn settings(&self) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>>;

    /// Changes a setting, and returns all.
    fn change_setting(&self, change: SettingChange) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>>;

    /// The guardrails: settings by name, null where one is not set.
    fn guardrails(&self) -> BoxFuture<'_, Result<BTreeMap<String, serde_json::Value>, AdminError>>;

    /// Changes a guardrail until the next start. `name`: a setting, or a threshold without its kind, which has two values: for failures, and
    /// for warnings.
    fn change_guardrail(&self, name: String, values: Vec<String>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The state of a log of requests.
    fn request_log(&self, log: RequestLog) -> BoxFuture<'_, Result<RequestLogReport, AdminError>>;

    /// Changes a log of requests, and returns its state.
    fn change_request_log(
        &self,
        log: RequestLog,
        change: RequestLogChange,
    ) -> BoxFuture<'_, Result<RequestLogReport, AdminError>>;

    /// Gives up the hints that the node keeps for a member (its host id, or an address of it), or all.
    fn truncate_hints(&self, member: Option<String>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Makes this node the only voter of the metadata log, whose majority is lost for good. Returns the host ids of the members that are down.
    fn recover_metadata(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>>;

    /// Makes a role that may log in and do everything, with this password. Without `resets` only while there is no such role; with it an
    /// existing role becomes one and gets the password.
    fn create_superuser(
        &self,
        name: String,
        password: String,
        resets: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Makes a group of networks, or gives it other networks.
    fn update_cidr_group(
        &self,
        group: String,
        networks: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes a group of networks.
    fn drop_cidr_group(&self, group: String) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The networks of each group.
    fn cidr_groups(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<String>>, AdminError>>;

    /// The statements that make all roles again, with their passwords as hashes.
    fn role_statements(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>>;

    /// Removes a dead member (its host id, or an address of it) also if it has the only copy of some data, and if others may bring old data
    /// back.
    fn assassinate(&self, member: String) -> BoxFuture<'_, Result<(), AdminError>>;
}
