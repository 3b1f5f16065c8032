//! Digests of what a replica would answer: equal contents have equal digests on every node.
//!
//! XXH3 of 128 bits over each partition's mutation with its length, and over where the read stopped: a replica that has nothing
//! more behind the same rows says something else than one that has only reached its limit. Replicas trust each other, so that
//! chance alone has to be kept out, not malice.

use helenus_engine::Mutation;
use twox_hash::XxHash3_128;

/// 128 bits.
pub type Digest = [u8; 16];

/// The digest of versions; see [`helenus_engine::Versions`].
pub fn digest(partitions: &[Mutation], resume: Option<&[u8]>) -> Digest {
    let mut digest = XxHash3_128::new();
    for mutation in partitions {
        let bytes = mutation.bytes();
        digest.write(&(bytes.len() as u64).to_le_bytes());
        digest.write(bytes);
    }
    digest.write(&u64::MAX.to_le_bytes());
    if let Some(resume) = resume {
        digest.write(resume);
    }
    digest.finish_128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use helenus_engine::{MutationBuilder, TableId};

    use super::*;

    #[test]
    fn content_and_end_both_count() {
        let mutation = |token| MutationBuilder::new(TableId([1; 16]), token, b"key").unwrap().build();
        let one = [mutation(1)];
        assert_eq!(digest(&one, None), digest(&[mutation(1)], None));
        assert_ne!(digest(&one, None), digest(&[mutation(2)], None));
        assert_ne!(digest(&one, None), digest(&one, Some(b"x")));
        assert_ne!(digest(&one, None), digest(&[mutation(1), mutation(1)], None));
    }
}
