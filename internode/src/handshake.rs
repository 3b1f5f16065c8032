//! The start of a link: a HELLO from the node that connects, a WELCOME or a REFUSAL from the node that accepts.
//!
//! This exchange does not change between versions of the protocol, so that any two programs can report to each other
//! why they are incompatible. A message, with little-endian integers:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic, `HLNSLINK` |
//! | 1 | kind: 1 HELLO, 2 WELCOME, 3 REFUSAL |
//! | 4 | length of the body, at most 4096 |
//! | length | body; bytes after its known fields are for later versions, and ignored |
//! | 4 | CRC-32 of everything before |
//!
//! HELLO: lowest version u16, highest version u16, node, wanted shard u16. WELCOME: chosen version u16, node, serving
//! shard u16. Node: host id (16 bytes), run id u64, shard count u16, wall clock i64 (microseconds), cluster name.
//! REFUSAL: code u16, text. Texts are a length u16, at most 2048, and UTF-8.
//!
//! Each side checks the other ([`Local::check`]) and does not rely on the other's check. Membership is not checked
//! here: a joining node must be able to communicate first.

use std::net::IpAddr;

use bytes::{Buf, BufMut};
use helenus_ring::HostId;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use uuid::Uuid;

use super::service::PROTOCOL_VERSION;

const MAGIC: &[u8; 8] = b"HLNSLINK";
const HEAD_BYTES: usize = 13;
const BODY_BYTES_MAX: usize = 4_096;
const TEXT_BYTES_MAX: usize = 2_048;
/// The oldest version of the protocol that this program still supports.
pub const PROTOCOL_VERSION_MIN: u16 = 1;
/// Longest name of a cluster, in bytes.
pub const CLUSTER_NAME_BYTES_MAX: usize = 256;
/// Nodes whose clocks differ by more than this refuse each other: timestamps decide which write wins.
pub const CLOCK_DIFFERENCE_MAX_MICROS: u64 = 10_000_000;

/// The part of a HELLO or WELCOME that describes its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    pub host_id: HostId,
    /// Random for each run of the program: distinguishes a node from one that runs on a copy of its data directory.
    pub run_id: u64,
    pub shard_count: u16,
    /// The sender's wall clock, in microseconds since the Unix epoch.
    pub clock_micros: i64,
    pub cluster_name: String,
}

/// A message of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    Hello { version_min: u16, version_max: u16, node: Greeting, wanted_shard: u16 },
    Welcome { version: u16, node: Greeting, shard: u16 },
    Refusal { code: u16, text: String },
}

/// The code of [`Refusal::Host`]: another node is at that address.
pub const OTHER_HOST_CODE: u16 = 3;
/// The code of [`Refusal::Removed`].
pub const REMOVED_CODE: u16 = 4;
/// The code of [`Refusal::SameHost`].
pub const SAME_HOST_CODE: u16 = 6;

/// The reason why a node refuses a link with another. Both sides read it, so the texts do not say "this node".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("a node of the cluster '{theirs}' is refused by one of the cluster '{ours}'")]
    Cluster { theirs: String, ours: String },
    #[error(
        "a node that speaks versions {theirs_min} to {theirs_max} of the internode protocol is refused by one that speaks {ours_min} to {ours_max}"
    )]
    Version { theirs_min: u16, theirs_max: u16, ours_min: u16, ours_max: u16 },
    #[error("node {found} is there, not {expected}")]
    Host { expected: HostId, found: HostId },
    #[error("node {0} has left the cluster or was removed from it and cannot come back with its old data")]
    Removed(HostId),
    #[error("the clocks of the two nodes are {seconds} s apart")]
    Clock { seconds: u64 },
    #[error("two nodes have the host id {0}: a copied data directory?")]
    SameHost(HostId),
    #[error("links must be encrypted, and both sides show certificates: setting 'internode_encryption'")]
    NotEncrypted,
    #[error(
        "the certificate of node {host_id} at {address} does not name its host id or address; it names: {names}"
    )]
    Certificate { host_id: HostId, address: IpAddr, names: String },
}

