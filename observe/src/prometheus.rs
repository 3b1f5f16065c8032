//! Metrics as text: the exposition format of Prometheus, version 0.0.4.
//!
//! Invariants: all samples of a family stand together below its `HELP` and `TYPE`, names have their unit last and
//! counters end in `_total`, units are base units (seconds, bytes), and label values are escaped.

use std::fmt::{Display, Write};
use std::sync::Arc;

use helenus_admin::reports::{RepairedTable, RequestLogReport, TableLatencies, TableReport};
use helenus_engine::shard::{CompactionStatistics, WriteWaits};
use helenus_internode::metrics::Counter;

use crate::metrics::{Histogram, LoginResult, Operation, ShardMetrics};

/// The `Content-Type` of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The engine's present values, summed over the shards of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineGauges {
    pub memtable_bytes: u64,
    pub commit_log_bytes: u64,
    /// Complete segments that wait for their copies in the archive.
    pub unarchived_log_segments: u64,
    /// Shards whose commit log waits for room on the disk.
    pub commit_logs_without_room: u64,
    /// `None` before the disk was looked at.
    pub disk: Option<DiskGauges>,
    /// Writes that shards refused because the disk was full.
    pub refused_writes: u64,
    /// Counts since the start.
    pub compactions: CompactionStatistics,
    /// How long writes waited since the start.
    pub write_waits: WriteWaits,
    /// The largest backlog of a table on a shard, in files.
    pub compaction_backlog_files: u64,
    /// Of them those that count against writes.
    pub counted_backlog_files: u64,
    /// Tables that the schema does not name.
    pub unknown_tables: u64,
    pub tables: Vec<TableReport>,
    /// How old the repairs of tables are.
    pub repairs: Vec<RepairedTable>,
    /// Seconds until the certificate for each use expires; negative afterwards.
    pub certificates: Vec<(&'static str, i64)>,
    /// Milliseconds since the roles of the node were last confirmed, [`NEVER`] if they were not; `None`: they need not be.
    pub roles_confirmed_ms: Option<u64>,
    /// The longest lag of a view in a slice that the node holds; `None`: it holds none, or none is known yet.
    pub view_lag_ms: Option<u64>,
    /// How long requests to tables took.
    pub latencies: Vec<TableLatencies>,
    /// Requests that rate limits of tables have refused.
    pub rate_limited: Vec<RefusedRequests>,
    /// What became of the records of each log of requests, by its name.
    pub request_logs: Vec<(&'static str, RequestLogReport)>,
    /// What was moved to and from the store of uploads since the start.
    pub backup_store: BackupStoreCounts,
}

/// What was moved to and from the store of uploads, and how many operations on it have failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupStoreCounts {
    pub uploaded_bytes: u64,
    pub downloaded_bytes: u64,
    pub failed_operations: u64,
}

/// The age of what has not happened yet.
pub const NEVER: u64 = u64::MAX;

/// Requests to a table that one of its rate limits has refused, since the start of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequests {
    pub keyspace: String,
    pub table: String,
    /// What the limit is for: `partition` or `table`.
    pub limit: &'static str,
    pub operation: Operation,
    pub count: u64,
}

/// The disk of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskGauges {
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub reserve_bytes: u64,
    pub is_reserve_reached: bool,
}

/// A family of numbers of compactions: its name, its type, its help text, and its value.
type CompactionFamily = (&'static str, &'static str, fn(&CompactionStatistics) -> f64);

const COMPACTION_COUNTERS: [CompactionFamily; 9] = [
    ("helenus_compactions_total", "Compactions that have merged or rewritten files.", |counts| {
        counts.merges as f64
    }),
    ("helenus_compactions_failed_total", "Compactions that have failed.", |counts| counts.failed as f64),
    ("helenus_compaction_input_bytes_total", "Bytes of files that were merged.", |counts| {
        counts.input_bytes as f64
    }),
    ("helenus_compaction_output_bytes_total", "Bytes of the files that took their place.", |counts| {
        counts.output_bytes as f64
    }),
    ("helenus_compaction_seconds_total", "Time of compactions.", |counts| counts.duration.as_secs_f64()),
    (
        "helenus_compaction_verification_seconds_total",
        "The part of that time in which outputs were read back.",
        |counts| counts.verification.as_secs_f64(),
    ),
    (
        "helenus_expired_files_total",
        "Files removed unread because everything in them had expired.",
        |counts| counts.dropped_files as f64,
    ),
    ("helenus_moved_files_total", "Files that went to another level as they were.", |counts| {
        counts.moved_files as f64
    }),
    ("helenus_large_rows_total", "Rows above 16 MiB, once for each compaction that met them.", |counts| {
        counts.large_rows as f64
    }),
];

