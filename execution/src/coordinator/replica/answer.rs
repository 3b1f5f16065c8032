//! A replica's part in a read: the versions of a range, or their digest, collected from the shards of the node.
//!
//! Invariants:
//! * The answer is canonical (see [`helenus_engine::Versions`]): replicas with equal contents and equally many shards
//!   return equal answers to a request. Where the numbers of shards differ, answers may end at different positions;
//!   digests then differ and data is compared instead.
//! * A request of another epoch is not answered.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use helenus_engine::key::{self, KeyRef};
use helenus_engine::read::Purgeable;
use helenus_engine::shard::Unopened;
use helenus_engine::{DecodeError, Mutation, TableId, VersionLimit, VersionScanRequest, Versions};
use helenus_internode::byte_string;
use helenus_internode::service::Failure;
use serde::{Deserialize, Serialize};

use super::digest::{Digest, digest};
use super::epoch;
use crate::coordinator::local_work::LocalWork;
use crate::coordinator::shard_rows::share_of;
use crate::shard::context::ShardContext;
use crate::shard::trace;

/// Most bytes of rows that one read passes, whatever it finds.
const SCANNED_BYTES: u64 = 16 << 20;

/// The kind of answer that a coordinator requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wants {
    Data,
    Digest,
    /// Data with the deletions that compaction may have purged: a replica that lacks one may have what it deletes. Sent from the feature level
    /// [`helenus_ring::metadata::REPAIRS`] on.
    AllVersions,
    /// As `Data`, of a statement with BYPASS CACHE. Sent from the feature level [`helenus_ring::metadata::CHANGE_FEEDS`] on, as the next one.
    DataPastCache,
    DigestPastCache,
    /// As `AllVersions`, without what files may hold that could not be opened. Sent from the feature level [`helenus_ring::metadata::MENDING`] on.
    AllVersionsAroundDamage,
}

impl Wants {
    /// What the answer has of deletions that compaction may have purged. Those past their grace period are left out, although some replicas
    /// may wait longer before they purge them, so that equal contents give equal answers.
    fn purgeable(self) -> Purgeable {
        match self {
            Self::Data | Self::Digest | Self::DataPastCache | Self::DigestPastCache => {
                Purgeable::LeftOutAfterGrace
            }
            Self::AllVersions | Self::AllVersionsAroundDamage => Purgeable::Kept,
        }
    }

    /// What the read does about files that could not be opened.
    fn unopened(self) -> Unopened {
        if self == Self::AllVersionsAroundDamage { Unopened::LeftOut } else { Unopened::Refused }
    }

    /// Whether the answer is a digest.
    pub fn is_digest(self) -> bool {
        matches!(self, Self::Digest | Self::DigestPastCache)
    }

    /// The same of a statement with BYPASS CACHE.
    #[must_use]
    pub fn past_cache(self) -> Self {
        match self {
            Self::Data => Self::DataPastCache,
            Self::Digest => Self::DigestPastCache,
            other => other,
        }
    }
}

/// A request to read the versions of a range of full keys. The limits are those of [`VersionLimit`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadRequest {
    pub epoch: u64,
    pub table_id: u128,
    #[serde(with = "byte_string")]
    pub start: Vec<u8>,
    #[serde(with = "byte_string")]
    pub end: Vec<u8>,
    pub reversed: bool,
    pub now_seconds: u32,
    pub live_rows: u64,
    pub bytes: u64,
    pub tombstones: u64,
    pub wants: Wants,
}

/// A replica's answer to a read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReadAnswer {
    Data {
        /// The mutation of each partition, preceded by its length (u32, little endian).
        #[serde(with = "byte_string")]
        partitions: Vec<u8>,
        resume: Option<Vec<u8>>,
    },
    Digest(Digest),
}

/// The versions of a range on one replica.
#[derive(Debug, Clone, Default)]
pub struct ReplicaVersions {
    pub partitions: Vec<Mutation>,
    pub resume: Option<Vec<u8>>,
}

impl ReplicaVersions {
    pub fn digest(&self) -> Digest {
        digest(&self.partitions, self.resume.as_deref())
    }

    fn encode(self) -> ReadAnswer {
        let bytes = self.partitions.iter().map(|mutation| 4 + mutation.bytes().len()).sum();
        let mut partitions = Vec::with_capacity(bytes);
        for mutation in &self.partitions {
            partitions.put_u32_le(mutation.bytes().len() as u32);
            partitions.put_slice(mutation.bytes());
        }
        ReadAnswer::Data { partitions, resume: self.resume }
    }

    /// Decodes the partitions sent by another node. Every byte is checked.
    pub fn decode(partitions: Vec<u8>, resume: Option<Vec<u8>>) -> Result<Self, DecodeError> {
        const CUT: DecodeError = DecodeError::Truncated { what: "an answer" };
        let mut rest = Bytes::from(partitions);
        let mut decoded = Vec::new();
        while !rest.is_empty() {
            let length = rest.try_get_u32_le().map_err(|_| CUT)? as usize;
            if length > rest.len() {
                return Err(CUT);
            }
            decoded.push(Mutation::from_bytes(rest.split_to(length))?);
        }
        Ok(Self { partitions: decoded, resume })
    }
}

