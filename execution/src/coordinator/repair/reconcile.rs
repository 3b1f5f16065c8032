//! Makes the replicas of a small part of a table equal: versions that a replica lacks are written to it.
//!
//! Invariants:
//! * Where the replicas differ, deletions are exchanged too that compaction may purge: the replica that lacks one may have what it deletes.
//! * What was read before the table was truncated is not written.
//! * A replica that is mended brings nothing back that a deletion in its damaged files may have deleted.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use helenus_engine::Mutation;
use helenus_engine::key::token_bounds;
use helenus_engine::read::reconcile_answers::{ReplicaAnswer, reconcile_answers};
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_ring::member::Member;

use super::batch::{Batch, RangeError, ask as ask_repair, while_alive};
use super::message::{RepairRequest, RepairResponse};
use super::runs::{RepairRun, RepairRuns};
use crate::coordinator::replica::answer::{ReadAnswer, ReadRequest, ReplicaVersions, Wants};
use crate::coordinator::replica::read::{Said, ask};
use crate::coordinator::replica::repair::write_missing;
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;

/// Most bytes in one answer of a replica.
const ANSWER_BYTES: u64 = 1 << 20;
/// How long a replica may take for an answer, or for a write.
const DEADLINE: Duration = Duration::from_mins(1);
/// Writes to one replica at a time.
const WRITES_AT_A_TIME: usize = 64;
/// Pause before a write is repeated to a replica that was overloaded, and how often that is done.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);
const OVERLOADS_MAX: u32 = 60;

/// Makes the replicas equal for these tokens, first and last, or mends one of them (`mending.rs`). One replica sends its versions, the others digests of theirs; if those differ,
/// all send their versions.
pub async fn reconcile(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    (first, last): (i64, i64),
) -> Result<(), RangeError> {
    // What this node has does not go through the network.
    let own = context.node.host_id;
    let nearest = batch.members.iter().position(|member| member.host_id == own).unwrap_or(0);
    let (mut start, end) = token_bounds(&(first..=last));
    loop {
        run.check(&context.node)?;
        let request = ReadRequest {
            epoch: batch.epoch,
            table_id: u128::from_be_bytes(batch.table.0),
            start: start.clone(),
            end: end.clone(),
            reversed: false,
            now_seconds: batch.now_seconds,
            live_rows: u64::MAX,
            bytes: ANSWER_BYTES,
            tombstones: u64::MAX,
            wants: Wants::Data,
        };
        if batch.mended.is_some() {
            match make_equal(context, run, batch, &request).await? {
                Some(resume) => start = resume,
                None => return Ok(()),
            }
            continue;
        }
        let asked = batch.members.iter().enumerate().map(|(index, member)| {
            let wants = if index == nearest { Wants::Data } else { Wants::Digest };
            said(context, run, member, ReadRequest { wants, ..request.clone() })
        });
        let answers = futures::future::try_join_all(asked).await?;
        let resume = match equal(&answers) {
            Some(versions) => versions.resume.clone(),
            None => make_equal(context, run, batch, &request).await?,
        };
        let Some(resume) = resume else { return Ok(()) };
        start = resume;
    }
}

/// The one answer with versions, if the digests of the others are of the same versions.
fn equal(answers: &[Said]) -> Option<&ReplicaVersions> {
    let versions = answers.iter().find_map(|said| match said {
        Said::Data(versions) => Some(versions),
        Said::Digest(_) => None,
    })?;
    let digest = versions.digest();
    let is_equal = answers.iter().all(|said| match said {
        Said::Data(_) => true,
        Said::Digest(other) => *other == digest,
    });
    is_equal.then_some(versions)
}

/// Reads the versions of all, merges them, and writes to each replica what it lacks. Returns where the merge ends.
async fn make_equal(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    request: &ReadRequest,
) -> Result<Option<Vec<u8>>, RangeError> {
    let read_micros = context.clock.now_micros();
    let asked = batch.members.iter().map(|member| {
        let wants = if batch.mends(member) { Wants::AllVersionsAroundDamage } else { Wants::AllVersions };
        versions(context, run, member, ReadRequest { wants, ..request.clone() })
    });
    let versions: Vec<ReplicaVersions> = futures::future::try_join_all(asked).await?;
    let parts = versions.iter().map(|versions| ReplicaAnswer {
        partitions: &versions.partitions,
        resume: versions.resume.as_deref(),
    });
    let merged = reconcile_answers(&parts.collect::<Vec<_>>(), false, batch.now_seconds)
        .map_err(|error| failed(&batch.members[0], error))?;
    if context.has_bug(PlantedBug::DropRepair) {
        return Ok(merged.resume);
    }
    refuse_doubtful(context, batch, &versions)?;
    let writes = batch.members.iter().zip(&merged.lacking).map(|(member, lacking)| async move {
        let is_written = batch.mended.is_none() || batch.mends(member);
        let lacking = lacking.iter().filter(|_| is_written);
        let writes = lacking.map(|mutation| write(context, run, batch, member, mutation, read_micros));
        futures::stream::iter(writes).buffer_unordered(WRITES_AT_A_TIME).try_collect::<()>().await
    });
    futures::future::try_join_all(writes).await?;
    Ok(merged.resume)
}

