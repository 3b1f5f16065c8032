//! The `encryption` option of a table: whether its files are encrypted on every node, written as that of compression: `{'enabled': 'true'}`.
//!
//! Cipher and keys are a node's, not a table's (`[encryption_at_rest]`), so nothing else can be chosen, and ScyllaDB's
//! `scylla_encryption_options` are refused: they would be accepted without their effect.

use std::collections::BTreeMap;

use super::properties::Properties;
use crate::error::{RequestError, Result};

const ENABLED: &str = "enabled";
const SCYLLA_NAME: &str = "scylla_encryption_options";

/// Reads and checks the map of the option. An empty one turns encryption off.
pub(super) fn from_map(map: &BTreeMap<String, String>) -> Result<bool> {
    if let Some(unknown) = map.keys().find(|name| *name != ENABLED) {
        return Err(RequestError::Configuration(format!(
            "Invalid encryption sub-option '{unknown}': only '{ENABLED}' is allowed; keys and cipher are settings of each node"
        )));
    }
    match map.get(ENABLED).map(|text| text.to_lowercase()).as_deref() {
        Some("true") => Ok(true),
        None | Some("false") => Ok(false),
        Some(text) => Err(RequestError::Configuration(format!(
            "Invalid value '{text}' for encryption sub-option '{ENABLED}': use 'true' or 'false'"
        ))),
    }
}

/// The option of a table with encryption as `DESCRIBE` shows it.
pub fn enabled_map() -> BTreeMap<String, String> {
    BTreeMap::from([(ENABLED.to_owned(), "true".to_owned())])
}

/// Refuses ScyllaDB's option.
pub(super) fn refuse_scylla(properties: &Properties) -> Result<()> {
    if !properties.contains(SCYLLA_NAME) {
        return Ok(());
    }
    Err(RequestError::Configuration(format!(
        "{SCYLLA_NAME} is not supported: use encryption = {{'{ENABLED}': 'true'}}; keys and cipher are settings of each node (encryption_at_rest)"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::TableOptions;
    use super::super::properties::tests::{one_map, texts};

    #[test]
    fn encryption_is_turned_on_and_off_and_stays_otherwise() {
        let with = |entries: &[(&str, &str)]| one_map("encryption", entries);
        let (plain, _) = TableOptions::create(&texts(&[])).unwrap();
        assert!(!plain.is_encrypted);
        let encrypted = plain.alter(&with(&[("enabled", "True")])).unwrap();
        assert!(encrypted.is_encrypted);
        assert!(encrypted.alter(&texts(&[("comment", "x")])).unwrap().is_encrypted);
        assert!(!encrypted.alter(&with(&[("enabled", "false")])).unwrap().is_encrypted);
        assert!(!encrypted.alter(&with(&[])).unwrap().is_encrypted);
    }

    #[test]
    fn it_is_stored_only_where_it_is_on() {
        let stored = |entries| {
            let (options, _) = TableOptions::create(&one_map("encryption", entries)).unwrap();
            let json = serde_json::to_string(&options).unwrap();
            assert_eq!(serde_json::from_str::<TableOptions>(&json).unwrap(), options);
            json
        };
        assert!(stored(&[("enabled", "true")]).contains(r#""encryption":true"#));
        assert!(!stored(&[("enabled", "false")]).contains("encryption"));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let refusal = |name, entries| TableOptions::create(&one_map(name, entries)).unwrap_err().to_string();
        assert!(refusal("encryption", &[("enabled", "yes")]).contains("use 'true' or 'false'"));
        let cipher = [("enabled", "true"), ("cipher_algorithm", "AES/CBC/PKCS5Padding")];
        assert!(
            refusal("encryption", &cipher).starts_with("Invalid encryption sub-option 'cipher_algorithm'")
        );
        let scylla = "scylla_encryption_options";
        let told = refusal(scylla, &[("key_provider", "ReplicatedKeyProviderFactory")]);
        assert!(told.contains("not supported: use encryption = {'enabled': 'true'}"), "{told}");
        let (options, _) = TableOptions::create(&texts(&[])).unwrap();
        assert_eq!(
            options.alter(&one_map(scylla, &[("key_provider", "none")])).unwrap_err().to_string(),
            told
        );
    }
}
