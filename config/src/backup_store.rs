//! The table of settings about the store of uploaded snapshots.

use std::path::PathBuf;

use helenus_backup_store::{StoreAddress, StoreOptions};
use serde::{Deserialize, Serialize};

/// The most files that move at a time.
const PARALLEL_MAX: usize = 64;
/// The largest rate: a terabyte a second.
const RATE_MAX_MIB: u64 = 1 << 20;

/// Where snapshots are uploaded to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackupStore {
    /// A directory, or `s3://BUCKET/PREFIX`. Without one nothing is uploaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Of a store that is not AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<String>,
    /// The file that has the secret access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_access_key_file: Option<PathBuf>,
    /// What may be moved in a second; 0: no limit.
    pub throughput_mib_per_s: u64,
    /// Files that move at a time.
    pub parallel_transfers: usize,
}

impl Default for BackupStore {
    fn default() -> Self {
        Self {
            address: None,
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key_file: None,
            throughput_mib_per_s: 64,
            parallel_transfers: 4,
        }
    }
}

impl BackupStore {
    /// An example of every part.
    pub(crate) fn example() -> Self {
        Self {
            address: Some("s3://backups/helenus".to_owned()),
            endpoint: Some("https://s3.example:9000".to_owned()),
            region: Some("eu-central-1".to_owned()),
            access_key_id: Some("helenus".to_owned()),
            secret_access_key_file: Some(PathBuf::from("/etc/helenus/backup-secret")),
            ..Self::default()
        }
    }

    /// How the store is opened; `None`: there is none.
    pub fn options(&self) -> Option<StoreOptions> {
        Some(StoreOptions {
            address: self.address.clone()?,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            access_key_id: self.access_key_id.clone(),
            secret_access_key_file: self.secret_access_key_file.clone(),
        })
    }

    /// The bytes that may be moved in a second; `None`: no limit.
    pub fn bytes_per_second(&self) -> Option<u64> {
        Some(self.throughput_mib_per_s << 20).filter(|rate| *rate > 0)
    }

    /// What is missing or too much.
    pub(crate) fn problem(&self) -> Option<String> {
        let of_s3 = [
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("access_key_id", self.access_key_id.is_some()),
            ("secret_access_key_file", self.secret_access_key_file.is_some()),
        ];
        let given = of_s3.iter().find(|(_, is_given)| *is_given).map(|(name, _)| name);
        let needs_s3 = |name| format!("has `{name}`, which an `address` with s3:// needs alone");
        match self.address.as_deref().map(|address| (address, StoreAddress::parse(address))) {
            None => given.map(needs_s3),
            Some((address, Err(reason))) => {
                Some(format!("has an `address`, '{address}', that cannot be used: {reason}"))
            }
            Some((_, Ok(StoreAddress::Directory(_)))) if given.is_some() => given.map(needs_s3),
            Some((_, Ok(_))) => None,
        }
        .or_else(|| {
            let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
            (!self.endpoint.as_ref().is_none_or(is_url))
                .then(|| "needs an `endpoint` that begins with http:// or https://".to_owned())
        })
        .or_else(|| {
            (self.access_key_id.is_some() != self.secret_access_key_file.is_some())
                .then(|| "needs `access_key_id` and `secret_access_key_file` together, or neither".to_owned())
        })
        .or_else(|| {
            (!(1..=PARALLEL_MAX).contains(&self.parallel_transfers))
                .then(|| format!("needs `parallel_transfers` from 1 to {PARALLEL_MAX}"))
        })
        .or_else(|| {
            (self.throughput_mib_per_s > RATE_MAX_MIB)
                .then(|| format!("needs a `throughput_mib_per_s` up to {RATE_MAX_MIB}; 0 is no limit"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helenus_backup_store::HAS_S3;

    use crate::Config;

    #[test]
    fn what_does_not_go_together_is_refused() {
        let problem = |text: &str| {
            let text = format!("[backup_store]\n{text}");
            let config = Config::from_toml(&text, Path::new("x.toml")).unwrap();
            config.validate().err().map(|error| error.to_string())
        };
        assert_eq!(problem(""), None);
        assert_eq!(problem("address = '/backups'\nthroughput_mib_per_s = 0"), None);
        assert_eq!(problem("address = 'file:///backups'\nparallel_transfers = 64"), None);
        for (text, message) in [
            ("address = 'backups'", "'backups', that cannot be used: a directory must be an absolute path"),
            ("address = 'gs://b'", "neither a directory nor an address with s3://"),
            ("region = 'x'", "has `region`, which"),
            ("address = '/b'\naccess_key_id = 'x'", "has `access_key_id`, which"),
            ("parallel_transfers = 0", "needs `parallel_transfers` from 1 to 64"),
            ("throughput_mib_per_s = 2000000", "needs a `throughput_mib_per_s` up to"),
        ] {
            let error = problem(text).unwrap();
            assert!(error.starts_with("setting 'backup_store': ") && error.contains(message), "{error}");
        }
        let s3 = "address = 's3://b/c'";
        if HAS_S3 {
            assert_eq!(problem(s3), None);
            let url = problem(&format!("{s3}\nendpoint = 'x:9'")).unwrap();
            assert!(url.contains("begins with http://"), "{url}");
            let key = problem(&format!("{s3}\naccess_key_id = 'x'")).unwrap();
            assert!(key.contains("together, or neither"), "{key}");
        } else {
            assert!(problem(s3).unwrap().contains("without the feature `s3`"));
        }
    }
}
