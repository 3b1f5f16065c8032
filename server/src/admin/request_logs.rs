//! An operator's changes of the audit log and the full query log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use helenus_admin::reports::{RequestLog, RequestLogReport};
use helenus_audit::audit_log::AuditChange;
use helenus_audit::query_log::QueryLogChange;
use helenus_observe::{AdminError, RequestLogChange};

use crate::session::request_logs::RequestLogs;

/// Options by their names.
struct Options(BTreeMap<&'static str, String>);

impl Options {
    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn names(&mut self, name: &str) -> Option<BTreeSet<String>> {
        let text = self.text(name)?;
        Some(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, AdminError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = text.parse().map_err(|_| AdminError::Unknown(format!("'{name}' cannot be '{text}'")))?;
        Ok(Some(value))
    }

    /// Bytes, of which there are some.
    fn bytes<T: FromStr + Default + PartialEq>(&mut self, name: &str) -> Result<Option<T>, AdminError> {
        let value = self.value::<T>(name)?;
        match value {
            Some(bytes) if bytes == T::default() => {
                Err(AdminError::Unknown(format!("'{name}' must be above 0")))
            }
            value => Ok(value),
        }
    }
}

/// Changes a log, and returns its state.
pub(super) fn change(
    logs: &RequestLogs,
    log: RequestLog,
    change: RequestLogChange,
) -> Result<RequestLogReport, AdminError> {
    let changed = match (log, change) {
        (RequestLog::Audit, RequestLogChange::Enable(options)) => {
            let mut options = Options(options);
            logs.audit.enable(AuditChange {
                logger: options.text("logger"),
                included_keyspaces: options.names("included_keyspaces"),
                excluded_keyspaces: options.names("excluded_keyspaces"),
                included_categories: options.names("included_categories"),
                excluded_categories: options.names("excluded_categories"),
                included_users: options.names("included_users"),
                excluded_users: options.names("excluded_users"),
                roll_cycle: options.text("roll_cycle"),
                blocks: options.value("block")?,
                queue_bytes_max: options.bytes("max_queue_weight")?,
                log_bytes_max: options.bytes("max_log_size")?,
            })
        }
        (RequestLog::FullQuery, RequestLogChange::Enable(options)) => {
            let mut options = Options(options);
            logs.queries.enable(QueryLogChange {
                directory: options.text("path").map(PathBuf::from),
                roll_cycle: options.text("roll_cycle"),
                blocks: options.value("block")?,
                queue_bytes_max: options.bytes("max_queue_weight")?,
                log_bytes_max: options.bytes("max_log_size")?,
            })
        }
        (RequestLog::Audit, _) => {
            logs.audit.disable();
            Ok(())
        }
        (RequestLog::FullQuery, RequestLogChange::Disable) => {
            logs.queries.disable();
            Ok(())
        }
        (RequestLog::FullQuery, RequestLogChange::Reset) => logs.queries.reset(),
    };
    changed.map_err(|error| AdminError::Unknown(error.to_string()))?;
    Ok(logs.report(log))
}
