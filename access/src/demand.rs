//! What a statement may need.

use helenus_query::schema::catalog::Table;
use helenus_roles::{Permission, Resource};

/// One thing that a statement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand {
    Permission {
        permission: Permission,
        resource: Resource,
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
