//! Lightweight transactions between replicas: Paxos for each partition, in the manner of Cassandra's second version.
//!
//! Pure, and proven by a model in `tests`: [`ballot`], [`state`] (a replica's registers), [`proposer`]. Around it: [`store`]
//! (registers in the engine), [`replica`] (a replica's side), [`round`] (a coordinator's side), [`commit`] (what was agreed, on
//! its way to all replicas), [`reading`] (what a quorum has read, merged), [`serial`] (reads); [`turns`] and [`lease`] (who comes
//! first, of one node and of several), [`settle`] (forgetting). What each message means is said in `docs/decisions/0009-paxos.md`.

pub(crate) mod ballot;
pub(crate) mod commit;
pub(crate) mod contention;
mod held_lease;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod proposer;
pub(crate) mod reading;
pub(crate) mod replica;
pub(crate) mod round;
pub(crate) mod serial;
pub(crate) mod settle;
pub(crate) mod silent_replicas;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod turns;

#[cfg(test)]
mod tests;
