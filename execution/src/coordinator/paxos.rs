//! Lightweight transactions between replicas: Paxos for each partition, as in the second version of Cassandra's
//! Paxos.
//!
//! Without I/O, and checked by a model in `tests`: [`ballot`], [`state`] (the registers of a replica), [`proposer`].
//! Around them: [`store`] (registers in the engine), [`replica`] (the replica's side), [`round`] (the coordinator's
//! side), [`commit`] (an agreed mutation on its way to all replicas), [`reading`] (merges the rows read by a quorum),
//! [`serial`] (reads), [`partition_queue`] and [`lease`] (the order of competing transactions: on one node, and between nodes),
//! [`settle`] (forgetting), [`open`] (what a repair settles), [`late_commit`] and [`truncation`] (what must not be applied any more). `docs/decisions/0009-paxos.md` explains each message.

pub mod ballot;
pub mod commit;
pub mod contention;
mod held_lease;
pub mod late_commit;
pub mod lease;
pub mod message;
pub mod open;
pub mod operation;
pub mod partition_queue;
pub mod proposer;
pub mod reading;
pub mod replica;
pub mod round;
pub mod serial;
pub mod settle;
pub mod silent_replicas;
pub mod state;
pub mod store;
pub mod truncation;

#[cfg(test)]
mod tests;
