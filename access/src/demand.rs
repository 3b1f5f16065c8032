//! What a statement may need.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_query::schema::catalog::Table;
use helenus_roles::{Permission, Resource};

/// One thing that a statement needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Demand {
    Permission {
        permission: Permission,
        resource: Resource,
    },
    /// The permission on the table, or else on each of these columns. With none of them, on any column: something is learnt of the table
    /// then, but nothing of what its columns hold.
    Columns {
        permission: Permission,
        table: Arc<Table>,
        /// Indexes in [`Table::columns`].
        columns: BTreeSet<usize>,
    },
    /// SELECT on the log of a change feed, as `Columns`, or else on its base table. What masks hide in that is not hidden in the log.
    FeedLog {
        log: Arc<Table>,
        columns: BTreeSet<usize>,
        base: Arc<Table>,
    },
    /// To restrict masked columns shows what they hide.
    MaskedColumns {
        keyspace: String,
        table: String,
        columns: Vec<String>,
    },
    /// `refusal`: what others are told.
    Superuser {
        refusal: &'static str,
    },
}

impl Demand {
    pub(crate) fn new(permission: Permission, resource: Resource) -> Self {
        Self::Permission { permission, resource }
    }

    pub(crate) fn on(permission: Permission, table: &Table) -> Self {
        Self::new(permission, Resource::table(&table.keyspace, &table.name))
    }
}