/// A family of counters: its name, its help text, and its counter in a shard's metrics.
type CounterFamily = (&'static str, &'static str, fn(&ShardMetrics) -> &Counter);

const COUNTERS: [CounterFamily; 31] = [
    ("helenus_requests_total", "Requests that arrived.", |shard| &shard.requests),
    ("helenus_errors_total", "Requests that were answered with an error.", |shard| &shard.errors),
    ("helenus_slow_requests_total", "Requests that took longer than slow_query_log_timeout_ms.", |shard| {
        &shard.slow_requests
    }),
    ("helenus_reads_total", "Reads that the shard coordinated.", |shard| &shard.reads),
    ("helenus_writes_total", "Mutations that the shard applied.", |shard| &shard.writes),
    ("helenus_hints_stored_total", "Writes that a replica missed and that were kept for it.", |shard| {
        &shard.hints_stored
    }),
    ("helenus_hints_replayed_total", "Hints that were delivered to their replica.", |shard| {
        &shard.hints_replayed
    }),
    ("helenus_hints_dropped_total", "Missed writes whose hints were not stored or were dropped.", |shard| {
        &shard.hints_dropped
    }),
    ("helenus_batches_replayed_total", "Logged batches whose coordinator had died or given up.", |shard| {
        &shard.batches_replayed
    }),
    ("helenus_digest_mismatches_total", "Reads whose replicas returned different digests.", |shard| {
        &shard.digest_mismatches
    }),
    (
        "helenus_speculative_reads_total",
        "Additional replicas that were asked because the first ones were slow.",
        |shard| &shard.speculative_reads,
    ),
    (
        "helenus_read_repairs_total",
        "Mutations written to replicas that lacked data that was read.",
        |shard| &shard.read_repairs,
    ),
    ("helenus_repair_compared_bytes_total", "Bytes of rows read for the comparisons of repairs.", |shard| {
        &shard.repair_bytes_compared
    }),
    (
        "helenus_repair_mutations_total",
        "Mutations that repairs have written to replicas that lacked them.",
        |shard| &shard.repair_mutations,
    ),
    (
        "helenus_reads_of_other_replicas_total",
        "Reads that other replicas answered because rows of this node could not be read.",
        |shard| &shard.reads_of_others,
    ),
    ("helenus_tls_handshakes_failed_total", "TLS handshakes of clients that have failed.", |shard| {
        &shard.failed_handshakes
    }),
    ("helenus_guardrail_warnings_total", "Warnings of guardrails, for clients and of partitions.", |shard| {
        &shard.guardrail_warnings
    }),
    (
        "helenus_guardrail_failures_total",
        "Requests that a guardrail refused, partitions beyond a failure threshold.",
        |shard| &shard.guardrail_failures,
    ),
    (
        "helenus_partition_denylist_read_rejected_total",
        "Reads that were refused because they name a denied partition.",
        |shard| &shard.denylisted_reads,
    ),
    (
        "helenus_partition_denylist_range_read_rejected_total",
        "Reads that were refused because their range of tokens has a denied partition.",
        |shard| &shard.denylisted_range_reads,
    ),
    (
        "helenus_partition_denylist_write_rejected_total",
        "Writes that were refused because they change a denied partition.",
        |shard| &shard.denylisted_writes,
    ),
    ("helenus_password_hashes_total", "Hashes of passwords that were computed for logins.", |shard| {
        &shard.password_hashes
    }),
    (
        "helenus_requests_refused_for_unconfirmed_roles_total",
        "Requests and logins that were refused because the roles of the node may be too old.",
        |shard| &shard.roles_unconfirmed,
    ),
    (
        "helenus_request_charge_total",
        "What requests were charged, estimated by those that are counted.",
        |shard| &shard.charge,
    ),
    (
        "helenus_rate_limited_requests_total",
        "Requests that were refused because their role makes too many.",
        |shard| &shard.rate_limited,
    ),
    (
        "helenus_turns_waited_total",
        "Turns of a shard that had to wait, so that each role gets its share of the thread.",
        |shard| &shard.turns_waited,
    ),
    (
        "helenus_auto_snapshots_total",
        "Snapshots that were taken before a table was dropped or truncated.",
        |shard| &shard.auto_snapshots,
    ),
    ("helenus_snapshots_expired_total", "Snapshots that were removed because they had expired.", |shard| {
        &shard.snapshots_expired
    }),
    (
        "helenus_view_entries_read_total",
        "Entries read of the logs of what has changed in tables with views, each time they are read.",
        |shard| &shard.view_entries_read,
    ),
    (
        "helenus_view_rows_recomputed_total",
        "Rows (or groups) of base tables whose rows in views were recomputed.",
        |shard| &shard.view_rows_recomputed,
    ),
    (
        "helenus_view_rows_failed_total",
        "Of them those that were left out because an expression failed on their values.",
        |shard| &shard.view_rows_failed,
    ),
];

