//! Plans with bound values carried out: addresses, mutations, rows.

pub mod condition;
pub mod direct;
pub mod evaluate;
pub mod keys;
pub mod modify;
pub mod paging;
pub mod row;
pub mod select;
#[cfg(test)]
pub(crate) mod test_catalog;
