//! Plans with bound values carried out: addresses, mutations, rows.

pub mod condition;
pub mod evaluate;
pub mod keys;
pub mod modify;
pub mod paging;
pub mod select;
