//! Catalogs for tests of statements.

use std::sync::Arc;

use cql_lite::syntax;
use uuid::Uuid;

use crate::schema::catalog::CatalogView;
use crate::schema::ddl::{self, DdlContext};
use crate::schema::options::DataCenters;
use crate::schema::system_tables::initial_catalog;

/// The catalog of a node on which these statements were executed.
pub fn catalog_of(statements: &[&str]) -> CatalogView {
    let mut catalog = Arc::new(initial_catalog(Uuid::from_u128(1)));
    for (number, text) in (2..).zip(statements) {
        let context = DdlContext {
            now_micros: 1,
            new_table_id: Uuid::from_u128(number),
            new_version: Uuid::from_u128(number),
            data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
        };
        catalog = ddl::execute(&catalog, &syntax::parse(text).unwrap(), None, &context).unwrap().catalog;
    }
    CatalogView::new(1, catalog)
}
