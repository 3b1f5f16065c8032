//! The catalog of an application, as the statements of its file make it, and as it would be with one more.

use std::sync::Arc;

use cql_lite::syntax::{self, ast};
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::user::NoUserFunctions;
use helenus_query::plan::{Plan, plan};
use helenus_query::schema::catalog::{Catalog, Replication, Table};
use helenus_query::schema::ddl::DdlContext;
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::system_tables::initial_catalog;
use helenus_views::following::followed;
use helenus_views::statement;
use uuid::Uuid;

/// The keyspace of names without one, before a USE.
const DEFAULT_KEYSPACE: &str = "app";
/// The number of nodes that a data center is assumed to have: enough for any replication factor.
const NODES: usize = 1_000;

/// The schema of an application.
#[derive(Debug, Clone)]
pub struct Schema {
    catalog: Arc<Catalog>,
    keyspace: String,
    /// Of keyspaces that are made because a table is to be in them.
    replicas: u32,
    /// Changes so far: ids of tables follow from it.
    changes: u128,
}

impl Schema {
    pub fn new(replicas: u32) -> Self {
        Self {
            catalog: Arc::new(initial_catalog(Uuid::nil())),
            keyspace: DEFAULT_KEYSPACE.to_owned(),
            replicas,
            changes: 0,
        }
    }

    pub fn use_keyspace(&mut self, name: &str) {
        name.clone_into(&mut self.keyspace);
    }

    /// The keyspace and the name of a table.
    pub fn resolved(&self, name: &ast::QualifiedName) -> (String, String) {
        let keyspace = name.keyspace.as_ref().map_or(self.keyspace.as_str(), |keyspace| keyspace.as_str());
        (keyspace.to_owned(), name.name.as_str().to_owned())
    }

    /// Carries out a statement about the schema. The keyspace of a table or type is made if there is none.
    pub fn change(&mut self, statement: &ast::Statement) -> Result<()> {
        let of = match statement {
            ast::Statement::CreateTable(create) => Some(&create.table),
            ast::Statement::CreateType(create) => Some(&create.name),
            _ => None,
        };
        if let Some((keyspace, _)) = of.map(|name| self.resolved(name))
            && self.catalog.keyspace(&keyspace).is_none()
        {
            let name = ast::Identifier::quoted(keyspace);
            let replication =
                format!("{{'class': 'SimpleStrategy', 'replication_factor': {}}}", self.replicas);
            self.carry_out(&parsed(&format!("CREATE KEYSPACE {name} WITH replication = {replication}"))?)?;
        }
        self.carry_out(statement)
    }

    fn carry_out(&mut self, statement: &ast::Statement) -> Result<()> {
        self.changes += 1;
        let context = DdlContext {
            now_micros: 0,
            new_id: Uuid::from_u128(self.changes),
            new_version: Uuid::from_u128(self.changes << 64),
            data_centers: data_centers(statement),
            user_functions: &NoUserFunctions,
            may_drop_compact_storage: false,
        };
        let change = statement::execute(&self.catalog, statement, Some(&self.keyspace), &context)?;
        self.catalog = followed(&self.catalog, change, &context)?.catalog;
        Ok(())
    }

    /// The schema after statements more.
    pub fn with(&self, statements: &[String]) -> Result<Self> {
        let mut after = self.clone();
        for text in statements {
            after.change(&parsed(text)?)?;
        }
        Ok(after)
    }

    /// Plans a read or write.
    pub fn plan(&self, statement: ast::Statement) -> Result<Plan> {
        plan(statement, &self.catalog, Some(&self.keyspace)).map(|planned| planned.plan)
    }

    pub fn table(&self, name: &ast::QualifiedName) -> Option<&Arc<Table>> {
        let (keyspace, name) = self.resolved(name);
        self.catalog.table(&keyspace, &name)
    }

    /// The tables of a keyspace, and its views.
    pub fn tables(&self, keyspace: &str) -> impl Iterator<Item = &Arc<Table>> {
        let tables =
            self.catalog.keyspace(keyspace).into_iter().flat_map(|keyspace| keyspace.tables.values());
        tables.filter(|table| !table.is_hidden())
    }

    /// Replicas of each row of a table.
    pub fn replicas(&self, table: &Table) -> u64 {
        self.replication(table).map_or(1, |replication| u64::from(replication.replica_count()))
    }

    /// Those of them in the data center that has the most.
    pub fn local_replicas(&self, table: &Table) -> u64 {
        match self.replication(table) {
            Some(Replication::NetworkTopology { data_centers }) => {
                data_centers.values().max().map_or(0, |replicas| u64::from(*replicas))
            }
            _ => self.replicas(table),
        }
    }

    fn replication(&self, table: &Table) -> Option<&Replication> {
        self.catalog.keyspace(&table.keyspace).map(|keyspace| &keyspace.replication)
    }
}

fn parsed(text: &str) -> Result<ast::Statement> {
    syntax::parse(text).map_err(|error| RequestError::Syntax(error.to_string()))
}

/// The data centers that a statement names: they are taken to exist.
fn data_centers(statement: &ast::Statement) -> DataCenters {
    let mut centers = DataCenters::default();
    if let ast::Statement::CreateKeyspace(create) = statement {
        for property in &create.properties {
            let ast::PropertyValue::Map(entries) = &property.value else { continue };
            let names = entries.iter().filter_map(|(name, _)| name.raw_text());
            let names = names.filter(|name| !["class", "replication_factor"].contains(&name.as_str()));
            centers.extend(names.map(|name| (name, NODES)));
        }
    }
    if centers.is_empty() {
        centers.insert("datacenter1".to_owned(), NODES);
    }
    centers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_those_of_the_data_centers_that_are_named_or_of_one() {
        for (replication, all, local) in [
            ("'SimpleStrategy', 'replication_factor': 3", 3, 3),
            ("'NetworkTopologyStrategy', 'replication_factor': 3", 3, 3),
            ("'NetworkTopologyStrategy', 'east': 3, 'west': 2", 5, 3),
            ("'NetworkTopologyStrategy', 'replication_factor': 3, 'west': 2", 2, 2),
        ] {
            let statements = [
                format!("CREATE KEYSPACE k WITH replication = {{'class': {replication}}}"),
                "CREATE TABLE k.t (a int PRIMARY KEY)".to_owned(),
            ];
            let schema = Schema::new(1).with(&statements).unwrap();
            let table = schema.tables("k").next().unwrap();
            assert_eq!((schema.replicas(table), schema.local_replicas(table)), (all, local), "{replication}");
        }
    }
}
