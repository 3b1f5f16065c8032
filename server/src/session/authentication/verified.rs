//! Credentials that were verified lately.
//!
//! Invariants:
//! * No password is kept, only a digest with a key that lives as long as the process.
//! * The digest covers the stored hash: after a change of the password nothing is found any more.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use helenus_passwords::digest::Digest;

/// As many as Cassandra remembers.
const ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// Digests of verified credentials, each for a while.
#[derive(Debug)]
pub struct Verified {
    /// With the monotonic time of their end.
    entries: LruCache<Digest, Duration>,
}

impl Default for Verified {
    fn default() -> Self {
        Self { entries: LruCache::new(ENTRIES_MAX) }
    }
}

impl Verified {
    /// Whether the credentials were verified, and are not forgotten. `now`: monotonic time.
    pub fn holds(&mut self, digest: Digest, now: Duration) -> bool {
        let holds = self.entries.get(&digest).is_some_and(|until| now < *until);
        if !holds {
            self.entries.pop(&digest);
        }
        holds
    }

    pub fn remember(&mut self, digest: Digest, until: Duration) {
        self.entries.put(digest, until);
    }
}

#[cfg(test)]
mod tests {
    use helenus_passwords::digest::DigestKey;

    use super::*;

    #[test]
    fn verified_credentials_are_forgotten_after_a_while() {
        let mut verified = Verified::default();
        let key = DigestKey::random().unwrap();
        let digest = key.digest("ann", "hash", "secret");
        let seconds = Duration::from_secs;
        assert!(!verified.holds(digest, seconds(1)));
        verified.remember(digest, seconds(3));
        assert!(verified.holds(digest, seconds(2)));
        assert!(!verified.holds(key.digest("ann", "hash2", "secret"), seconds(2)));
        assert!(!verified.holds(digest, seconds(3)));
        for number in 0..2_000 {
            verified.remember(key.digest("ann", "hash", &number.to_string()), seconds(9));
        }
        assert_eq!(verified.entries.len(), ENTRIES_MAX.get());
    }
}
