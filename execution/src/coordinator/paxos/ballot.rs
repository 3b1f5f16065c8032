//! Ballots: the order of the attempts to change a partition by transaction.
//!
//! Invariants:
//! * No two attempts have the same ballot: the salt is drawn for each attempt. So neither two shards of a node, nor a
//!   node before and after a restart with its clock set back, can create equal ballots.
//! * Ballots are ordered by microseconds first, and a replica promises a ballot only if its *microseconds* are above
//!   all that it has seen. So two ballots of one microsecond never both get a majority of promises, and the
//!   microseconds of a partition's transactions grow strictly: they are the timestamps of the mutations.

use std::fmt;

use helenus_ring::HostId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The replicas that agree: those of all data centers, or those of the coordinator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SerialScope {
    /// SERIAL.
    Global,
    /// `LOCAL_SERIAL`.
    Local,
}

/// The number of an attempt; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// Microseconds since the epoch: from the coordinator's clock, or just above a ballot that had to be outbid.
    pub micros: i64,
    /// Random.
    pub salt: u32,
    /// The coordinator.
    pub host_id: HostId,
    pub scope: SerialScope,
}

impl Ballot {
    /// Length of the encoding, in bytes.
    pub const ENCODED_BYTES: usize = 29;

    /// An encoding whose order under `memcmp` is the order of ballots.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&((self.micros as u64) ^ (1 << 63)).to_be_bytes());
        out.extend_from_slice(&self.salt.to_be_bytes());
        out.extend_from_slice(self.host_id.as_bytes());
        out.push(match self.scope {
            SerialScope::Global => 0,
            SerialScope::Local => 1,
        });
    }

    /// Decodes a ballot from the start of `bytes` and returns the rest; `None` if there is none.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (micros, rest) = bytes.split_first_chunk::<8>()?;
        let (salt, rest) = rest.split_first_chunk::<4>()?;
        let (host_id, rest) = rest.split_first_chunk::<16>()?;
        let (scope, rest) = rest.split_first()?;
        let scope = match scope {
            0 => SerialScope::Global,
            1 => SerialScope::Local,
            _ => return None,
        };
        let ballot = Self {
            micros: (u64::from_be_bytes(*micros) ^ (1 << 63)) as i64,
            salt: u32::from_be_bytes(*salt),
            host_id: Uuid::from_bytes(*host_id),
            scope,
        };
        Some((ballot, rest))
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:08x}@{}", self.micros, self.salt, self.host_id)
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::io::SplitMix64;

    use super::*;

    fn any(random: &mut SplitMix64) -> Ballot {
        Ballot {
            micros: random.below(4) as i64 - 2,
            salt: random.below(3) as u32,
            host_id: Uuid::from_u128(u128::from(random.below(3))),
            scope: if random.chance(1, 2) { SerialScope::Global } else { SerialScope::Local },
        }
    }

    #[test]
    fn the_encoding_decodes_and_sorts_like_ballots() {
        let mut random = SplitMix64::new(1);
        for _ in 0..1_000 {
            let (a, b) = (any(&mut random), any(&mut random));
            let (mut a_bytes, mut b_bytes) = (Vec::new(), Vec::new());
            a.encode(&mut a_bytes);
            b.encode(&mut b_bytes);
            assert_eq!(a_bytes.len(), Ballot::ENCODED_BYTES);
            assert_eq!(a.cmp(&b), a_bytes.cmp(&b_bytes));
            a_bytes.push(9);
            assert_eq!(Ballot::decode(&a_bytes), Some((a, &[9][..])));
        }
        assert_eq!(Ballot::decode(&[0; 28]), None);
    }
}
