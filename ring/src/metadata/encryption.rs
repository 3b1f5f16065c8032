//! Tables whose files are encrypted on every member: none of them enters the catalog while a member does not encrypt, and no such member comes
//! while the catalog has one. Both are decided by the log, so neither can overtake the other.
//!
//! A member counts as it was when it last announced itself, also while it is down.

use helenus_query::schema::catalog::{Catalog, Keyspace};

use super::command::{CommandOutcome, Refusal};
use super::outcome::refuse;
use crate::member::HostId;
use crate::topology::Topology;

/// Refuses a schema change by which a table has to be encrypted that some member would keep plain.
pub(super) fn check_change(topology: &Topology, old: &Catalog, new: &Catalog) -> Result<(), CommandOutcome> {
    let Some(plain) = topology.members.values().find(|member| !member.encrypts_tables) else { return Ok(()) };
    for keyspace in new.keyspaces.values() {
        let changed =
            Keyspace::table_differences(old.keyspace(&keyspace.name).map(AsRef::as_ref), Some(keyspace));
        let changed = changed.into_iter().filter_map(|(_, table)| table);
        if let Some(table) = changed.into_iter().find(|table| table.options.is_encrypted) {
            let (keyspace, table) = (keyspace.name.clone(), table.name.clone());
            return refuse(Refusal::PlainMember { host_id: plain.host_id, keyspace, table });
        }
    }
    Ok(())
}

/// Refuses a member that would keep encrypted tables plain.
pub(super) fn check_member(catalog: &Catalog, host_id: HostId, encrypts: bool) -> Result<(), CommandOutcome> {
    match catalog.encrypted_table().filter(|_| !encrypts) {
        Some((keyspace, table)) => {
            let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
            refuse(Refusal::PlainMember { host_id, keyspace, table })
        }
        None => Ok(()),
    }
}
