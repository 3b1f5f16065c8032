//! The settings of the node as a view, and their change while it runs.

use helenus_config::guardrail_settings;
use helenus_observe::{Admin, AdminError, Controls, DenylistSetting, SettingChange};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::virtual_tables::RowWriter;

use super::source::{Views, refused};
use crate::admin::NodeAdmin;
use crate::admin::guardrails::PresentGuardrails;

const COMPACTION_RATE: &str = "compaction_bytes_per_second";
const STREAM_RATE: &str = "stream_throughput_bytes_per_second";
const HINT_RATE: &str = "hinted_handoff_throttle_bytes_per_second";
const KEEPS_HINTS: &str = "hinted_handoff_enabled";
const LOG_FILTER: &str = "log_filter";
/// What operators can change and `helenus.toml` does not have.
const DELIVERS_HINTS: &str = "hint_delivery";
const TRACE_PROBABILITY: &str = "trace_probability";

/// All settings. Those that were changed while the node runs have their present values.
pub async fn settings(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let present = views.admin.settings().await?;
    let compactions = views.admin.compactions().await?;
    let mut rows = views.admin.node.information.settings.clone();
    let mut set = |name: &str, value: String| {
        rows.retain(|(known, _)| known != name);
        rows.push((name.to_owned(), value));
    };
    set(COMPACTION_RATE, compactions.bytes_per_second.unwrap_or(0).to_string());
    set(STREAM_RATE, present.stream_throughput_bytes_per_second.to_string());
    set(HINT_RATE, present.hinted_handoff_throttle_bytes_per_second.to_string());
    set(KEEPS_HINTS, present.hinted_handoff.to_string());
    set(DELIVERS_HINTS, present.hint_delivery.to_string());
    set(TRACE_PROBABILITY, present.trace_probability.to_string());
    set("partition_denylist_enabled", present.partition_denylist_enabled.to_string());
    set("denylist_writes_enabled", present.denylist_writes_enabled.to_string());
    set("denylist_reads_enabled", present.denylist_reads_enabled.to_string());
    set("denylist_range_reads_enabled", present.denylist_range_reads_enabled.to_string());
    set("denylist_max_keys_per_table", present.denylist_max_keys_per_table.to_string());
    set("denylist_max_keys_total", present.denylist_max_keys_total.to_string());
    if !present.log_filter.is_empty() {
        set(LOG_FILTER, present.log_filter);
    }
    for (name, value) in PresentGuardrails::values(&views.admin).await? {
        rows.retain(|(known, _)| *known != name);
        // One that is not set has no row, as other settings.
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => rows.push((name, text)),
            value => rows.push((name, value.to_string())),
        }
    }
    for (name, value) in rows {
        writer.row().set("name", name).set("value", value);
    }
    Ok(())
}

fn invalid(name: &str, reason: &str) -> RequestError {
    RequestError::invalid(format!("Invalid update request for property '{name}'. {reason}"))
}

/// Changes a setting until the next start of the node.
pub async fn change(admin: &NodeAdmin, name: &str, value: Option<String>) -> Result<()> {
    let Some(value) = value else {
        return Err(RequestError::invalid(format!(
            "Unable to clear property '{name}': it has to have a value"
        )));
    };
    let rate = || {
        let reason = format!("'{value}' is no number of bytes a second");
        value.parse::<u64>().map_err(|_| invalid(name, &reason))
    };
    let flag = || {
        value
            .to_ascii_lowercase()
            .parse::<bool>()
            .map_err(|_| invalid(name, &format!("'{value}' is neither true nor false")))
    };
    let change = match name {
        COMPACTION_RATE => {
            let rate = rate()?;
            return admin.set_compaction_rate((rate > 0).then_some(rate)).await.map_err(refused);
        }
        STREAM_RATE => SettingChange::StreamThroughput(rate()?),
        HINT_RATE => SettingChange::HintedHandoffThrottle(rate()?),
        KEEPS_HINTS => SettingChange::HintedHandoff(flag()?),
        DELIVERS_HINTS => SettingChange::HintDelivery(flag()?),
        TRACE_PROBABILITY => match value.parse::<f64>() {
            Ok(probability) if (0.0..=1.0).contains(&probability) => {
                SettingChange::TraceProbability(probability)
            }
            _ => return Err(invalid(name, &format!("'{value}' is no number from 0 to 1"))),
        },
        LOG_FILTER => return Err(invalid(name, "Levels are changed one by one, by 'setlogginglevel'")),
        _ if DenylistSetting::NAMES.contains(&name) => {
            let setting = DenylistSetting::parse(name, &value.to_ascii_lowercase());
            SettingChange::Denylist(setting.map_err(|reason| invalid(name, &reason))?)
        }
        _ if guardrail_settings().any(|known| known == name) => {
            return Err(invalid(name, "Guardrails are changed by 'setguardrailsconfig'"));
        }
        _ if admin.node.information.settings.iter().any(|(known, _)| known == name) => {
            return Err(invalid(name, "It can be changed only by a restart of the node"));
        }
        _ => return Err(invalid(name, &format!("There is no setting '{name}'"))),
    };
    admin.change_setting(change).await.map(drop).map_err(refused)
}

/// Facts about the program and its machine. There is no Java virtual machine here, so none of its properties.
pub fn system_properties(views: &Views, writer: &mut RowWriter<'_>) {
    let node = &views.admin.node;
    for (name, value) in [
        ("helenus.shards", node.shard_count().to_string()),
        ("helenus.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os.arch", std::env::consts::ARCH.to_owned()),
        ("os.name", std::env::consts::OS.to_owned()),
    ] {
        writer.row().set("name", name).set("value", value);
    }
}
