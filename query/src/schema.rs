//! The schema: keyspaces, tables and types, the statements that change them, and the tables and statements that show
//! them.

pub mod catalog;
pub mod constraint;
pub mod ddl;
pub mod document;
pub mod index;
pub mod index_terms;
pub mod mask;
pub mod options;
pub mod selection;
pub mod store;
pub mod system_keyspaces;
pub mod system_tables;
#[cfg(any(test, feature = "testing"))]
pub mod test_catalog;
pub mod type_order;
pub mod user_functions;
pub mod view;
pub mod virtual_tables;
