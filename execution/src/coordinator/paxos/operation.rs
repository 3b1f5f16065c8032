//! An operation that the replicas of a partition must agree on, and its participants.

use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_ring::member::Member;

use super::ballot::SerialScope;
use super::message::{PartitionName, PaxosOrder, ReadOrder, TableRead};
use super::proposer::{Electorate, Question};
use crate::shard::context::ShardContext;

/// An operation to be agreed on.
#[derive(Debug, Clone)]
pub struct Operation {
    pub table: Arc<Table>,
    pub key: PartitionKey,
    /// SERIAL or `LOCAL_SERIAL`.
    pub serial: Consistency,
    /// False: a read, which other operations may overtake.
    pub is_write: bool,
    /// All replicas must agree, not only a quorum.
    pub is_unanimous: bool,
    /// What is read of other tables along with the promises, before `read`.
    pub read_before: Vec<TableRead>,
    pub read: ReadOrder,
    /// Monotonic time of the clock.
    pub deadline: Duration,
}

/// The participating replicas, in the order of the proposer's numbers.
pub(super) struct Participants {
    pub(super) epoch: u64,
    pub(super) members: Vec<Arc<Member>>,
    pub(super) electorate: Electorate,
    pub(super) is_alive: Vec<bool>,
}

impl Operation {
    pub fn name(&self) -> PartitionName {
        PartitionName {
            table_id: *self.table.id.as_bytes(),
            token: self.key.token,
            key: self.key.bytes.clone(),
        }
    }

    /// The number of ranges that are read before those of `read`.
    pub fn ranges_before(&self) -> usize {
        self.read_before.iter().map(|before| before.order.ranges.len()).sum()
    }

    /// A question to a participant. `is_read`: it reads what it is to read, too.
    pub(super) fn order(&self, question: Question, is_read: bool) -> PaxosOrder {
        if !is_read {
            return PaxosOrder::Ask { question, read: None };
        }
        let read = self.read.clone();
        if self.read_before.is_empty() {
            return PaxosOrder::Ask { question, read: Some(read) };
        }
        let own = TableRead { table_id: *self.table.id.as_bytes(), order: read };
        PaxosOrder::AskOfTables {
            question,
            reads: self.read_before.iter().cloned().chain(std::iter::once(own)).collect(),
        }
    }

    pub(super) fn scope(&self) -> SerialScope {
        if self.serial == Consistency::LocalSerial { SerialScope::Local } else { SerialScope::Global }
    }

    /// Whether a replica participates in the agreement.
    pub fn is_participant(&self, context: &ShardContext, member: &Member) -> bool {
        self.scope() == SerialScope::Global || member.data_center == context.node.config.data_center
    }

    pub(super) fn participants(&self, context: &ShardContext) -> Result<Participants> {
        let view = context.cluster();
        let placement = view.placement(&self.table.keyspace).ok_or_else(|| {
            RequestError::invalid(format!("keyspace {} does not exist", self.table.keyspace))
        })?;
        let replicas = placement.replicas(self.key.token);
        let takes_part = |member: &&Arc<Member>| self.is_participant(context, member);
        let natural = replicas.read.iter().filter(takes_part).count();
        let members: Vec<Arc<Member>> = replicas.all().filter(takes_part).cloned().collect();
        let pending = members.len() - natural;
        let given_up = replicas.other.as_ref().map_or(0, |other| {
            let is_given_up = |member: &&Arc<Member>| !other.members.contains(&member.host_id);
            replicas.read.iter().filter(takes_part).filter(is_given_up).count()
        });
        let electorate = Electorate { natural, pending, given_up, is_unanimous: self.is_unanimous };
        let is_alive: Vec<bool> = members.iter().map(|member| view.is_alive(&member.host_id)).collect();
        let alive = is_alive.iter().filter(|alive| **alive).count();
        if alive < electorate.quorum() {
            return Err(RequestError::Unavailable {
                consistency: self.serial,
                required: electorate.quorum() as u32,
                alive: alive as u32,
            });
        }
        Ok(Participants { epoch: view.topology.epoch, members, electorate, is_alive })
    }
}
