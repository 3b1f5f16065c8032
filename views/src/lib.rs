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

pub mod computation;
pub mod condition;
pub mod definition;
pub mod statements;
