//! Consistency levels: how many replicas a request asks for, and whether that many are alive.
//!
//! A cluster of one node has one live replica of everything. Levels that ask for more are refused as Cassandra does, so that
//! nobody takes an answer for safer than it is.

use cql_lite::frame::Consistency;

use crate::error::{RequestError, Result};
use crate::schema::catalog::{Catalog, Replication, Table, TableKind};
use crate::schema::system_keyspaces;

/// What a request does with its replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// A lightweight transaction: its level is that of the commit.
    Conditional,
}

/// Refuses a level that does not fit the request or that the live replicas cannot give.
pub fn check(catalog: &Catalog, table: &Table, consistency: Consistency, access: Access) -> Result<()> {
    if table.kind == TableKind::Virtual || system_keyspaces::is_system(&table.keyspace) {
        return Ok(());
    }
    if access == Access::Read && consistency == Consistency::Any {
        return Err(RequestError::invalid("ANY ConsistencyLevel is only supported for writes"));
    }
    if access == Access::Write && consistency.is_serial() {
        return Err(RequestError::invalid("You must use conditional updates for serializable writes"));
    }
    let replicas = catalog.keyspace(&table.keyspace).map_or(1, |keyspace| match &keyspace.replication {
        Replication::Local => 1,
        Replication::Simple { replication_factor } => *replication_factor,
        Replication::NetworkTopology { data_centers } => data_centers.values().sum(),
    });
    let quorum = replicas / 2 + 1;
    let required = match consistency {
        Consistency::Any | Consistency::One | Consistency::LocalOne | Consistency::NodeLocal => 1,
        Consistency::Two => 2,
        Consistency::Three => 3,
        Consistency::All => replicas,
        Consistency::Quorum
        | Consistency::LocalQuorum
        | Consistency::EachQuorum
        | Consistency::Serial
        | Consistency::LocalSerial => quorum,
    };
    let alive = replicas.min(1);
    if required > alive {
        return Err(RequestError::Unavailable { consistency, required, alive });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn system_tables_answer_at_every_level() {
        let catalog = system_keyspaces::initial_catalog(Uuid::nil());
        let local = catalog.table("system", "local").unwrap();
        check(&catalog, local, Consistency::All, Access::Read).unwrap();
        check(&catalog, local, Consistency::Three, Access::Read).unwrap();
    }

    #[test]
    fn more_replicas_than_live_are_unavailable() {
        let mut catalog = system_keyspaces::initial_catalog(Uuid::nil());
        let mut keyspace = (**catalog.keyspace("system_traces").unwrap()).clone();
        keyspace.name = "shop".to_owned();
        keyspace.replication = Replication::Simple { replication_factor: 3 };
        let mut table = (*keyspace.tables["sessions"]).clone();
        table.keyspace = "shop".to_owned();
        catalog.keyspaces.insert("shop".to_owned(), std::sync::Arc::new(keyspace));
        check(&catalog, &table, Consistency::One, Access::Read).unwrap();
        let error = check(&catalog, &table, Consistency::Quorum, Access::Write).unwrap_err();
        assert_eq!(error.to_string(), "Cannot achieve consistency level QUORUM");
        assert!(check(&catalog, &table, Consistency::Any, Access::Read).is_err());
        assert!(check(&catalog, &table, Consistency::Serial, Access::Write).is_err());
    }
}
