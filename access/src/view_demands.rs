//! What it takes to read a view, and to change one.
//!
//! As in Cassandra a view has no permissions of its own: who may read its base table may read it, who may alter its base table may create, alter
//! and drop it. With a join the same holds for the joined table.

use cql_lite::syntax::ast::QualifiedName;
use helenus_query::plan::CheckPlan;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::view::View;
use helenus_roles::{Permission, Resource};

use crate::demand::Demand;

/// The tables that a view is computed of, with their keyspaces. `keyspace`: that of the view.
fn sources<'v>(keyspace: &'v str, view: &'v View) -> impl Iterator<Item = (&'v str, &'v str)> {
    let full = move |name: &'v QualifiedName| {
        (name.keyspace.as_ref().map_or(keyspace, |written| written.as_str()), name.name.as_str())
    };
    let joined = view.statement.join.as_ref().map(|join| &join.table);
    std::iter::once(&view.statement.from).chain(joined).map(full)
}

/// To read a view is to read what it is computed of. It shows values as they are, so those of masked columns are for who may see them.
pub(crate) fn of_view(keyspace: &str, view: &View, catalog: &Catalog, demands: &mut Vec<Demand>) {
    for (keyspace, name) in sources(keyspace, view) {
        let source = catalog.table(keyspace, name);
        if let Some(view) = source.and_then(|source| source.view.as_ref()) {
            of_view(keyspace, view, catalog, demands);
            continue;
        }
        demands.push(Demand::new(Permission::Select, Resource::table(keyspace, name)));
        if source.is_some_and(|source| !source.masks.is_empty()) {
            demands.push(Demand::new(Permission::Unmask, Resource::table(keyspace, name)));
        }
    }
}

/// CHECK PROJECTION reads the view and what it is computed of. REPAIR changes nothing that the base table does not say, but as much as rewriting
/// all of it.
pub(crate) fn of_check(plan: &CheckPlan, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let table: &Table = &plan.view;
    let Some(view) = &table.view else { unreachable!("only views are planned to be checked") };
    of_view(&table.keyspace, view, catalog, demands);
    if plan.repair {
        let base = sources(&table.keyspace, view).next();
        let modify = |(keyspace, name)| Demand::new(Permission::Modify, Resource::table(keyspace, name));
        demands.extend(base.map(modify));
    }
}

/// The demands of ALTER and DROP of a view; none of one that does not exist.
pub(crate) fn of_change(keyspace: &str, name: &str, catalog: &Catalog) -> Vec<Demand> {
    let view = catalog.table(keyspace, name).and_then(|table| table.view.as_ref());
    let Some((keyspace, base)) = view.and_then(|view| sources(keyspace, view).next()) else {
        return Vec::new();
    };
    vec![Demand::new(Permission::Alter, Resource::table(keyspace, base))]
}