/// Refuses what only a replica has that is being mended, and that is older than the other replicas keep deletions: by now, and by the options
/// that the table has now. What they had when they were read has come with their versions.
fn refuse_doubtful(
    context: &ShardContext,
    batch: &Batch,
    versions: &[ReplicaVersions],
) -> Result<(), RangeError> {
    if batch.mended.is_none() {
        return Ok(());
    }
    let Some(mended) = batch.members.iter().position(|member| batch.mends(member)) else { return Ok(()) };
    let mended_member = &batch.members[mended];
    let resume = versions[mended].resume.as_deref();
    let mut alone = versions[mended].partitions.clone();
    for other in (0..versions.len()).filter(|other| *other != mended) {
        let other = &versions[other];
        let answers = [
            ReplicaAnswer { partitions: &other.partitions, resume: other.resume.as_deref() },
            ReplicaAnswer { partitions: &alone, resume },
        ];
        let merged = reconcile_answers(&answers, false, batch.now_seconds);
        let mut lacking = merged.map_err(|error| failed(mended_member, error))?.lacking;
        alone = lacking.swap_remove(0);
    }
    let view = context.catalog_view();
    let table = view.table(batch.table).ok_or_else(|| failed(mended_member, "the table was dropped"))?;
    let purged_before_micros = table.options.purged_before_micros(context.clock.now_micros());
    for mutation in &alone {
        let sets_early =
            mutation.view().and_then(|view| view.sets_before(purged_before_micros, batch.now_seconds));
        if sets_early.map_err(|error| failed(mended_member, error))? {
            let reason = "a file is damaged, and what only this replica has besides is older than gc_grace_seconds: what has \
                          deleted it may have been in the file. Put the file back, or have it given up by `helenus admin \
                          scrub --skip-corrupted`";
            return Err(failed(mended_member, reason));
        }
    }
    Ok(())
}

/// The versions that a replica has, with what compaction may have purged.
async fn versions(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Member,
    request: ReadRequest,
) -> Result<ReplicaVersions, RangeError> {
    let RepairResponse::Versions(ReadAnswer::Data { partitions, resume }) =
        ask_repair(context, run, member, &RepairRequest::Versions(request)).await?
    else {
        return Err(failed(member, "not the versions that were asked for"));
    };
    let versions = ReplicaVersions::decode(partitions, resume).map_err(|error| failed(member, error))?;
    run.note_received(bytes_sent(context, member, &versions.partitions));
    Ok(versions)
}

/// Writes a mutation to a replica that lacks it. One that is overloaded is waited for.
async fn write(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    member: &Member,
    mutation: &Mutation,
    read_micros: i64,
) -> Result<(), RangeError> {
    let mut pace = RepairRuns::of(&context.node).pace(&context.node.config);
    pace.spend(mutation.bytes().len() as u64, &*context.clock).await;
    let mut overloads = 0;
    loop {
        if context.replication().hints.is_truncated(&batch.table, read_micros) {
            return Ok(());
        }
        let deadline = context.clock.monotonic() + DEADLINE;
        let written = write_missing(context, batch.epoch, member, mutation, deadline);
        match while_alive(context, run, member, Box::pin(written)).await? {
            Ok(()) => break,
            Err(
                PeerError::Failed(Failure::Overloaded(_)) | PeerError::Call(CallError::Overloaded { .. }),
            ) if overloads < OVERLOADS_MAX => {
                overloads += 1;
                context.clock.sleep(OVERLOAD_PAUSE).await;
                run.check(&context.node)?;
            }
            Err(error) => return Err(RangeError::of_peer(member, error)),
        }
    }
    run.note_written(bytes_sent(context, member, std::slice::from_ref(mutation)));
    context.metrics.repair_mutations.increment();
    Ok(())
}

/// Bytes that these mutations are between this node and another.
fn bytes_sent(context: &ShardContext, member: &Member, mutations: &[Mutation]) -> u64 {
    if member.host_id == context.node.host_id {
        return 0;
    }
    mutations.iter().map(|mutation| mutation.bytes().len() as u64).sum()
}

async fn said(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Arc<Member>,
    request: ReadRequest,
) -> Result<Said, RangeError> {
    let deadline = context.clock.monotonic() + DEADLINE;
    let asked = ask(context.clone(), member.clone(), request, deadline);
    let (_, _, said) = while_alive(context, run, member, Box::pin(asked)).await?;
    let said = said.map_err(|error| RangeError::of_peer(member, error))?;
    if let Said::Data(versions) = &said {
        run.note_received(bytes_sent(context, member, &versions.partitions));
    }
    Ok(said)
}

fn failed(member: &Member, reason: impl std::fmt::Display) -> RangeError {
    RangeError::Replica { host_id: member.host_id, reason: reason.to_string() }
}
