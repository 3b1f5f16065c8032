//! Lightweight transactions between replicas: Paxos for each partition, as in the second version of Cassandra's
//! Paxos.
//!
//! Without I/O, and checked by a model in `tests`: [`ballot`], [`state`] (the registers of a replica), [`proposer`].
//! Around them: [`store`] (registers in the engine), [`replica`] (the replica's side), [`round`] (the coordinator's
//! side), [`commit`] (an agreed mutation on its way to all replicas), [`reading`] (merges the rows read by a quorum),
//! [`serial`] (reads), [`partition_queue`] and [`lease`] (the order of competing transactions: on one node, and between nodes),
//! [`settle`] (forgetting). `docs/decisions/0009-paxos.md` explains each message.

pub(crate) mod ballot;
pub(crate) mod commit;
pub(crate) mod contention;
mod held_lease;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod partition_queue;
pub(crate) mod proposer;
pub(crate) mod reading;
pub(crate) mod replica;
pub(crate) mod round;
pub(crate) mod serial;
pub(crate) mod settle;
pub(crate) mod silent_replicas;
pub(crate) mod state;
pub(crate) mod store;

#[cfg(test)]
mod tests;