impl Refusal {
    /// The code in the protocol; never reused.
    pub fn code(&self) -> u16 {
        match self {
            Self::Cluster { .. } => 1,
            Self::Version { .. } => 2,
            Self::Host { .. } => OTHER_HOST_CODE,
            Self::Removed(_) => REMOVED_CODE,
            Self::Clock { .. } => 5,
            Self::SameHost(_) => SAME_HOST_CODE,
            Self::NotEncrypted => 7,
            Self::Certificate { .. } => 8,
        }
    }
}

/// The reason why a handshake did not result in a link.
#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it speaks another protocol")]
    Magic,
    #[error("a malformed handshake: {0}")]
    Malformed(&'static str),
    /// This node refuses the other.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The other node refuses this one.
    #[error("the other node says (code {code}): {text}")]
    RefusedByPeer { code: u16, text: String },
}

/// This node's description of itself, and its requirements for others.
#[derive(Debug, Clone)]
pub struct Local {
    pub cluster_name: String,
    pub host_id: HostId,
    pub run_id: u64,
    pub shard_count: u16,
}

impl Local {
    pub fn greeting(&self, clock_micros: i64) -> Greeting {
        Greeting {
            host_id: self.host_id,
            run_id: self.run_id,
            shard_count: self.shard_count,
            clock_micros,
            cluster_name: self.cluster_name.clone(),
        }
    }

    pub fn hello(&self, clock_micros: i64, wanted_shard: u16) -> Opening {
        Opening::Hello {
            version_min: PROTOCOL_VERSION_MIN,
            version_max: PROTOCOL_VERSION,
            node: self.greeting(clock_micros),
            wanted_shard,
        }
    }

    /// The version for a link with a node that supports all versions from `theirs_min` to `theirs_max`.
    pub fn choose_version(&self, theirs_min: u16, theirs_max: u16) -> Result<u16, Refusal> {
        let version = theirs_max.min(PROTOCOL_VERSION);
        if version < theirs_min || version < PROTOCOL_VERSION_MIN {
            let (ours_min, ours_max) = (PROTOCOL_VERSION_MIN, PROTOCOL_VERSION);
            return Err(Refusal::Version { theirs_min, theirs_max, ours_min, ours_max });
        }
        Ok(version)
    }

    /// Checks the other node's description. A link of a node with itself is not refused.
    pub fn check(
        &self,
        node: &Greeting,
        now_micros: i64,
        is_removed: impl FnOnce(&HostId) -> bool,
    ) -> Result<(), Refusal> {
        if node.cluster_name != self.cluster_name {
            let (theirs, ours) = (node.cluster_name.clone(), self.cluster_name.clone());
            return Err(Refusal::Cluster { theirs, ours });
        }
        if is_removed(&node.host_id) {
            return Err(Refusal::Removed(node.host_id));
        }
        if node.host_id == self.host_id && node.run_id != self.run_id {
            return Err(Refusal::SameHost(self.host_id));
        }
        let difference = node.clock_micros.abs_diff(now_micros);
        if difference > CLOCK_DIFFERENCE_MAX_MICROS {
            return Err(Refusal::Clock { seconds: difference / 1_000_000 });
        }
        Ok(())
    }
}

