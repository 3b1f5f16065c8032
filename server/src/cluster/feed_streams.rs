//! A new member is held back until the streams of change feeds are right for it: an entry is then in the same range and on the same shard
//! as what it tells of, on the new member, too.

use std::rc::Rc;
use std::time::Duration;

use helenus_query::error::RequestError;
use helenus_ring::change_feed::Missing;
use helenus_ring::member::Member;
use helenus_ring::metadata::{Command, CommandOutcome, Refusal, StreamsExtension};

use super::message::ClusterResponse;
use super::propose::commit;
use crate::cluster::raft::MetadataLog;
use helenus_execution::shard::context::ShardContext;

/// The answer to a member that has to wait for streams; they are agreed on if they are not yet. Without change feeds nobody waits. Call on the
/// leader.
pub(super) async fn hold(
    context: &Rc<ShardContext>,
    member: &Member,
    patience: Duration,
) -> Result<Option<ClusterResponse>, RequestError> {
    let delay_ms = context.node.config.cdc_generation_delay_ms as i64;
    // Until then coordinators with a slow clock, and writes on their way, are done with the streams of before.
    let leeway_ms = delay_ms / 2;
    let missing = |now_ms: i64| {
        let feed = MetadataLog::of(context)?.state().topology.change_feed.clone();
        Ok::<_, RequestError>(feed.missing_for(&member.tokens, member.shard_count, now_ms - leeway_ms))
    };
    let now_ms = context.clock.now_micros() / 1_000;
    let Some(mut found) = missing(now_ms)? else { return Ok(None) };
    if found == Missing::Streams {
        let extension = StreamsExtension {
            proposed_ms: now_ms,
            timestamp_ms: now_ms + delay_ms,
            tokens: member.tokens.iter().copied().collect(),
            shard_counts: [member.shard_count].into(),
        };
        match commit(context, &Command::ExtendStreams(extension), patience).await? {
            Some(CommandOutcome::Applied { .. }) => {}
            Some(other) => return Ok(Some(ClusterResponse::Outcome(other))),
            None => return Ok(Some(ClusterResponse::NoLeader)),
        }
        match missing(now_ms)? {
            Some(after) => found = after,
            None => return Ok(None),
        }
    }
    let active_ms = match found {
        Missing::Until(active_ms) => active_ms + leeway_ms,
        Missing::Streams => now_ms + delay_ms,
    };
    let left_ms = active_ms.saturating_sub(now_ms).max(0) as u64;
    Ok(Some(ClusterResponse::Refused(Refusal::StreamsNotActive { left_ms })))
}