/// Counters of the administration port.
const ADMIN_COUNTERS: [CounterFamily; 2] = [
    (
        "helenus_admin_tls_handshakes_failed_total",
        "TLS handshakes at the administration port that have failed.",
        |shard| &shard.failed_admin_handshakes,
    ),
    ("helenus_admin_logins_failed_total", "Logins at the administration port that were refused.", |shard| {
        &shard.failed_admin_logins
    }),
];

/// Counters of the whole node.
const INTERNODE_COUNTERS: [CounterFamily; 8] = [
    ("helenus_internode_calls_total", "Requests to other nodes.", |shard| &shard.internode.calls),
    (
        "helenus_internode_timeouts_total",
        "Requests to other nodes that were not answered in time.",
        |shard| &shard.internode.timeouts,
    ),
    ("helenus_internode_failures_total", "Requests to other nodes that failed with their link.", |shard| {
        &shard.internode.failures
    }),
    ("helenus_internode_messages_total", "Messages without answers to other nodes.", |shard| {
        &shard.internode.messages
    }),
    ("helenus_internode_requests_total", "Requests and messages of other nodes.", |shard| {
        &shard.internode.requests
    }),
    ("helenus_internode_dropped_total", "Requests of other nodes that came too late to begin.", |shard| {
        &shard.internode.dropped
    }),
    ("helenus_internode_sent_bytes_total", "Bytes written to other nodes.", |shard| {
        &shard.internode.sent_bytes
    }),
    ("helenus_internode_received_bytes_total", "Bytes read from other nodes.", |shard| {
        &shard.internode.received_bytes
    }),
];

/// A family of gauges: its name, its help text, and its value in the report of a table.
type TableFamily = (&'static str, &'static str, fn(&TableReport) -> u64);

const TABLE_GAUGES: [TableFamily; 12] = [
    ("helenus_table_files", "Files of the table.", |table| table.file_count),
    ("helenus_table_disk_bytes", "Bytes of the table on disk, indexes included.", |table| table.disk_bytes),
    ("helenus_index_files_missing", "Indexes that files of the table lack; they are being made.", |table| {
        table.missing_indexes
    }),
    ("helenus_table_memtable_bytes", "Bytes of the table in memory.", |table| table.memtable_bytes),
    (
        "helenus_table_filter_index_bytes",
        "Bytes of filters and indexes by key in the files of the table.",
        |table| table.filter_index_bytes,
    ),
    (
        "helenus_table_resident_bytes",
        "Memory of filters, indexes by key and range tombstones of the files of the table.",
        |table| table.resident_bytes,
    ),
    ("helenus_table_row_versions", "Rows in memory and files, each version counted.", |table| {
        table.row_versions
    }),
    ("helenus_table_partition_versions", "Partitions in memory and files, each version counted.", |table| {
        table.partition_versions
    }),
    ("helenus_table_tombstones", "Tombstones in memory and files.", |table| table.tombstones),
    ("helenus_table_damaged_files", "Files of the table of which at least a part cannot be read.", |table| {
        table.damaged_files
    }),
    (
        "helenus_table_pending_compactions",
        "Shards on which a compaction of the table is due, or waits after a failure.",
        |table| table.pending_compactions,
    ),
    (
        "helenus_table_failed_compactions",
        "Compactions of the table that have failed and will be tried again.",
        |table| table.failed_compactions.len() as u64,
    ),
];

