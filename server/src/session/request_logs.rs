//! The audit log and the full query log of a node.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use helenus_admin::reports::{RequestLog, RequestLogReport};
use helenus_audit::audit_log::{AuditChange, AuditLog, LogError};
use helenus_audit::query_log::{QueryLog, QueryLogChange};
use helenus_audit::sink::Counts;
use helenus_config::{Config, ConfigError};
use helenus_execution::shard::context::NodeShared;

/// How long the end of a node waits for each log.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// The logs of a node about the requests of its clients.
#[derive(Debug)]
pub struct RequestLogs {
    pub audit: AuditLog,
    pub queries: QueryLog,
    /// Whether bound values are audited.
    shows_values: bool,
}

impl RequestLogs {
    /// Logs that are off. `host`: the address of the node for others.
    pub fn new(config: &Config, host: SocketAddr) -> Result<Self, ConfigError> {
        Ok(Self {
            audit: AuditLog::new(config.audit_log()?, host),
            queries: QueryLog::new(config.full_query_log()?),
            shows_values: config.audit_logging_bound_values,
        })
    }

    /// Those of a node.
    pub fn of(node: &NodeShared) -> &Arc<Self> {
        node.layers.get()
    }

    /// Begins those that the settings ask for.
    pub fn start(&self, config: &Config) -> Result<(), LogError> {
        if config.audit_logging_enabled {
            self.audit.enable(AuditChange::default())?;
        }
        if config.full_query_logging_enabled {
            self.queries.enable(QueryLogChange::default())?;
        }
        Ok(())
    }

    /// Ends both, with what is queued.
    pub fn stop(&self) {
        self.audit.stop(STOP_WAIT);
        self.queries.stop(STOP_WAIT);
    }

    /// Whether bound values are audited.
    pub fn shows_values(&self) -> bool {
        self.shows_values
    }

    /// Whether requests are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.audit.is_on() || self.queries.is_on()
    }

    /// Whether requests should wait for room.
    #[inline]
    pub fn hold_requests(&self) -> bool {
        self.is_on() && (self.audit.holds_requests() || self.queries.holds_requests())
    }

    /// Resolves when requests need not wait.
    pub async fn admit_requests(&self) {
        self.audit.admits_requests().await;
        self.queries.admits_requests().await;
    }

    /// The state of one of them.
    pub fn report(&self, log: RequestLog) -> RequestLogReport {
        let text = |text: &dyn ToString| text.to_string();
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match log {
            RequestLog::Audit => {
                let (options, filters) = (self.audit.options(), self.audit.options().filters);
                let shown = [
                    ("logger", options.logger.name().to_owned()),
                    ("audit_logs_dir", text(&options.rotation.directory.display())),
                    ("roll_cycle", options.rotation.cycle.name().to_owned()),
                    ("block", text(&options.blocks)),
                    ("max_log_size", text(&options.rotation.log_bytes_max)),
                    ("max_queue_weight", text(&options.queue_bytes_max)),
                    ("included_keyspaces", list(&filters.included_keyspaces)),
                    ("excluded_keyspaces", list(&filters.excluded_keyspaces)),
                    ("included_categories", list(&filters.included_categories)),
                    ("excluded_categories", list(&filters.excluded_categories)),
                    ("included_users", list(&filters.included_users)),
                    ("excluded_users", list(&filters.excluded_users)),
                ];
                report(self.audit.is_on(), shown, &self.audit.counts)
            }
            RequestLog::FullQuery => {
                let options = self.queries.options();
                let shown = [
                    ("log_dir", text(&options.rotation.directory.display())),
                    ("roll_cycle", options.rotation.cycle.name().to_owned()),
                    ("block", text(&options.blocks)),
                    ("max_log_size", text(&options.rotation.log_bytes_max)),
                    ("max_queue_weight", text(&options.queue_bytes_max)),
                ];
                report(self.queries.is_on(), shown, &self.queries.counts)
            }
        }
    }
}

fn report<const COUNT: usize>(
    enabled: bool,
    options: [(&str, String); COUNT],
    counts: &Counts,
) -> RequestLogReport {
    RequestLogReport {
        enabled,
        options: options.map(|(name, value)| (name.to_owned(), value)).into(),
        written: counts.written.load(Relaxed),
        dropped: counts.dropped.load(Relaxed),
        write_errors: counts.write_errors.load(Relaxed),
    }
}
