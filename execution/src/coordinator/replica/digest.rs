//! Digests of a replica's answer to a read: equal contents have equal digests on every node.
//!
//! The digest is XXH3 with 128 bits over each partition's mutation with its length, and over the position at which
//! the read stopped: a replica that has no more rows behind the same rows differs from one that only reached its
//! limit. Replicas trust each other, so the digest must only exclude chance, not malice.

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
