//! Lightweight transactions between replicas: Paxos for each partition, in the manner of Cassandra's second version.
//!
//! Pure, and proven by a model in `tests`: [`ballot`], [`state`] (a replica's registers), [`proposer`]. Around it: [`store`]
//! (registers in the engine), [`replica`] (a replica's side), [`round`] (a coordinator's side), [`commit`] (what was agreed, on
//! its way to all replicas), [`reading`] (what a quorum has read, merged), [`serial`] (reads); [`turns`] and [`lease`] (who comes
//! first, of one node and of several), [`settle`] (forgetting). What each message means is said in `docs/decisions/0009-paxos.md`.

pub mod ballot;
pub mod commit;
pub mod contention;
mod held_lease;
pub mod lease;
pub mod message;
pub mod operation;
pub mod proposer;
pub mod reading;
pub mod replica;
pub mod round;
pub mod serial;
pub mod settle;
pub mod silent_replicas;
pub mod state;
pub mod store;
pub mod turns;

#[cfg(test)]
mod tests;
