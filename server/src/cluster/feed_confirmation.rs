//! Asks the leader of the metadata again and again whether this node knows the newest streams of change feeds, as long as there are feeds. See
//! [`confirmed`] for what follows if it has no answer.

use std::rc::Rc;
use std::time::Duration;

use helenus_execution::coordinator::change_feed::confirmed::{self, StreamsConfirmation};
use helenus_execution::shard::context::ShardContext;

use super::propose::catch_up_with_leader;

/// A node asks so often within the limit, so that some questions may fail.
const QUESTIONS_PER_LIMIT: u32 = 8;
/// Time limit of one question, as a part of the limit.
const QUESTION_PART: u32 = 4;

/// Asks for the first time, and then until the node ends. Call on the first shard, before clients are accepted.
pub async fn begin(context: &Rc<ShardContext>) {
    if has_streams(context) {
        // It does not know how long it was away.
        StreamsConfirmation::of(context).expire();
        confirm(context).await;
    }
    tokio::task::spawn_local(keep_confirmed(context.clone()));
}

async fn keep_confirmed(context: Rc<ShardContext>) {
    let pause = confirmed::limit(&context.node.config) / QUESTIONS_PER_LIMIT;
    let mut was_valid = true;
    loop {
        context.clock.sleep(pause).await;
        let confirmation = StreamsConfirmation::of(&context);
        if !has_streams(&context) {
            confirmation.forget();
            was_valid = true;
            continue;
        }
        if !confirmation.has_begun() {
            // It has just learned of the first feed.
            confirmation.confirm(context.clock.monotonic(), confirmed::limit(&context.node.config));
        }
        confirm(&context).await;
        let is_valid = confirmation.is_valid(context.clock.monotonic());
        if was_valid && !is_valid {
            tracing::warn!(
                limit_ms = confirmed::limit(&context.node.config).as_millis() as u64,
                "this node cannot confirm that it knows the newest streams of change feeds; it refuses writes to tables with a feed"
            );
        } else if is_valid && !was_valid {
            tracing::info!("this node knows the newest streams of change feeds again");
        }
        was_valid = is_valid;
    }
}

fn has_streams(context: &ShardContext) -> bool {
    !context.cluster_view().change_feed().is_empty()
}

/// Asks once.
async fn confirm(context: &Rc<ShardContext>) {
    let limit = confirmed::limit(&context.node.config);
    let asked_at: Duration = context.clock.monotonic();
    match catch_up_with_leader(context, limit / QUESTION_PART).await {
        Ok(()) => StreamsConfirmation::of(context).confirm(asked_at, limit),
        Err(error) => tracing::debug!(%error, "the streams of change feeds are not confirmed"),
    }
}