impl Opening {
    /// The refusal message for the other node.
    pub fn refusal(refusal: &Refusal) -> Self {
        Self::Refusal { code: refusal.code(), text: refusal.to_string() }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Self::Hello { version_min, version_max, node, wanted_shard } => {
                body.put_u16_le(*version_min);
                body.put_u16_le(*version_max);
                put_node(&mut body, node);
                body.put_u16_le(*wanted_shard);
                1
            }
            Self::Welcome { version, node, shard } => {
                body.put_u16_le(*version);
                put_node(&mut body, node);
                body.put_u16_le(*shard);
                2
            }
            Self::Refusal { code, text } => {
                body.put_u16_le(*code);
                put_text(&mut body, text);
                3
            }
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + 4);
        bytes.put_slice(MAGIC);
        bytes.put_u8(kind);
        bytes.put_u32_le(body.len() as u32);
        bytes.put_slice(&body);
        let checksum = crc32fast::hash(&bytes);
        bytes.put_u32_le(checksum);
        bytes
    }

    /// The length of the body, from the first bytes of a message.
    fn body_bytes(head: [u8; HEAD_BYTES]) -> Result<usize, HandshakeError> {
        let mut input = &head[..];
        if input.copy_to_bytes(MAGIC.len()) != MAGIC[..] {
            return Err(HandshakeError::Magic);
        }
        input.advance(1);
        let length = input.get_u32_le() as usize;
        if length > BODY_BYTES_MAX {
            return Err(HandshakeError::Malformed("its length is above the limit"));
        }
        Ok(length)
    }

    /// Decodes a whole message.
    pub fn decode(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(HandshakeError::Malformed("it is too short"))?;
        let body_bytes = Self::body_bytes(*head)?;
        if bytes.len() != HEAD_BYTES + body_bytes + 4 {
            return Err(HandshakeError::Malformed("its length is wrong"));
        }
        let (checked, mut checksum) = bytes.split_at(bytes.len() - 4);
        if checksum.get_u32_le() != crc32fast::hash(checked) {
            return Err(HandshakeError::Malformed("its checksum is wrong"));
        }
        // The length of the whole was compared above.
        let (_, mut body) = checked.split_at(HEAD_BYTES);
        let decoded = match head[8] {
            1 => hello(&mut body),
            2 => welcome(&mut body),
            3 => refusal(&mut body),
            _ => return Err(HandshakeError::Malformed("its kind is not known")),
        };
        decoded.ok_or(HandshakeError::Malformed("a field is cut off, too long or not UTF-8"))
    }

    /// Reads one message, and no byte after it.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, HandshakeError> {
        let mut bytes = vec![0; HEAD_BYTES];
        stream.read_exact(&mut bytes).await?;
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(HandshakeError::Magic)?;
        let body_bytes = Self::body_bytes(*head)?;
        bytes.resize(HEAD_BYTES + body_bytes + 4, 0);
        stream.read_exact(&mut bytes[HEAD_BYTES..]).await?;
        Self::decode(&bytes)
    }

    pub async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await
    }
}

fn hello(body: &mut &[u8]) -> Option<Opening> {
    let version_min = body.try_get_u16_le().ok()?;
    let version_max = body.try_get_u16_le().ok()?;
    let node = take_node(body)?;
    Some(Opening::Hello { version_min, version_max, node, wanted_shard: body.try_get_u16_le().ok()? })
}

fn welcome(body: &mut &[u8]) -> Option<Opening> {
    let version = body.try_get_u16_le().ok()?;
    let node = take_node(body)?;
    Some(Opening::Welcome { version, node, shard: body.try_get_u16_le().ok()? })
}

fn refusal(body: &mut &[u8]) -> Option<Opening> {
    Some(Opening::Refusal { code: body.try_get_u16_le().ok()?, text: take_text(body)? })
}

fn put_node(out: &mut Vec<u8>, node: &Greeting) {
    out.put_slice(node.host_id.as_bytes());
    out.put_u64_le(node.run_id);
    out.put_u16_le(node.shard_count);
    out.put_i64_le(node.clock_micros);
    put_text(out, &node.cluster_name);
}

fn take_node(body: &mut &[u8]) -> Option<Greeting> {
    Some(Greeting {
        host_id: Uuid::from_u128(body.try_get_u128().ok()?),
        run_id: body.try_get_u64_le().ok()?,
        shard_count: body.try_get_u16_le().ok()?,
        clock_micros: body.try_get_i64_le().ok()?,
        cluster_name: take_text(body)?,
    })
}

/// Appends a text. Texts above the limit are truncated: they are for people to read.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    out.put_u16_le(length as u16);
    out.put_slice(&text.as_bytes()[..length]);
}