/// A family of counters of a log of requests: its name, its help text, and its value.
type RequestLogFamily = (&'static str, &'static str, fn(&RequestLogReport) -> u64);

const REQUEST_LOG_COUNTERS: [RequestLogFamily; 3] = [
    ("helenus_request_log_written_total", "Records of the audit log or the full query log.", |report| {
        report.written
    }),
    (
        "helenus_request_log_dropped_total",
        "Such records that were lost: the queue was full, or the disk refused them.",
        |report| report.dropped,
    ),
    ("helenus_request_log_write_errors_total", "Attempts to write such records that failed.", |report| {
        report.write_errors
    }),
];

/// Renders all metrics of a node; the index of a shard in the list is its label.
pub fn render(shards: &[Arc<ShardMetrics>], engine: &EngineGauges) -> String {
    let mut text = Exposition::default();
    text.family("helenus_build_info", "gauge", "The version that runs; always 1.");
    text.sample("helenus_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    for (name, help, counter) in COUNTERS {
        text.family(name, "counter", help);
        for (index, shard) in shards.iter().enumerate() {
            text.sample(name, &[("shard", &index)], counter(shard).get());
        }
    }
    text.family("helenus_connections", "gauge", "Client connections that are open.");
    for (index, shard) in shards.iter().enumerate() {
        text.sample("helenus_connections", &[("shard", &index)], shard.connections.get());
    }
    text.family("helenus_hints_pending_bytes", "gauge", "Bytes of hints that wait.");
    for (index, shard) in shards.iter().enumerate() {
        text.sample("helenus_hints_pending_bytes", &[("shard", &index)], shard.hints_pending_bytes.get());
    }
    text.family(
        "helenus_request_duration_seconds",
        "histogram",
        "From the arrival of a request to its answer.",
    );
    for (index, shard) in shards.iter().enumerate() {
        text.histogram("helenus_request_duration_seconds", &[("shard", &index)], &shard.request_duration);
    }
    text.operations(shards);
    text.logins(shards);
    for (name, help, counter) in ADMIN_COUNTERS.into_iter().chain(INTERNODE_COUNTERS) {
        text.family(name, "counter", help);
        text.sample(name, &[], shards.iter().map(|shard| counter(shard).get()).sum::<u64>());
    }
    text.family("helenus_internode_links", "gauge", "Links with other nodes that are open.");
    let links = shards.iter().map(|shard| shard.internode.links.get()).sum::<i64>();
    text.sample("helenus_internode_links", &[], links);
    text.request_logs(&engine.request_logs);
    let help = "Of them those that are encrypted.";
    text.family("helenus_internode_encrypted_links", "gauge", help);
    let encrypted = shards.iter().map(|shard| shard.internode.encrypted_links.get()).sum::<i64>();
    text.sample("helenus_internode_encrypted_links", &[], encrypted);
    text.family("helenus_memtable_bytes", "gauge", "Bytes in all memtables.");
    text.sample("helenus_memtable_bytes", &[], engine.memtable_bytes);
    text.family("helenus_commit_log_bytes", "gauge", "Bytes of the commit log on disk.");
    text.sample("helenus_commit_log_bytes", &[], engine.commit_log_bytes);
    text.backup_store(&engine.backup_store);
    text.family(
        "helenus_commit_log_unarchived_segments",
        "gauge",
        "Complete segments of the commit log that wait for their copies in the archive.",
    );
    text.sample("helenus_commit_log_unarchived_segments", &[], engine.unarchived_log_segments);
    text.family(
        "helenus_commit_logs_without_room",
        "gauge",
        "Shards whose commit log waits for room on the disk.",
    );
    text.sample("helenus_commit_logs_without_room", &[], engine.commit_logs_without_room);
    text.family(
        "helenus_writes_refused_for_room_total",
        "counter",
        "Writes that were refused because the disk of this node or of replicas was full.",
    );
    let coordinated: u64 = shards.iter().map(|shard| shard.writes_refused_for_room.get()).sum();
    text.sample("helenus_writes_refused_for_room_total", &[], coordinated + engine.refused_writes);
    if let Some(disk) = &engine.disk {
        text.family(
            "helenus_disk_free_bytes",
            "gauge",
            "Bytes that are free on the disk of the data directory.",
        );
        text.sample("helenus_disk_free_bytes", &[], disk.free_bytes);
        text.family("helenus_disk_total_bytes", "gauge", "Size of the disk of the data directory.");
        text.sample("helenus_disk_total_bytes", &[], disk.total_bytes);
        text.family("helenus_disk_reserve_bytes", "gauge", "Bytes below which writes are refused.");
        text.sample("helenus_disk_reserve_bytes", &[], disk.reserve_bytes);
        text.family(
            "helenus_disk_reserve_reached",
            "gauge",
            "1 while writes are refused because less is free.",
        );
        text.sample("helenus_disk_reserve_reached", &[], u8::from(disk.is_reserve_reached));
    }
    for (name, help, counter) in COMPACTION_COUNTERS {
        text.family(name, "counter", help);
        text.sample(name, &[], counter(&engine.compactions));
    }
    text.write_waits(engine);
    if !engine.certificates.is_empty() {
        let help = "Seconds until the certificate of the node expires; negative afterwards.";
        text.family("helenus_certificate_expiry_seconds", "gauge", help);
        for (purpose, seconds) in &engine.certificates {
            text.sample("helenus_certificate_expiry_seconds", &[("use", purpose)], *seconds);
        }
    }
    if let Some(age_ms) = engine.roles_confirmed_ms {
        let help = "Time since the node last knew that its roles were the newest; +Inf: not since its start.";
        text.family("helenus_roles_confirmation_age_seconds", "gauge", help);
        let age = if age_ms == NEVER { "+Inf".to_owned() } else { (age_ms as f64 / 1_000.0).to_string() };
        text.sample("helenus_roles_confirmation_age_seconds", &[], age);
    }
    if let Some(lag_ms) = engine.view_lag_ms {
        let help = "The longest time since all that was acknowledged was in a view, of the slices that the node holds.";
        text.family("helenus_view_lag_seconds", "gauge", help);
        text.sample("helenus_view_lag_seconds", &[], lag_ms as f64 / 1_000.0);
    }
    text.family("helenus_unknown_tables", "gauge", "Tables that are kept and that the schema does not name.");
    text.sample("helenus_unknown_tables", &[], engine.unknown_tables);
    for (name, help, gauge) in TABLE_GAUGES {
        text.family(name, "gauge", help);
        for table in &engine.tables {
            text.sample(name, &[("keyspace", &table.keyspace), ("table", &table.table)], gauge(table));
        }
    }
    text.repairs(&engine.repairs);
    text.table_latencies(&engine.latencies);
    text.rate_limited(&engine.rate_limited);
    text.0
}

