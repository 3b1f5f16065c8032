//! The table of settings about passwords.

use std::io::Read;

use helenus_roles::password_policy::PasswordRules;

use crate::error::ConfigError;
use crate::settings::Config;

const KEY: &str = "password_policy";
/// Bytes of a dictionary at most: it is held in memory.
const DICTIONARY_BYTES_MAX: u64 = 64 << 20;

impl Config {
    /// What new passwords must be like, with the words of the dictionary.
    pub fn password_rules(&self) -> Result<PasswordRules, ConfigError> {
        let policy = self.password_policy.clone();
        let Some(path) = &policy.dictionary else { return Ok(PasswordRules::new(policy, "")) };
        let failed = |message: String| ConfigError::Value {
            key: KEY,
            message: format!("cannot use the dictionary {}: {message}", path.display()),
        };
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut words = String::new();
        let read = file.take(DICTIONARY_BYTES_MAX + 1).read_to_string(&mut words);
        let bytes = read.map_err(|error| failed(error.to_string()))?;
        if bytes as u64 > DICTIONARY_BYTES_MAX {
            return Err(failed(format!("it is larger than {} MiB", DICTIONARY_BYTES_MAX >> 20)));
        }
        Ok(PasswordRules::new(policy, &words))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

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
        let missing = problem("dictionary = \"/no/such/file\"").unwrap();
        assert!(missing.contains("password_policy") && missing.contains("/no/such/file"), "{missing}");
    }
}
