//! The master keys. They wrap the keys of files and encrypt nothing else.
//!
//! Their text has a line `NAME BASE64` for each key of 256 bits. The last one is the current one: new files are wrapped by it. The others are
//! there to read older files. Empty lines and lines that begin with `#` mean nothing.
//!
//! A name stays with its key: when the keys are read again, a key of a known name must be the same.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use helenus_io::broken;

use crate::error::KeyError;
use crate::source::KeySource;

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// A secret of 256 bits. It is overwritten when it is dropped.
pub(crate) type Secret = Zeroizing<[u8; KEY_BYTES]>;

/// A master key with its name.
#[derive(Clone)]
pub(crate) struct MasterKey {
    pub(crate) id: String,
    pub(crate) secret: Secret,
}

/// The secret is not printed.
impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MasterKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The master keys of a node. Clones share them.
#[derive(Debug, Clone)]
pub struct MasterKeys {
    /// Never empty. The last one is the current one.
    keys: Arc<RwLock<Arc<Vec<MasterKey>>>>,
}

impl MasterKeys {
    /// Reads the keys.
    pub fn open(source: &KeySource) -> Result<Self, KeyError> {
        Self::parse(&source.text()?)
    }

    /// The keys of a text.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        Ok(Self { keys: Arc::new(RwLock::new(Arc::new(parse(text)?))) })
    }

    /// Reads the keys again, and uses them from now on. After an error the former ones stay in use.
    pub fn reload(&self, source: &KeySource) -> Result<(), KeyError> {
        let keys = parse(&source.text()?)?;
        let mut present = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for key in &keys {
            if present.iter().any(|known| known.id == key.id && known.secret != key.secret) {
                return Err(KeyError::Changed { id: key.id.clone() });
            }
        }
        *present = Arc::new(keys);
        Ok(())
    }

    /// The names of the keys. The last one is the current one.
    pub fn ids(&self) -> Vec<String> {
        self.all().iter().map(|key| key.id.clone()).collect()
    }

    fn all(&self) -> Arc<Vec<MasterKey>> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key for new files.
    pub(crate) fn current(&self) -> Result<MasterKey, KeyError> {
        self.all().last().cloned().ok_or_else(|| broken!("there is a current master key").into())
    }

    pub(crate) fn find(&self, id: &str) -> Option<MasterKey> {
        self.all().iter().find(|key| key.id == id).cloned()
    }
}

fn parse(text: &[u8]) -> Result<Vec<MasterKey>, KeyError> {
    let mut keys: Vec<MasterKey> = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let refused = |reason| KeyError::Line { line: index + 1, reason };
        let line = str::from_utf8(line).map_err(|_| refused("not UTF-8"))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((id, encoded)) = line.split_once(char::is_whitespace) else {
            return Err(refused("not of the form NAME BASE64"));
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if id.len() > NAME_BYTES_MAX || !id.bytes().all(is_name) {
            return Err(refused("a name has at most 64 letters, digits, dots, hyphens and underscores"));
        }
        let decoded =
            Zeroizing::new(STANDARD.decode(encoded.trim()).map_err(|_| refused("the key is not in base64"))?);
        let secret: [u8; KEY_BYTES] =
            decoded.as_slice().try_into().map_err(|_| refused("a key has 32 bytes (256 bits)"))?;
        if keys.iter().any(|key| key.id == id) {
            return Err(KeyError::Twice { id: id.to_owned() });
        }
        keys.push(MasterKey { id: id.to_owned(), secret: Zeroizing::new(secret) });
    }
    if keys.is_empty() { Err(KeyError::None) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "one AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const TWO: &str = "two AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn the_last_key_is_the_current_one() {
        let keys = MasterKeys::parse(format!("# keys\n{ONE}\n\n{TWO}\n").as_bytes()).unwrap();
        assert_eq!(keys.ids(), ["one", "two"]);
        assert_eq!(keys.current().unwrap().id, "two");
        assert_eq!(*keys.find("one").unwrap().secret, [0; 32]);
        assert!(keys.find("three").is_none());
        let printed = format!("{keys:?}");
        assert!(!printed.contains("secret") && !printed.contains('0'), "no secret is printed: {printed}");
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_line_and_without_its_contents() {
        let refusal = |text: &str| MasterKeys::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refusal(""), "there is no master key");
        assert!(refusal(&format!("{ONE}\nsecret")).starts_with("line 2 "));
        assert!(!refusal("secret").contains("secret"));
        assert!(refusal("a AAAA").contains("32 bytes"));
        assert!(refusal("a !").contains("base64"));
        assert!(refusal(&ONE.replace("one", "ö")).contains("a name has"));
        assert!(refusal(&format!("{ONE}\n{ONE}")).contains("two master keys"));
    }

    #[test]
    fn keys_are_read_again_and_former_ones_stay_after_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let source = KeySource::File(path.clone());
        std::fs::write(&path, ONE).unwrap();
        let keys = MasterKeys::open(&source).unwrap();
        std::fs::write(&path, format!("{ONE}\n{TWO}")).unwrap();
        keys.reload(&source).unwrap();
        assert_eq!(keys.current().unwrap().id, "two");
        std::fs::write(&path, TWO.replace("two", "one")).unwrap();
        assert!(matches!(keys.reload(&source), Err(KeyError::Changed { .. })));
        assert_eq!(keys.ids(), ["one", "two"], "the former ones stay");
    }
}