/// Text in the making. Writing to a `String` cannot fail, so results of `write!` are dropped here.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn backup_store(&mut self, counts: &BackupStoreCounts) {
        for (name, help, count) in [
            (
                "helenus_backup_store_uploaded_bytes_total",
                "Bytes sent to the store of uploads.",
                counts.uploaded_bytes,
            ),
            (
                "helenus_backup_store_downloaded_bytes_total",
                "Bytes got from the store of uploads.",
                counts.downloaded_bytes,
            ),
            (
                "helenus_backup_store_failures_total",
                "Uploads, downloads and removals that have failed.",
                counts.failed_operations,
            ),
        ] {
            self.family(name, "counter", help);
            self.sample(name, &[], count);
        }
    }

    fn request_logs(&mut self, logs: &[(&'static str, RequestLogReport)]) {
        for (name, help, value) in REQUEST_LOG_COUNTERS {
            self.family(name, "counter", help);
            for (log, report) in logs {
                self.sample(name, &[("log", log)], value(report));
            }
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, label_value)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"{}\"", escape(&label_value.to_string()));
        }
        let closing = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{closing} {value}");
    }

    fn write_waits(&mut self, engine: &EngineGauges) {
        let waits = &engine.write_waits;
        let name = "helenus_write_wait_seconds_total";
        self.family(name, "counter", "Time that writes were held up, summed over them.");
        for (reason, waited) in
            [("memory", waits.memory), ("compaction", waits.slowed), ("compaction_stop", waits.stopped)]
        {
            self.sample(name, &[("reason", &reason)], waited.as_secs_f64());
        }
        let name = "helenus_writes_refused_for_backlog_total";
        self.family(name, "counter", "Writes that were refused because compactions were far behind.");
        self.sample(name, &[], waits.refused);
        let name = "helenus_compaction_backlog_files";
        self.family(name, "gauge", "The most files of a table that overlap and wait for compaction.");
        self.sample(name, &[], engine.compaction_backlog_files);
        let name = "helenus_compaction_backlog_counted_files";
        self.family(
            name,
            "gauge",
            "The most files of a table that hold up writes because they wait for compaction.",
        );
        self.sample(name, &[], engine.counted_backlog_files);
    }

    fn table_latencies(&mut self, tables: &[TableLatencies]) {
        let name = "helenus_table_operation_duration_seconds";
        self.family(name, "summary", "From the arrival of a request to the table to its answer.");
        let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
        for TableLatencies { keyspace, table, latencies } in tables {
            let operations = [
                (Operation::Read, &latencies.read),
                (Operation::Scan, &latencies.scan),
                (Operation::Write, &latencies.write),
                (Operation::Conditional, &latencies.conditional),
            ];
            for (operation, latency) in operations.into_iter().filter(|(_, latency)| latency.count > 0) {
                let labels: [(&str, &dyn Display); 3] =
                    [("keyspace", keyspace), ("table", table), ("operation", &operation.name())];
                let quantiles = [("0.5", latency.p50_us), ("0.95", latency.p95_us), ("0.99", latency.p99_us)];
                for (quantile, bound_us) in quantiles {
                    self.sample(name, &[&labels[..], &[("quantile", &quantile)]].concat(), seconds(bound_us));
                }
                self.sample(&sum, &labels, seconds(latency.sum_us));
                self.sample(&count, &labels, latency.count);
            }
        }
    }

    fn rate_limited(&mut self, refused: &[RefusedRequests]) {
        let name = "helenus_table_rate_limited_requests_total";
        self.family(
            name,
            "counter",
            "Requests to the table that were refused because its partition, or the table, gets too many.",
        );
        for RefusedRequests { keyspace, table, limit, operation, count } in refused {
            let labels: [(&str, &dyn Display); 4] = [
                ("keyspace", keyspace),
                ("table", table),
                ("limit", limit),
                ("operation", &operation.name()),
            ];
            self.sample(name, &labels, count);
        }
    }

    fn repairs(&mut self, repairs: &[RepairedTable]) {
        let name = "helenus_table_unrepaired_seconds";
        self.family(
            name,
            "gauge",
            "Time since the oldest of the last repairs of the table's ranges on the node.",
        );
        for table in repairs {
            let labels: [(&str, &dyn Display); 2] = [("keyspace", &table.keyspace), ("table", &table.table)];
            self.sample(name, &labels, table.unrepaired_seconds);
        }
        let name = "helenus_tables_with_late_repair";
        self.family(name, "gauge", "Tables with ranges whose repair is late.");
        self.sample(name, &[], repairs.iter().filter(|table| table.is_late).count());
    }

    fn operations(&mut self, shards: &[Arc<ShardMetrics>]) {
        let name = "helenus_operation_duration_seconds";
        self.family(
            name,
            "histogram",
            "From the arrival of a request that reads or writes rows to its answer.",
        );
        for (index, shard) in shards.iter().enumerate() {
            for operation in Operation::ALL {
                let labels: [(&str, &dyn Display); 2] = [("shard", &index), ("operation", &operation.name())];
                self.histogram(name, &labels, &shard.operations[operation as usize]);
            }
        }
    }

    fn logins(&mut self, shards: &[Arc<ShardMetrics>]) {
        let name = "helenus_logins_total";
        self.family(name, "counter", "Attempts of clients to log in, by what came of them.");
        for result in LoginResult::ALL {
            let attempts = shards.iter().map(|shard| shard.logins[result as usize].get()).sum::<u64>();
            self.sample(name, &[("result", &result.name())], attempts);
        }
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &dyn Display)], histogram: &Histogram) {
        let snapshot = histogram.snapshot();
        let bucket = format!("{name}_bucket");
        for (bound_us, count) in snapshot.cumulative {
            self.sample(&bucket, &[labels, &[("le", &seconds(bound_us))]].concat(), count);
        }
        self.sample(&bucket, &[labels, &[("le", &"+Inf")]].concat(), snapshot.count);
        self.sample(&format!("{name}_sum"), labels, seconds(snapshot.sum_us));
        self.sample(&format!("{name}_count"), labels, snapshot.count);
    }
}

