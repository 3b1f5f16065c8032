//! Lightweight transactions between replicas: Paxos for each partition.

pub mod ballot;
pub mod proposer;
pub mod state;

#[cfg(test)]
mod tests;
