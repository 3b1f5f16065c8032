//! Where a store is, and how it is reached.

use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// Whether this program can reach stores that speak the protocol of S3.
pub const HAS_S3: bool = cfg!(feature = "s3");
/// The longest secret access key.
const SECRET_BYTES_MAX: u64 = 4 << 10;

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    Directory(PathBuf),
    S3 {
        bucket: String,
        /// What the names of all objects begin with: empty, or with a `/` at its end.
        prefix: String,
    },
}

impl StoreAddress {
    /// Reads an absolute path, `file:///PATH` or `s3://BUCKET/PREFIX`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(rest) = text.strip_prefix("s3://") {
            if !HAS_S3 {
                return Err("this program was built without the feature `s3`, which s3:// addresses need");
            }
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let is_name = |name: &str| {
                !name.is_empty()
                    && !name.starts_with('.')
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte))
            };
            if !is_name(bucket) {
                return Err("a bucket is expected: s3://BUCKET, or s3://BUCKET/PREFIX");
            }
            let prefix = prefix.trim_end_matches('/');
            if !prefix.is_empty() && !prefix.split('/').all(is_name) {
                return Err(
                    "the parts of a prefix have letters, digits, '-', '_', '.' and '=' only, and begin with no dot",
                );
            }
            let end = if prefix.is_empty() { "" } else { "/" };
            return Ok(Self::S3 { bucket: bucket.to_owned(), prefix: format!("{prefix}{end}") });
        }
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.contains("://") {
            return Err("it is neither a directory nor an address with s3://");
        }
        if !Path::new(path).is_absolute() {
            return Err("a directory must be an absolute path, or a file:/// address");
        }
        Ok(Self::Directory(PathBuf::from(path)))
    }
}

/// What is known of a store before it is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreOptions {
    pub address: String,
    /// Of a store that is not AWS: `https://HOST:PORT`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    /// The file whose contents are the secret access key.
    pub secret_access_key_file: Option<PathBuf>,
}

impl StoreOptions {
    /// The secret access key, if there is a file with it.
    #[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "only S3 has keys"))]
    pub(crate) fn secret(&self) -> Result<Option<String>, StoreError> {
        let Some(path) = &self.secret_access_key_file else { return Ok(None) };
        let refused = |reason: String| StoreError::Secret { path: path.clone(), reason };
        let length = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
        if length > SECRET_BYTES_MAX {
            return Err(refused(format!("it has {length} bytes, above the limit of {SECRET_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        match text.trim() {
            "" => Err(refused("it is empty".to_owned())),
            secret => Ok(Some(secret.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_absolute() {
        let directory = |path: &str| Ok(StoreAddress::Directory(PathBuf::from(path)));
        assert_eq!(StoreAddress::parse("/backups/a b"), directory("/backups/a b"));
        assert_eq!(StoreAddress::parse("file:///backups"), directory("/backups"));
        for text in ["", "backups", "file://backups", "http://x/y", "gs://x"] {
            assert!(StoreAddress::parse(text).is_err(), "{text}");
        }
    }

    #[cfg(feature = "s3")]
    #[test]
    fn a_bucket_may_have_a_prefix() {
        let s3 = |bucket: &str, prefix: &str| {
            Ok(StoreAddress::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        assert_eq!(StoreAddress::parse("s3://b"), s3("b", ""));
        assert_eq!(StoreAddress::parse("s3://b/"), s3("b", ""));
        assert_eq!(StoreAddress::parse("s3://b/c/d/"), s3("b", "c/d/"));
        for text in ["s3://", "s3:///c", "s3://b/../c", "s3://b//c", "s3://b c"] {
            assert!(StoreAddress::parse(text).is_err(), "{text}");
        }
    }

    #[cfg(not(feature = "s3"))]
    #[test]
    fn the_missing_feature_is_named() {
        assert!(StoreAddress::parse("s3://b").unwrap_err().contains("without the feature `s3`"));
    }

    #[test]
    fn a_file_has_the_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let options = StoreOptions { secret_access_key_file: Some(path.clone()), ..StoreOptions::default() };
        assert!(
            options.secret().unwrap_err().to_string().contains("with the secret access key cannot be used")
        );
        std::fs::write(&path, " \n").unwrap();
        assert!(options.secret().unwrap_err().to_string().contains("it is empty"));
        std::fs::write(&path, "key\n").unwrap();
        assert_eq!(options.secret().unwrap().as_deref(), Some("key"));
        assert_eq!(StoreOptions::default().secret().unwrap(), None);
    }
}