fn seconds(duration_us: u64) -> f64 {
    duration_us as f64 / 1e6
}

fn escape(label_value: &str) -> String {
    label_value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helenus_admin::reports::{CoordinatorLatencies, LatencyReport};

    use super::*;

    fn two_shards() -> Vec<Arc<ShardMetrics>> {
        let shards = vec![Arc::new(ShardMetrics::default()), Arc::new(ShardMetrics::default())];
        shards[0].requests.add(7);
        shards[1].errors.increment();
        shards[1].connections.increment();
        shards[0].request_duration.record(20);
        shards[0].request_duration.record(30_000_000);
        shards
    }

    #[test]
    fn each_shard_is_a_label_of_one_family() {
        let text = render(&two_shards(), &EngineGauges::default());
        let family = "# HELP helenus_requests_total Requests that arrived.\n# TYPE helenus_requests_total counter\n\
                      helenus_requests_total{shard=\"0\"} 7\nhelenus_requests_total{shard=\"1\"} 0\n";
        assert!(text.contains(family), "{text}");
        assert!(text.contains("helenus_errors_total{shard=\"1\"} 1\n"), "{text}");
        assert!(text.contains("helenus_connections{shard=\"1\"} 1\n"), "{text}");
    }

    #[test]
    fn durations_are_cumulative_and_in_seconds() {
        let text = render(&two_shards(), &EngineGauges::default());
        for line in [
            "helenus_request_duration_seconds_bucket{shard=\"0\",le=\"0.000016\"} 0",
            "helenus_request_duration_seconds_bucket{shard=\"0\",le=\"0.000024\"} 1",
            "helenus_request_duration_seconds_bucket{shard=\"0\",le=\"16.777216\"} 1",
            "helenus_request_duration_seconds_bucket{shard=\"0\",le=\"+Inf\"} 2",
            "helenus_request_duration_seconds_sum{shard=\"0\"} 30.00002",
            "helenus_request_duration_seconds_count{shard=\"0\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn internode_counts_are_those_of_the_node() {
        let shards = two_shards();
        shards[0].internode.calls.add(3);
        shards[1].internode.calls.add(4);
        shards[1].internode.links.increment();
        let text = render(&shards, &EngineGauges::default());
        assert!(text.contains("\nhelenus_internode_calls_total 7\n"), "{text}");
        assert!(text.contains("\nhelenus_internode_links 1\n"), "{text}");
    }

    #[test]
    fn gauges_of_tables_have_escaped_labels() {
        let table = TableReport {
            keyspace: "shop".to_owned(),
            table: "odd\\\"\nname".to_owned(),
            disk_bytes: 4096,
            ..TableReport::default()
        };
        let compactions = CompactionStatistics {
            failed: 3,
            duration: Duration::from_millis(1500),
            ..CompactionStatistics::default()
        };
        let disk = DiskGauges { free_bytes: 7, total_bytes: 8, reserve_bytes: 9, is_reserve_reached: true };
        let engine = EngineGauges {
            memtable_bytes: 5,
            commit_log_bytes: 6,
            unarchived_log_segments: 4,
            commit_logs_without_room: 2,
            disk: Some(disk),
            refused_writes: 11,
            compactions,
            write_waits: WriteWaits {
                slowed: Duration::from_millis(2500),
                refused: 3,
                ..WriteWaits::default()
            },
            compaction_backlog_files: 50,
            counted_backlog_files: 48,
            unknown_tables: 1,
            certificates: vec![("clients", 3_600)],
            roles_confirmed_ms: Some(1_500),
            view_lag_ms: None,
            request_logs: Vec::new(),
            backup_store: BackupStoreCounts {
                uploaded_bytes: 21,
                downloaded_bytes: 22,
                failed_operations: 23,
            },
            tables: vec![table],
            repairs: [(7, false), (900, true)]
                .map(|(unrepaired_seconds, is_late)| RepairedTable {
                    keyspace: "shop".to_owned(),
                    table: format!("t{unrepaired_seconds}"),
                    unrepaired_seconds,
                    is_late,
                    ..RepairedTable::default()
                })
                .to_vec(),
            latencies: vec![TableLatencies {
                keyspace: "shop".to_owned(),
                table: "t".to_owned(),
                latencies: CoordinatorLatencies {
                    read: LatencyReport { count: 2, sum_us: 40, p95_us: 24, ..LatencyReport::default() },
                    ..CoordinatorLatencies::default()
                },
            }],
            rate_limited: vec![RefusedRequests {
                keyspace: "shop".to_owned(),
                table: "t".to_owned(),
                limit: "partition",
                operation: Operation::Write,
                count: 12,
            }],
        };
        let text = render(&[], &engine);
        assert!(text.contains("helenus_memtable_bytes 5\n"), "{text}");
        assert!(text.contains("helenus_commit_log_bytes 6\n"), "{text}");
        let refused = r#"helenus_table_rate_limited_requests_total{keyspace="shop",table="t",limit="partition",operation="write"} 12"#;
        assert!(text.contains(refused), "{text}");
        assert!(text.contains("helenus_commit_log_unarchived_segments 4\n"), "{text}");
        assert!(text.contains("helenus_backup_store_uploaded_bytes_total 21\n"), "{text}");
        assert!(text.contains("helenus_backup_store_failures_total 23\n"), "{text}");
        assert!(text.contains("helenus_disk_free_bytes 7\n"), "{text}");
        assert!(text.contains("helenus_disk_reserve_reached 1\n"), "{text}");
        assert!(text.contains("helenus_certificate_expiry_seconds{use=\"clients\"} 3600\n"), "{text}");
        assert!(text.contains("helenus_roles_confirmation_age_seconds 1.5\n"), "{text}");
        assert!(text.contains("helenus_writes_refused_for_room_total 11\n"), "{text}");
        assert!(text.contains("helenus_compactions_failed_total 3\n"), "{text}");
        assert!(text.contains("helenus_compaction_seconds_total 1.5\n"), "{text}");
        assert!(text.contains("helenus_write_wait_seconds_total{reason=\"compaction\"} 2.5\n"), "{text}");
        assert!(text.contains("helenus_writes_refused_for_backlog_total 3\n"), "{text}");
        assert!(text.contains("helenus_compaction_backlog_files 50\n"), "{text}");
        assert!(text.contains("helenus_compaction_backlog_counted_files 48\n"), "{text}");
        assert!(
            text.contains("helenus_table_unrepaired_seconds{keyspace=\"shop\",table=\"t900\"} 900\n"),
            "{text}"
        );
        assert!(text.contains("helenus_tables_with_late_repair 1\n"), "{text}");
        let labels = r#"{keyspace="shop",table="t",operation="read""#;
        let name = "helenus_table_operation_duration_seconds";
        assert!(text.contains(&format!("{name}{labels},quantile=\"0.95\"}} 0.000024\n")), "{text}");
        assert!(text.contains(&format!("{name}_count{labels}}} 2\n")), "{text}");
        assert!(
            !text.contains(&format!("{name}{{keyspace=\"shop\",table=\"t\",operation=\"write\"")),
            "{text}"
        );
        let line = r#"helenus_table_disk_bytes{keyspace="shop",table="odd\\\"\nname"} 4096"#;
        assert!(text.lines().any(|l| l == line), "{text}");
    }

    #[test]
    fn roles_that_were_never_confirmed_are_infinitely_old() {
        let age = |roles_confirmed_ms| {
            let text = render(&[], &EngineGauges { roles_confirmed_ms, ..EngineGauges::default() });
            let line = text.lines().find(|line| line.starts_with("helenus_roles_confirmation_age_seconds"));
            line.map(str::to_owned)
        };
        assert_eq!(age(Some(NEVER)).as_deref(), Some("helenus_roles_confirmation_age_seconds +Inf"));
        assert_eq!(age(None), None);
    }

    #[test]
    fn every_sample_stands_below_the_type_of_its_family() {
        let text = render(&two_shards(), &EngineGauges::default());
        let mut family = "";
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split(' ').next().unwrap();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} below {family}");
            }
        }
        assert!(text.ends_with('\n'));
    }
}
