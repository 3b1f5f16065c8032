//! The schema: what keyspaces, tables and types there are, how statements change them, and how they are shown.

pub mod catalog;
pub mod ddl;
pub mod describe;
pub mod document;
pub mod options;
pub mod store;
pub mod system_keyspaces;
#[cfg(test)]
pub(crate) mod test_catalog;
pub mod virtual_tables;
