//! Guardrails while the node runs: as they are, and their changes until its next start.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_config::{Config, GuardrailError, guardrail_settings};
use helenus_guardrails::NodeGuardrails;
use helenus_observe::AdminError;
use tokio::sync::Mutex;

use super::NodeAdmin;

/// The settings with the guardrails as they are now; `None`: those of the start. One change at a time.
#[derive(Debug, Default)]
pub struct PresentGuardrails(Mutex<Option<Arc<Config>>>);

impl PresentGuardrails {
    fn of(admin: &NodeAdmin) -> &Self {
        admin.node.layers.get()
    }

    /// By the names of their settings, as JSON; null where one is not set.
    pub async fn values(admin: &NodeAdmin) -> Result<BTreeMap<String, serde_json::Value>, AdminError> {
        let present = Self::of(admin).0.lock().await.clone();
        let settings = serde_json::to_value(present.as_deref().unwrap_or(&admin.node.config))
            .map_err(|error| AdminError::Failed(error.to_string()))?;
        let value = |name: &str| (name.to_owned(), settings.get(name).cloned().unwrap_or_default());
        Ok(guardrail_settings().map(value).collect())
    }

    /// Changes one on all shards.
    pub async fn change(admin: &NodeAdmin, name: &str, values: &[String]) -> Result<(), AdminError> {
        let mut present = Self::of(admin).0.lock().await;
        let changed = present.as_deref().unwrap_or(&admin.node.config).with_guardrail(name, values);
        // None of these began anything.
        let changed = changed.map_err(|error: GuardrailError| AdminError::Unknown(error.to_string()))?;
        let guardrails = changed.guardrails().map_err(|error| AdminError::Failed(error.to_string()))?;
        let guardrails = NodeGuardrails::from(guardrails);
        *present = Some(Arc::new(changed));
        admin
            .on_every_shard(move |context| {
                context.install_guardrails(guardrails.clone());
                Box::pin(std::future::ready(Ok(())))
            })
            .await
            .map(drop)
    }
}
