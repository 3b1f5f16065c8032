//! What it takes to read, check, create and change a view.
//!
//! As in Cassandra a view has no permissions of its own: who may read its base table may read it, who may alter its base table may create, alter
//! and drop it. Reading or creating a view with a join takes the same permissions on the joined table. For a view over another view, the permissions on the
//! tables below that one are demanded.

use cql_lite::syntax::ast::{CreateView, FunctionName, Identifier, QualifiedName, Relation, SelectClause};
use helenus_query::plan::CheckPlan;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::view::View;
use helenus_roles::{Permission, Resource};

use crate::demand::Demand;

/// A table by its keyspace and name, whether or not it exists.
type Source<'n> = (&'n str, &'n str);

/// The base table of a view and the joined one. `keyspace`: that of names without one.
fn sources<'n>(keyspace: &'n str, statement: &'n CreateView) -> impl Iterator<Item = Source<'n>> {
    let full = move |name: &'n QualifiedName| {
        (name.keyspace.as_ref().map_or(keyspace, Identifier::as_str), name.name.as_str())
    };
    let joined = statement.join.as_ref().map(|join| &join.table);
    std::iter::once(&statement.from).chain(joined).map(full)
}

/// The demands of a permission on what a view is computed of.
fn of_source(permission: Permission, source: Source<'_>, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let (keyspace, name) = source;
    let table = catalog.table(keyspace, name);
    let home = catalog.keyspace(keyspace);
    if permission == Permission::Select
        && let Some(log) = table
        && let Some(base) = home.and_then(|home| home.feed_base(log))
    {
        let columns = (0..log.columns.len()).collect();
        return demands.push(Demand::FeedLog { log: log.clone(), columns, base: base.clone() });
    }
    if let Some(view) = table.and_then(|table| table.view.as_ref()) {
        for source in sources(keyspace, &view.statement) {
            of_source(permission, source, catalog, demands);
        }
        return;
    }
    let mut demand = |permission| demands.push(Demand::new(permission, Resource::table(keyspace, name)));
    demand(permission);
    // A view has the values themselves, so those of masked columns are for who may see them.
    if permission == Permission::Select && table.is_some_and(|table| !table.masks.is_empty()) {
        demand(Permission::Unmask);
    }
}

/// The demands of a SELECT on a view. `keyspace`: that of the view.
pub(crate) fn of_read(keyspace: &str, view: &View, catalog: &Catalog, demands: &mut Vec<Demand>) {
    for source in sources(keyspace, &view.statement) {
        of_source(Permission::Select, source, catalog, demands);
    }
}

/// The demands of CHECK PROJECTION, which reads the view and what it is computed of. REPAIR changes nothing that the base table does not say, but
/// may cost as much as to write all of that again.
pub(crate) fn of_check(plan: &CheckPlan, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let table: &Table = &plan.view;
    let Some(view) = &table.view else { unreachable!("only views are planned to be checked") };
    of_read(&table.keyspace, view, catalog, demands);
    if plan.repair {
        for base in sources(&table.keyspace, &view.statement).take(1) {
            of_source(Permission::Modify, base, catalog, demands);
        }
    }
}

/// The demands of CREATE. From then on all that is written to either table goes through a log, neither can be dropped, and functions of users are
/// called without demanding EXECUTE of the reader. `keyspace`: that of the view.
pub(crate) fn of_create(keyspace: &str, create: &CreateView, catalog: &Catalog) -> Vec<Demand> {
    let mut demands = Vec::new();
    for source in sources(keyspace, create) {
        of_source(Permission::Alter, source, catalog, &mut demands);
    }
    let items = match &create.clause {
        SelectClause::All => &[][..],
        SelectClause::Items(items) => items,
    };
    let items = items.iter().map(|item| &item.expression);
    let restricting = create.relations.iter().flat_map(Relation::expressions);
    for expression in items.chain(restricting).chain(&create.group_by) {
        expression.visit_functions(&mut |name| of_function(name, keyspace, catalog, &mut demands));
    }
    demands
}

/// The demands of a function in a view. Which one of several with its name is called is not known before it is planned: all of them count.
fn of_function(name: &FunctionName, keyspace: &str, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let keyspace = name.keyspace.as_ref().map_or(keyspace, Identifier::as_str);
    let Some(known) = catalog.keyspace(keyspace).map(|keyspace| &keyspace.user_functions) else { return };
    let functions = known.functions_named(name.name.as_str()).map(|function| function.signature());
    let aggregates = known.aggregates_named(name.name.as_str()).map(|aggregate| aggregate.signature());
    let executed = functions.chain(aggregates);
    demands.extend(executed.map(|called| Demand::new(Permission::Execute, Resource::Function(called))));
}

/// The demands of ALTER and DROP; none of a view that does not exist.
pub(crate) fn of_change(keyspace: &str, name: &str, catalog: &Catalog) -> Vec<Demand> {
    let mut demands = Vec::new();
    if let Some(view) = catalog.table(keyspace, name).and_then(|table| table.view.as_ref()) {
        for base in sources(keyspace, &view.statement).take(1) {
            of_source(Permission::Alter, base, catalog, &mut demands);
        }
    }
    demands
}
