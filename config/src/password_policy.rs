//! The table of settings about passwords.

use std::io::Read;
use std::path::Path;

use helenus_roles::password_policy::{PasswordPolicy, PasswordRules};

use crate::error::ConfigError;
use crate::settings::Config;

const KEY: &str = "password_policy";
/// Bytes of a dictionary at most: it is held in memory.
const DICTIONARY_BYTES_MAX: u64 = 64 << 20;

impl Config {
    /// What new passwords must be like, with the words of the dictionary.
    pub fn password_rules(&self) -> Result<PasswordRules, ConfigError> {
        let policy = self.password_policy.clone();
        let Some(path) = self.dictionary() else { return Ok(PasswordRules::new(policy, String::new())) };
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(DICTIONARY_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| unusable(path, &error))?;
        if bytes.len() as u64 > DICTIONARY_BYTES_MAX {
            return Err(unusable(path, &TooLarge));
        }
        let words = String::from_utf8(bytes).map_err(|error| {
            let text = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            unusable(path, &NoUtf8 { line: text.split(|byte| *byte == b'\n').count() })
        })?;
        Ok(PasswordRules::new(policy, words))
    }

    /// Checks the policy, without reading the dictionary.
    pub(crate) fn check_password_policy(&self) -> Result<(), ConfigError> {
        if let Some(message) = self.password_policy.problem() {
            return Err(ConfigError::Value { key: KEY, message });
        }
        let Some(path) = self.dictionary() else { return Ok(()) };
        let metadata = std::fs::metadata(path).map_err(|error| unusable(path, &error))?;
        if metadata.len() > DICTIONARY_BYTES_MAX {
            return Err(unusable(path, &TooLarge));
        }
        Ok(())
    }

    /// The dictionary, if passwords are looked at or made.
    fn dictionary(&self) -> Option<&Path> {
        let PasswordPolicy { validator_class_name, generator_class_name, dictionary, .. } =
            &self.password_policy;
        let is_used = validator_class_name.is_some() || generator_class_name.is_some();
        dictionary.as_deref().filter(|_| is_used)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it is larger than {} MiB", DICTIONARY_BYTES_MAX >> 20)]
struct TooLarge;

#[derive(Debug, thiserror::Error)]
#[error("it is not UTF-8, in line {line}")]
struct NoUtf8 {
    line: usize,
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> ConfigError {
    ConfigError::Value { key: KEY, message: format!("cannot use the dictionary {}: {error}", path.display()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    #[test]
    fn a_dictionary_is_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "[password_policy]\nvalidator_class_name = \"CassandraPasswordValidator\"\ndictionary = {:?}",
            file.path()
        );
        let config = Config::from_toml(&text, Path::new("x.toml")).unwrap();
        std::fs::write(file.path(), "passwört\n").unwrap();
        config.password_rules().unwrap();
        // Latin 1.
        std::fs::write(file.path(), b"password\npassw\xf6rt\n").unwrap();
        config.validate().unwrap();
        let expected = format!(
            "setting 'password_policy': cannot use the dictionary {}: it is not UTF-8, in line 2",
            file.path().display()
        );
        assert_eq!(config.password_rules().unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_policy_has_cassandras_names() {
        let problem = |text: &str| {
            let text = format!("[password_policy]\n{text}");
            let config = match Config::from_toml(&text, Path::new("x.toml")) {
                Ok(config) => config,
                Err(error) => return Some(error.to_string()),
            };
            config.validate().err().map(|error| error.to_string())
        };
        assert_eq!(problem(""), None);
        assert_eq!(problem("validator_class_name = \"CassandraPasswordValidator\"\nlength_warn = 20"), None);
        let generator =
            "generator_class_name = \"org.apache.cassandra.db.guardrails.CassandraPasswordGenerator\"";
        assert_eq!(problem(generator), None);
        assert!(
            problem("length_fail = 12").unwrap().contains("length_warn of value 12"),
            "{:?}",
            problem("length_fail = 12")
        );
        assert!(problem("validator_class_name = \"Mine\"").unwrap().contains("Mine"));
        assert!(problem("length = 3").unwrap().contains("length"));
        assert_eq!(problem("dictionary = \"/no/such/file\""), None, "it is not used");
        let missing = problem(&format!("{generator}\ndictionary = \"/no/such/file\"")).unwrap();
        assert!(missing.contains("password_policy") && missing.contains("/no/such/file"), "{missing}");
    }
}
