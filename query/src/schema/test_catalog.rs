//! Catalogs for tests of statements, here and (with the feature `testing`) in other crates.

#![allow(clippy::panic, reason = "a test that cannot be set up fails")]

use std::sync::Arc;

use cql_lite::syntax;
use cql_lite::syntax::ast::{QualifiedName, Statement};
use uuid::Uuid;

use crate::functions::user::{UserFunction, UserFunctionRuntime};
use crate::schema::catalog::{Catalog, CatalogView};
use crate::schema::ddl::{self, DdlContext};
use crate::schema::options::DataCenters;
use crate::schema::system_tables::initial_catalog;
use crate::schema::view::View;

/// Makes the keyspace [`KEYSPACE`] with one replica.
pub const CREATE_KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
/// The keyspace of names without one.
pub const KEYSPACE: &str = "ks";

/// A runtime that takes every function, and calls none.
#[derive(Debug)]
pub struct EveryFunction;

impl UserFunctionRuntime for EveryFunction {
    fn is_enabled(&self) -> bool {
        true
    }

    fn check(&self, _: &UserFunction) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, function: &Arc<UserFunction>, _: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, String> {
        Err(format!("{} is not called", function.full_name()))
    }

    fn steps_on_this_thread(&self) -> u64 {
        0
    }
}

/// The catalog of a node on which these statements were run, in this order.
///
/// Ids of tables and versions of the schema are numbers that follow from the order of the statements.
pub fn catalog_of<S: AsRef<str>>(statements: &[S]) -> CatalogView {
    let start = CatalogView::new(1, Arc::new(initial_catalog(Uuid::nil())));
    (1_u128..).zip(statements).fold(start, |view, (number, text)| changed(&view, number, text.as_ref()))
}

/// The catalog in which the table of that name is the view that a CREATE PROJECTION or CREATE MATERIALIZED VIEW creates. The table and what it
/// is computed of exist; that its columns are those of the view is not looked at.
pub fn with_view(view: &CatalogView, text: &str) -> CatalogView {
    let Ok(Statement::CreateView(statement)) = syntax::parse(text) else { panic!("{text}") };
    let keyspace_of = |name: &QualifiedName| {
        name.keyspace.as_ref().map_or(KEYSPACE, |keyspace| keyspace.as_str()).to_owned()
    };
    let source = |name: &QualifiedName| {
        let table = view.catalog.table(&keyspace_of(name), name.name.as_str());
        table.unwrap_or_else(|| panic!("{text}: {name}")).id
    };
    let (base, joined) = (source(&statement.from), statement.join.as_ref().map(|join| source(&join.table)));
    let mut catalog = Catalog::clone(&view.catalog);
    let keyspace = catalog.keyspaces.get_mut(&keyspace_of(&statement.name));
    let tables = keyspace.map(|keyspace| &mut Arc::make_mut(keyspace).tables);
    let table = tables.and_then(|tables| tables.get_mut(statement.name.name.as_str()));
    let table = Arc::make_mut(table.unwrap_or_else(|| panic!("{text}: {}", statement.name)));
    table.view = Some(Arc::new(View { base, joined, build: None, statement }));
    CatalogView::new(view.generation, Arc::new(catalog))
}

/// The catalog after one more statement, which is the `number`th since the start. Keyspaces that it does not change are
/// shared with the catalog before it.
pub fn changed(view: &CatalogView, number: u128, text: &str) -> CatalogView {
    let context = DdlContext {
        now_micros: 1_700_000_000_000_000,
        new_id: Uuid::from_u128(number),
        new_version: Uuid::from_u128(number << 64),
        data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
        user_functions: &EveryFunction,
        may_drop_compact_storage: true,
    };
    let statement = syntax::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let change = ddl::execute(&view.catalog, &statement, Some(KEYSPACE), &context);
    let catalog = change.unwrap_or_else(|error| panic!("{text}: {error}")).catalog;
    CatalogView::new(view.generation, catalog)
}
