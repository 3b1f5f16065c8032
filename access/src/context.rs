//! What statements about roles are decided on.

use std::collections::BTreeSet;

use helenus_query::error::Result;
use helenus_query::schema::catalog::Catalog;

use crate::subject::{Subject, check_data_center};

/// The client, and what it meets.
#[derive(Debug, Clone, Copy)]
pub struct RolesContext<'a> {
    pub subject: Subject<'a>,
    pub catalog: &'a Catalog,
    /// The keyspace of tables without one.
    pub keyspace: Option<&'a str>,
    pub data_centers: &'a BTreeSet<String>,
    /// Clients log in with passwords or certificates.
    pub has_logins: bool,
    /// The data center of this node where `ACCESS TO DATACENTERS` is obeyed.
    pub data_center: Option<&'a str>,
    /// `ACCESS FROM CIDRS` is obeyed.
    pub restricts_networks: bool,
}

impl<'a> RolesContext<'a> {
    /// The role, or the refusal of who is anonymous or may not work in this data center.
    pub(crate) fn logged_in(&self) -> Result<&'a str> {
        let user = self.subject.logged_in()?;
        if let Some(data_center) = self.data_center {
            check_data_center(self.subject.roles, user, data_center)?;
        }
        Ok(user)
    }
}
