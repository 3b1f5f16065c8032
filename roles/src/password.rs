//! Hashes of passwords.
//!
//! New hashes are bcrypt's, in the form `$2a$10$…` that Cassandra writes, so that roles can be taken from a Cassandra and to one. As in
//! Cassandra, bytes of a password after the 72nd have no effect.
//!
//! A hash takes some 50 ms of a processor and more with each cost: never compute one on the thread of a shard. Each attempt to log in computes
//! the hash of its role, so whoever sets a hash decides what attempts cost all who log in: more than the usual cost is for superusers.

use std::str::FromStr;

use bcrypt::{HashParts, Version};

/// Twice the work with each one more. As in Cassandra.
const COST: u32 = 10;
/// The least work that bcrypt has.
const COST_MIN: u32 = 4;
/// More would let a role take the threads of all logins for minutes.
const COST_MAX: u32 = 16;
/// The most that roles set that are no superusers.
const COST_MAX_OF_OTHERS: u32 = COST;
const PREFIX: &str = "$2a$";
/// Bytes of a password that have an effect.
const BYTES_MAX: usize = 72;
/// Characters of a hash.
const HASH_CHARACTERS: usize = 60;

/// A hash of the usual cost that no known password has: what is computed for names that no role has.
pub const NOBODYS_HASH: &str = "$2a$10$qTgJmgsGZ9qN.xLa1lJr/.XAV/amfiGviLBqdVcK4dcIV2ktd/kxW";

/// Why a password cannot be hashed, or a hash is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("Invalid hashed password value. Please use jBcrypt.")]
    InvalidHash,
    #[error("Invalid hashed password value: its cost must be from {COST_MIN} to {COST_MAX}.")]
    Cost,
    #[error(
        "Invalid hashed password value: its cost must be from {COST_MIN} to {COST_MAX_OF_OTHERS}; only superusers set hashes with a greater one."
    )]
    CostForOthers,
    /// The system has no randomness, for example.
    #[error("The password cannot be hashed: {0}")]
    Failed(String),
}

/// The hash of a password with a new salt.
pub fn hash(password: &str) -> Result<String, PasswordError> {
    hash_with_cost(password, COST)
}

fn hash_with_cost(password: &str, cost: u32) -> Result<String, PasswordError> {
    let parts = bcrypt::hash_with_result(password, cost);
    let parts = parts.map_err(|error| PasswordError::Failed(error.to_string()))?;
    Ok(parts.format_for_version(Version::TwoA))
}

/// The part of a password that has an effect: as many whole characters as there are in 72 bytes.
pub fn effective(password: &str) -> &str {
    &password[..password.floor_char_boundary(BYTES_MAX)]
}

/// Whether a password has this hash. A hash that cannot be read is nobody's.
pub fn verify(password: &[u8], hash: &str) -> bool {
    check_hash(hash, true).is_ok() && bcrypt::verify(password, hash).unwrap_or(false)
}

/// Checks the form of a hash: what `HASHED PASSWORD` takes. `is_of_superuser`: whether a superuser sets it.
pub fn check_hash(hash: &str, is_of_superuser: bool) -> Result<(), PasswordError> {
    let has_form = hash.len() == HASH_CHARACTERS && hash.starts_with(PREFIX);
    let parts = if has_form { HashParts::from_str(hash).ok() } else { None };
    let cost = parts.ok_or(PasswordError::InvalidHash)?.get_cost();
    if !(COST_MIN..=COST_MAX).contains(&cost) {
        return Err(PasswordError::Cost);
    }
    if is_of_superuser || cost <= COST_MAX_OF_OTHERS { Ok(()) } else { Err(PasswordError::CostForOthers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_its_hash_alone() {
        let hash = hash_with_cost("secret", 4).unwrap();
        assert!(hash.starts_with("$2a$04$"), "{hash}");
        check_hash(&hash, false).unwrap();
        assert!(verify(b"secret", &hash));
        for other in ["", "Secret", "secret ", "secret\0", "secre"] {
            assert!(!verify(other.as_bytes(), &hash), "{other:?}");
        }
        assert_ne!(hash, hash_with_cost("secret", 4).unwrap());
    }

    /// Written by jBCrypt, which Cassandra uses.
    #[test]
    fn hashes_of_cassandra_are_verified() {
        for (password, hash) in [
            ("", "$2a$04$EsT5nl1o5hpGgApWo24t7OwpqruLvcfDNnTgEOg2JV.s3gWbi7Fbe"),
            ("abc", "$2a$04$fewv9.SWsHXtTfSvGqUxV.q9MJTVXoe6pmdaDz//45DpcfvGMKWKq"),
            ("p\u{e4}ssw\u{f6}rd \u{1f511}", "$2a$04$NgwiDOY0FgAeO8xg2gcMd.aZlAf93iJofbilZs7gjIqqq9BeE3gHS"),
            (&"x".repeat(80), "$2a$04$LXjfT9RcbPDGnHrNOCLCDOLoob84FsDg7Nbb2huJnLCUaLwnrPBzG"),
        ] {
            assert!(verify(password.as_bytes(), hash), "{password}");
            assert!(!verify(b"other", hash), "{password}");
        }
    }

    #[test]
    fn bytes_after_the_72nd_have_no_effect() {
        let hash = hash_with_cost(&"x".repeat(72), 4).unwrap();
        assert!(verify("x".repeat(1_000).as_bytes(), &hash));
        assert!(!verify("x".repeat(71).as_bytes(), &hash));
    }

    #[test]
    fn hashes_with_more_work_than_usual_are_set_by_superusers() {
        for cost in ["04", "10"] {
            check_hash(&format!("$2a${cost}{}", &NOBODYS_HASH[6..]), false).unwrap();
        }
        for cost in ["11", "16"] {
            let hash = format!("$2a${cost}{}", &NOBODYS_HASH[6..]);
            assert_eq!(check_hash(&hash, false), Err(PasswordError::CostForOthers));
            check_hash(&hash, true).unwrap();
        }
    }

    #[test]
    fn other_texts_are_no_hashes() {
        let rest = "fewv9.SWsHXtTfSvGqUxV.q9MJTVXoe6pmdaDz//45DpcfvGMKWKq";
        let refused = [
            (String::new(), PasswordError::InvalidHash),
            ("secret".to_owned(), PasswordError::InvalidHash),
            (format!("$2b$10${rest}"), PasswordError::InvalidHash),
            (format!("$2a$1x${rest}"), PasswordError::InvalidHash),
            (format!("$2a$10${rest}."), PasswordError::InvalidHash),
            (format!("$2a$10$é{}", &rest[2..]), PasswordError::InvalidHash),
            (format!("$2a$03${rest}"), PasswordError::Cost),
            (format!("$2a$30${rest}"), PasswordError::Cost),
        ];
        for (text, error) in refused {
            assert_eq!(check_hash(&text, true), Err(error), "{text}");
            assert!(!verify(b"secret", &text));
        }
        check_hash(NOBODYS_HASH, false).unwrap();
        assert_eq!(
            PasswordError::InvalidHash.to_string(),
            "Invalid hashed password value. Please use jBcrypt."
        );
    }
}