/// Answers a coordinator's read request.
pub async fn receive(context: &Rc<ShardContext>, request: ReadRequest) -> Result<ReadAnswer, Failure> {
    let wants = request.wants;
    let versions = versions(context, request).await?;
    Ok(if wants.is_digest() { ReadAnswer::Digest(versions.digest()) } else { versions.encode() })
}

/// Reads the versions of a range on this node.
pub async fn versions(context: &Rc<ShardContext>, request: ReadRequest) -> Result<ReplicaVersions, Failure> {
    let wait = Duration::from_millis(context.node.config.read_request_timeout_ms);
    epoch::fence(context, request.epoch, wait).await?;
    trace::note(context, || match token_of(&request.start, &request.end) {
        Some(token) => format!("Reading a partition on shard {}", context.node.shard_of(token)),
        None => "Reading a range on all shards".to_owned(),
    });
    let shards = context.node.shard_count();
    let versions = match token_of(&request.start, &request.end) {
        _ if shards == 1 => scan_here(context, &request).await?,
        Some(token) => scan_on(context, context.node.shard_of(token), request).await?,
        None => {
            let mut part = request;
            let reversed = part.reversed;
            let live_rows = usize::try_from(part.live_rows).unwrap_or(usize::MAX);
            part.live_rows = share_of(live_rows, shards, None) as u64;
            let parts = (0..shards).map(|shard| scan_on(context, shard, part.clone()));
            let parts = futures::future::try_join_all(parts).await?;
            return join(parts, reversed).map_err(|error| Failure::Internal(error.to_string()));
        }
    };
    trace::note(context, || format!("Read {} partitions", versions.partitions.len()));
    Ok(ReplicaVersions { partitions: versions.partitions, resume: versions.resume })
}

/// The token of the partition that contains the range; `None` if the range is wider than a partition.
pub fn token_of(start: &[u8], end: &[u8]) -> Option<i64> {
    let prefix = start.get(..key::prefix_length(start)?)?;
    if !end.starts_with(prefix) {
        return None;
    }
    KeyRef::parse(prefix).ok().map(|key| key.token)
}

async fn scan_on(
    context: &Rc<ShardContext>,
    shard: usize,
    request: ReadRequest,
) -> Result<Versions, Failure> {
    let scan = move |context: Rc<ShardContext>| {
        let scanned = async move { scan_here(&context, &request).await };
        Box::pin(scanned) as futures::future::LocalBoxFuture<'static, _>
    };
    context.run_on(shard, scan).await.map_err(|error| Failure::Internal(error.to_string()))?
}

async fn scan_here(context: &ShardContext, request: &ReadRequest) -> Result<Versions, Failure> {
    context.shard.read_cold(|| scan_in_turn(context, request)).await
}

fn scan_in_turn(context: &ShardContext, request: &ReadRequest) -> Result<Versions, Failure> {
    // Checked in the turn in which the data is read: ownership may have changed while the request was on its way.
    epoch::refuse_stale(context, request.epoch)?;
    let (table, started) = (TableId(request.table_id.to_be_bytes()), context.clock.monotonic());
    let scan = VersionScanRequest {
        table,
        start: &request.start,
        end: &request.end,
        reversed: request.reversed,
        now_seconds: request.now_seconds,
        purgeable: request.wants.purgeable(),
        is_long: matches!(request.wants, Wants::DataPastCache | Wants::DigestPastCache),
        part: None,
        limit: VersionLimit {
            live_rows: request.live_rows,
            bytes: request.bytes,
            tombstones: request.tombstones,
            scanned_bytes: SCANNED_BYTES,
        },
    };
    let versions = context.shard.scan_versions_with(&scan, request.wants.unopened());
    let versions = versions.map_err(Failure::from)?;
    let met = (versions.live_rows, versions.tombstones);
    LocalWork::note_read(context, table, (&request.start, &request.end), started, met);
    Ok(versions)
}

/// Joins the answers of the shards, up to the first position at which one of them stopped: behind it the answer is
/// incomplete.
fn join(parts: Vec<Versions>, reversed: bool) -> Result<ReplicaVersions, DecodeError> {
    let bounds = parts.iter().filter_map(|part| part.resume.clone());
    let resume = if reversed { bounds.max() } else { bounds.min() };
    let mut partitions = Vec::new();
    for mutation in parts.into_iter().flat_map(|part| part.partitions) {
        let view = mutation.view()?;
        let prefix = key::full_key(view.token, view.partition_key, &[])
            .map_err(|_| DecodeError::Overflow { what: "a partition key" })?;
        // A partition is on one shard. If that shard stopped inside the partition, its answer ends there already.
        let is_known = resume.as_ref().is_none_or(|bound| {
            bound.starts_with(&prefix) || if reversed { prefix > *bound } else { prefix < *bound }
        });
        if is_known {
            partitions.push((prefix, mutation));
        }
    }
    partitions.sort_by(|left, right| left.0.cmp(&right.0));
    if reversed {
        partitions.reverse();
    }
    Ok(ReplicaVersions { partitions: partitions.into_iter().map(|(_, mutation)| mutation).collect(), resume })
}
