//! Execution of plans with bound values: computes addresses, mutations and rows.

pub mod condition;
pub mod evaluate;
pub mod keys;
pub mod modify;
pub mod paging;
pub mod row_filters;
pub mod select;
pub mod table_extensions;
pub mod timeout;
pub mod transaction;