fn take_text(body: &mut &[u8]) -> Option<String> {
    let length = usize::from(body.try_get_u16_le().ok()?);
    if length > TEXT_BYTES_MAX {
        return None;
    }
    let bytes = body.split_off(..length)?;
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn local() -> Local {
        Local {
            cluster_name: "orchard".to_owned(),
            host_id: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            run_id: 7,
            shard_count: 4,
        }
    }

    #[test]
    fn golden_bytes_of_a_hello() {
        let hex: Vec<String> =
            local().hello(1_000_000, 3).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = concat!(
            "484c4e534c494e4b",
            "01",
            "31000000",
            "0100",
            "0100",
            "00112233445566778899aabbccddeeff",
            "0700000000000000",
            "0400",
            "40420f0000000000",
            "07006f726368617264",
            "0300",
            "57712893"
        );
        assert_eq!(hex.concat(), golden);
    }

    #[test]
    fn each_incompatibility_is_refused_by_name() {
        let local = local();
        let other = Greeting { host_id: Uuid::from_u128(5), ..local.greeting(0) };
        let refused = |node: &Greeting| local.check(node, 0, |id| *id == Uuid::from_u128(9)).unwrap_err();
        assert_eq!(local.check(&other, CLOCK_DIFFERENCE_MAX_MICROS as i64, |_| false), Ok(()));
        assert_eq!(local.check(&local.greeting(0), 0, |_| false), Ok(()), "a link with itself");
        let wrong = Greeting { cluster_name: "vineyard".to_owned(), ..other.clone() };
        assert_eq!(
            refused(&wrong).to_string(),
            "a node of the cluster 'vineyard' is refused by one of the cluster 'orchard'"
        );
        let removed = Greeting { host_id: Uuid::from_u128(9), ..other.clone() };
        assert_eq!(refused(&removed), Refusal::Removed(Uuid::from_u128(9)));
        let late = Greeting { clock_micros: -11_000_000, ..other.clone() };
        assert_eq!(refused(&late), Refusal::Clock { seconds: 11 });
        let copy = Greeting { host_id: local.host_id, run_id: 8, ..other };
        assert_eq!(refused(&copy), Refusal::SameHost(local.host_id));
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        assert_eq!(local().choose_version(1, 9), Ok(PROTOCOL_VERSION));
        assert!(matches!(local().choose_version(PROTOCOL_VERSION + 1, 9), Err(Refusal::Version { .. })));
        assert!(matches!(local().choose_version(0, 0), Err(Refusal::Version { .. })));
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let mut bytes = local().hello(0, 0).encode();
        bytes.truncate(bytes.len() - 4);
        bytes.extend_from_slice(b"later");
        let body_bytes = (bytes.len() - HEAD_BYTES) as u32;
        bytes[9..13].copy_from_slice(&body_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.put_u32_le(checksum);
        assert_eq!(Opening::decode(&bytes).unwrap(), local().hello(0, 0));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = local().hello(0, 0).encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Opening::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    fn greetings() -> impl Strategy<Value = Greeting> {
        (any::<u128>(), any::<u64>(), any::<u16>(), any::<i64>(), "\\PC{0,40}").prop_map(
            |(host_id, run_id, shard_count, clock_micros, cluster_name)| Greeting {
                host_id: Uuid::from_u128(host_id),
                run_id,
                shard_count,
                clock_micros,
                cluster_name,
            },
        )
    }

    proptest! {
        #[test]
        fn openings_are_decoded_unchanged(
            node in greetings(), versions in any::<(u16, u16)>(), shard in any::<u16>(), text in "\\PC{0,80}",
        ) {
            let (version_min, version_max) = versions;
            let welcome = Opening::Welcome { version: version_min, node: node.clone(), shard };
            let hello = Opening::Hello { version_min, version_max, node, wanted_shard: shard };
            for opening in [hello, welcome, Opening::Refusal { code: shard, text }] {
                prop_assert_eq!(Opening::decode(&opening.encode()).unwrap(), opening);
            }
        }
    }
}
