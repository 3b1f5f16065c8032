//! Merges the data that the participants of a round have read.

use helenus_engine::Mutation;
use helenus_engine::read::reconcile_answers::{Reconciled, ReplicaAnswer, reconcile_answers};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::select::Met;

use super::message::ReadAnswer;
use crate::coordinator::read_thresholds;
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// Merges the answers to the range with index `range` of the order, and says what was met for them. The caller leaves out answers that ended
/// before it.
pub fn merge_range(
    context: &ShardContext,
    reads: &[ReadAnswer],
    range: usize,
    reversed: bool,
    now_seconds: u32,
) -> Result<(Reconciled, Met)> {
    let malformed =
        |error: helenus_engine::DecodeError| RequestError::Server(format!("a replica's answer: {error}"));
    let mut parsed: Vec<(Vec<Mutation>, Option<&[u8]>)> = Vec::with_capacity(reads.len());
    for versions in reads.iter().filter_map(|read| read.get(range)) {
        let mut partitions = Vec::with_capacity(versions.partitions.len());
        for bytes in &versions.partitions {
            partitions.push(Mutation::from_bytes(bytes.clone().into()).map_err(malformed)?);
        }
        parsed.push((partitions, versions.resume.as_deref()));
    }
    let answers: Vec<ReplicaAnswer<'_>> =
        parsed.iter().map(|(partitions, resume)| ReplicaAnswer { partitions, resume: *resume }).collect();
    let merged = reconcile_answers(&answers, reversed, now_seconds)
        .map_err(|error| RequestError::Server(format!("a replica's answer: {error}")))?;
    receipt::count_range(answers.len() as u64);
    let partitions = answers.iter().map(|answer| answer.partitions);
    receipt::count_merged(&merged.rows, partitions.clone(), now_seconds);
    let met = read_thresholds::met_by_answers(context, partitions, now_seconds);
    Ok((merged, met))
}
