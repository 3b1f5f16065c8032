//! Writes on the shards of this node.

use helenus_engine::commit_log::LogPosition;
use helenus_engine::io::whole_seconds;
use helenus_engine::{EngineError, Mutation};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::{MutationSet, PartitionMutation, WriteContext};

use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::BoundStatement;
use crate::coordinator::change_feed::{self, Grouping};
use crate::coordinator::local_work::LocalWork;
use crate::coordinator::own_rows::ShardRows;
use crate::coordinator::replica::apply::apply_own;
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// The write context of a write that is executed now.
pub fn write_context(context: &ShardContext, options: &RequestOptions) -> WriteContext {
    write_context_at(context, options, context.clock.now_micros())
}

/// The write context of a write in a turn that began at `clock_micros` (microseconds since the epoch).
pub fn write_context_at(context: &ShardContext, options: &RequestOptions, clock_micros: i64) -> WriteContext {
    let now_micros = context.next_timestamp_at(clock_micros);
    WriteContext {
        timestamp: options.timestamp.unwrap_or(now_micros),
        now_seconds: options.now_seconds.unwrap_or_else(|| whole_seconds(clock_micros)),
        now_micros,
        is_exact: false,
        counter_id: *context.node.host_id.as_bytes(),
        mutation_bytes_max: context.node.config.mutation_bytes_max(),
    }
}

/// Applies a mutation to the shard of this thread.
pub fn apply_here(context: &ShardContext, mutation: &Mutation) -> Result<LogPosition> {
    let view = mutation.view().map_err(|error| RequestError::Server(error.to_string()))?;
    context.metrics.writes.increment();
    let started = context.clock.monotonic();
    let position = apply_own(context, &view)?;
    LocalWork::note_write(context, &view, started);
    receipt::count_logged(mutation.bytes().len());
    context.note_append(position);
    Ok(position)
}

/// In one turn: reads the rows that the statements need in the partitions of `token`, and applies their changes if `check`
/// permits it.
pub async fn apply_statements<E>(
    context: &ShardContext,
    statements: &[BoundStatement],
    options: &RequestOptions,
    token: i64,
    check: impl Fn(&[PartitionMutation]) -> Result<(), E>,
) -> Result<(Vec<PartitionMutation>, Option<LogPosition>), E>
where
    E: From<RequestError> + From<EngineError>,
{
    let mark = receipt::mark();
    let changes_in_turn = || {
        receipt::set_back(&mark);
        let write = write_context(context, options);
        let rows = ShardRows { context, now_seconds: write.now_seconds };
        let mut set = MutationSet::limited_to(Box::new(move |candidate| candidate == token));
        for statement in statements {
            statement.add_to(&mut set, &write, Some(&rows))?;
        }
        let changes = set.finish(&write, Some(&rows))?;
        let changes = change_feed::attach(context, changes, Grouping::Each, &write, Some(&rows))?;
        check(&changes)?;
        Ok::<_, E>(changes)
    };
    // Nothing is awaited between the last attempt and the writes.
    let changes = context.shard.read_cold(changes_in_turn).await?;
    let mut last = None;
    for PartitionMutation { mutation, .. } in &changes {
        last = Some(apply_here(context, mutation)?);
    }
    Ok((changes, last))
}
