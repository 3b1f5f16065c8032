//! Digests that stand for credentials.
//!
//! Invariant: a digest tells nothing about a password to those who do not have the key, which lives as long as the process.

use helenus_roles::password::PasswordError;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a key: a block of SHA-256.
const KEY_BYTES: usize = 64;

/// Stands for a role, its stored hash and a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// Makes digests.
pub struct DigestKey(Hmac<Sha256>);

impl DigestKey {
    /// A key by chance.
    pub fn random() -> Result<Self, PasswordError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| PasswordError::Failed(error.to_string()))?;
        Ok(Self::new(bytes))
    }

    fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let mut key = <Hmac<Sha256> as Mac>::new(&bytes.into());
        key.update(b"helenus credentials");
        Self(key)
    }

    pub fn digest(&self, role: &str, hash: &str, password: &str) -> Digest {
        let mut digest = self.0.clone();
        for part in [role, hash, password] {
            digest.update(&(part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        Digest(digest.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_credentials_counts() {
        let key = DigestKey::new([7; KEY_BYTES]);
        let digest = key.digest("ann", "hash", "secret");
        assert_eq!(digest, key.digest("ann", "hash", "secret"));
        for (role, hash, password) in [
            ("ann", "hash", "secret2"),
            ("ann", "hash2", "secret"),
            ("an", "nhash", "secret"),
            ("bob", "hash", "secret"),
        ] {
            assert_ne!(digest, key.digest(role, hash, password));
        }
        assert_ne!(digest, DigestKey::new([8; KEY_BYTES]).digest("ann", "hash", "secret"));
    }
}
