//! Views: tables whose rows are computed of those of a base table. `CREATE MATERIALIZED VIEW` is Cassandra's, `CREATE PROJECTION` has
//! expressions, aggregates and columns that are looked up in another table.
//!
//! Nothing here reads a clock, a disk or a shard: the coordinator keeps the rows of views true.
//!
//! | module | concept |
//! |---|---|
//! | [`definition`] | what a view is computed of, resolved against the tables |
//! | [`statements`] | the statements by which the node keeps its rows true |
//! | [`condition`] | what the values of a row have to fulfil |
//! | [`computation`] | the row of a view by the values of its unit |
//! | [`statement`] | CREATE, ALTER and DROP of views; what other statements may not do with tables of views |
//! | [`following`] | how views and the tables beside them follow the tables that they are computed of |

pub mod computation;
pub mod condition;
mod defining;
pub mod definition;
mod expression;
pub mod following;
mod hidden;
mod names;
mod refusal;
mod resolving;
pub mod statement;
pub mod statements;

#[cfg(test)]
mod tests;
