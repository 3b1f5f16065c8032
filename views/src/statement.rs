//! Statements about the schema where there are views: CREATE, ALTER and DROP of views, and what other statements may not do with the tables of
//! views. Texts of refusals are Cassandra's where it has them.

use std::sync::Arc;

use cql_lite::syntax::ast::{
    AlterTableOperation, AlterView, CreateView, DropView, Identifier, QualifiedName, SelectClause, Statement,
    TableOptions as WrittenOptions, ViewJoin, ViewKind,
};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::names::keyspace_of;
use helenus_query::schema::catalog::{Catalog, Column, ColumnKind, Keyspace, Table};
use helenus_query::schema::ddl::{
    Change, ChangeTarget, ChangeType, DdlContext, TableAction, check_bounds, check_cap, check_table_name,
    event, execute as execute_other, id_of_new,
};
use helenus_query::schema::options::{Properties, TableOptions};
use helenus_query::schema::system_keyspaces::is_system;
use helenus_query::schema::view::View;
use md5::{Digest, Md5};
use uuid::{Builder, Uuid};

use crate::definition::Source;
use crate::names::named;
use crate::refusal::invalid;
use crate::resolving::{Resolved, kind_name, resolve};

/// Executes a statement that changes the schema. The tables beside views follow with [`crate::following::followed`].
pub fn execute(
    catalog: &Catalog,
    statement: &Statement,
    session: Option<&str>,
    context: &DdlContext,
) -> Result<Change> {
    let change = match statement {
        Statement::CreateView(create) => self::create(catalog, session, create, context),
        Statement::AlterView(alter) => self::alter(catalog, session, alter, context),
        Statement::DropView(drop) => self::drop(catalog, session, drop, context),
        _ => {
            check(catalog, session, statement)?;
            execute_other(catalog, statement, session, context)
        }
    }?;
    check_bounds(catalog, &change.catalog)?;
    Ok(change)
}

/// Refuses to truncate a view, or a table beside one.
pub fn check_truncate(table: &Table) -> Result<()> {
    if table.view.is_some() {
        return invalid("Cannot TRUNCATE materialized view directly; must truncate base table instead");
    }
    refuse_hidden(table, "truncated")
}

/// The views that are computed of a table, or look up columns in it.
pub fn dependents<'c>(catalog: &'c Catalog, table: &Table) -> Vec<&'c Arc<Table>> {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let depends = |view: &View| view.base == table.id || view.joined == Some(table.id);
    tables.filter(|other| other.view.as_deref().is_some_and(depends)).collect()
}

/// The names of views, as they stand in refusals.
fn names_of(views: &[&Arc<Table>]) -> String {
    views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The change by which the views that are computed of a table are built again over what they have, because rows of the table have come or gone without
/// entries in its log. `None`: there are no views.
pub fn build_again(catalog: &Catalog, table: &Table, context: &DdlContext) -> Option<Change> {
    let views = dependents(catalog, table);
    if views.is_empty() {
        return None;
    }
    let mut new = catalog.clone();
    let mut table_actions = Vec::with_capacity(views.len());
    for view in views {
        let (Some(declared), Some(keyspace)) = (&view.view, new.keyspace(&view.keyspace)) else {
            unreachable!("dependents are views, in keyspaces of this catalog")
        };
        let mut digest = Md5::new();
        digest.update(context.new_id.as_bytes());
        digest.update(view.id.as_bytes());
        let build = Builder::from_md5_bytes(digest.finalize().into()).into_uuid();
        let again = Arc::new(declared.built_again(build));
        let again = Arc::new(Table { view: Some(again), ..Table::clone(view) });
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.tables.insert(again.name.clone(), Arc::clone(&again));
        new.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        table_actions.push(TableAction::Alter(again));
    }
    new.version = context.new_version;
    Some(Change {
        catalog: Arc::new(new),
        effect: Some(event(ChangeType::Updated, ChangeTarget::Table, &table.keyspace, &table.name)),
        warnings: Vec::new(),
        table_actions,
    })
}

/// Refuses a view by which changes of tables would go round in circles: a change of a joined table is told to the base table.
fn check_circle(catalog: &Catalog, base: &Table, joined: &Table) -> Result<()> {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let told: Vec<(Uuid, Uuid)> = tables
        .filter_map(|table| table.view.as_deref())
        .filter_map(|view| Some((view.joined?, view.base)))
        .collect();
    // The tables that changes of the base table are told to.
    let mut reached = vec![base.id];
    let mut next = 0;
    while let Some(table) = reached.get(next).copied() {
        next += 1;
        for (_, to) in told.iter().filter(|(from, _)| *from == table) {
            if !reached.contains(to) {
                reached.push(*to);
            }
        }
    }
    if reached.contains(&joined.id) {
        return invalid(format!(
            "{} looks up {} in another view, so this one cannot look up the other way round",
            joined.full_name(),
            base.full_name()
        ));
    }
    Ok(())
}

fn create(
    catalog: &Catalog,
    session: Option<&str>,
    create: &CreateView,
    context: &DdlContext,
) -> Result<Change> {
    let kind = kind_name(create.kind);
    let keyspace_name = keyspace_of(&create.name, session)?;
    let keyspace = modifiable_keyspace(catalog, keyspace_name)?;
    if create.from.keyspace.as_ref().is_some_and(|of_base| of_base != keyspace_name) {
        return invalid(format!("Cannot create a {kind} on a table in a different keyspace"));
    }
    let statement = canonical(create, keyspace_name);
    let (base_name, view_name) = (create.from.name.as_str(), create.name.name.as_str());
    let Some(base) = keyspace.tables.get(base_name) else {
        return invalid(format!("Base table '{base_name}' doesn't exist"));
    };
    match keyspace.tables.get(view_name) {
        None => {}
        Some(present) if present.view.is_none() => {
            return invalid(format!(
                "Cannot create {kind} '{view_name}' - a table with the same name already exists"
            ));
        }
        Some(_) if create.if_not_exists => return Ok(unchanged(catalog)),
        Some(_) => {
            return Err(RequestError::AlreadyExists {
                keyspace: keyspace_name.to_owned(),
                table: view_name.to_owned(),
            });
        }
    }
    let joined = statement.join.as_ref().map(|join| joined_table(catalog, join)).transpose()?;
    if let Some(joined) = joined {
        check_circle(catalog, base, joined)?;
    }
    if base.options.gc_grace_seconds == 0 && create.kind == ViewKind::Materialized {
        return invalid(format!(
            "Cannot create materialized view '{view_name}' for base table '{base_name}' with gc_grace_seconds of 0, since this value is \
             used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being \
             replayed."
        ));
    }
    if create.clause == SelectClause::All
        && let Some(column) = base.columns.iter().find(|column| column.is_static())
    {
        return invalid(format!("Cannot include static column '{}' in {kind} '{view_name}'", column.name));
    }
    let mut ordered = statement.clone();
    ordered.options.clustering_order.clone_from(&create.options.clustering_order);
    let resolved = resolve(catalog, &ordered, base, joined.map(AsRef::as_ref))?;
    let properties = Properties::from_ast(&create.options.properties)?;
    if properties.contains("default_time_to_live") {
        return invalid(format!(
            "Cannot set default_time_to_live for a {kind}. Data in a {kind} always expire at the same time than the corresponding \
             data in the parent table."
        ));
    }
    let (options, chosen_id) = TableOptions::create(&properties)?;
    check_options(create.kind, &properties, &options)?;
    if create.kind == ViewKind::Materialized && options.cap.is_some() {
        return invalid("cap is not supported on materialized views: use a projection");
    }
    let id = id_of_new(catalog, chosen_id, context)?;
    let mut view = Table::without_columns(keyspace_name, view_name.to_owned(), id, options);
    check_table_name(&view)?;
    let joined_id = joined.map(|joined| joined.id);
    place_columns(&mut view, &resolved, base, joined.map(AsRef::as_ref), &mut |name| name.to_owned());
    view.view = Some(Arc::new(View { base: base.id, joined: joined_id, build: None, statement }));
    check_cap(&view)?;
    let view = Arc::new(view);
    Ok(changed(
        catalog,
        keyspace,
        |keyspace| keyspace.tables.insert(view_name.to_owned(), Arc::clone(&view)),
        (ChangeType::Created, view_name),
        TableAction::Create(Arc::clone(&view)),
        context,
    ))
}

/// The statement as the catalog keeps it. Tables without a keyspace are those of the view's.
fn canonical(create: &CreateView, keyspace: &str) -> CreateView {
    let named = |name: &QualifiedName| QualifiedName {
        keyspace: Some(name.keyspace.clone().unwrap_or_else(|| Identifier::quoted(keyspace))),
        name: name.name.clone(),
    };
    let join = create.join.as_ref().map(|join| ViewJoin { table: named(&join.table), ..join.clone() });
    CreateView {
        if_not_exists: false,
        name: named(&create.name),
        from: named(&create.from),
        join,
        options: WrittenOptions::default(),
        ..create.clone()
    }
}

fn joined_table<'c>(catalog: &'c Catalog, join: &ViewJoin) -> Result<&'c Arc<Table>> {
    let keyspace = keyspace_of(&join.table, None)?;
    if is_system(keyspace) {
        return invalid(format!("Tables of the system keyspace '{keyspace}' cannot be joined"));
    }
    let name = join.table.name.as_str();
    catalog
        .table(keyspace, name)
        .ok_or_else(|| RequestError::Invalid(format!("The joined table '{keyspace}.{name}' doesn't exist")))
}

/// Gives a view its columns. `known_as`: the name that a column of the view has had, which keeps its id.
pub fn place_columns(
    view: &mut Table,
    resolved: &Resolved,
    base: &Table,
    joined: Option<&Table>,
    known_as: &mut dyn FnMut(&str) -> String,
) {
    let present = std::mem::take(&mut view.columns);
    view.masks.clear();
    let (mut known, mut new) = (Vec::new(), Vec::new());
    for of in &resolved.columns {
        let before = known_as(&of.name);
        let id = present.iter().find(|column| column.name == before).map(|column| column.id);
        let column = Column {
            id: id.unwrap_or(0),
            name: of.name.clone(),
            column_type: of.column_type.clone(),
            kind: of.kind,
        };
        let (table, index) = match &of.source {
            Source::Base(index) => (Some(base), *index),
            Source::Joined(index) => (joined, *index),
            Source::Expression(_) => (None, 0),
        };
        let mask = table.and_then(|table| table.masks.get(&table.columns[index].id)).cloned();
        if id.is_some() { known.push((column, mask)) } else { new.push((column, mask)) }
    }
    // As in other new tables, ids follow the order of the columns.
    let rank = |kind: &ColumnKind| match kind {
        ColumnKind::PartitionKey { position } => (0, *position),
        ColumnKind::Clustering { position, .. } => (1, *position),
        ColumnKind::Static | ColumnKind::Regular => (2, 0),
    };
    new.sort_by(|(a, _), (b, _)| rank(&a.kind).cmp(&rank(&b.kind)).then_with(|| a.name.cmp(&b.name)));
    for (column, _) in &mut new {
        column.id = view.next_column_id;
        view.next_column_id += 1;
    }
    for (column, mask) in known.into_iter().chain(new) {
        if let Some(mask) = mask {
            view.masks.insert(column.id, mask);
        }
        view.columns.push(column);
    }
    view.arrange_columns();
}

fn alter(
    catalog: &Catalog,
    session: Option<&str>,
    alter: &AlterView,
    context: &DdlContext,
) -> Result<Change> {
    let Some((keyspace, view)) = found(catalog, session, &alter.name, alter.kind, alter.if_exists)? else {
        return Ok(unchanged(catalog));
    };
    let kind = kind_name(alter.kind);
    let properties = Properties::from_ast(&alter.properties)?;
    let mut options = view.options.alter(&properties)?;
    options.keep_graces(&view.options, context.now_micros);
    if options.gc_grace_seconds == 0 {
        return invalid(format!(
            "Cannot alter gc_grace_seconds of a {kind} to 0, since this value is used to TTL undelivered updates. Setting \
             gc_grace_seconds too low might cause undelivered updates to expire before being replayed."
        ));
    }
    if options.default_time_to_live > 0 {
        return invalid(format!(
            "Forbidden default_time_to_live detected for a {kind}. Data in a {kind} always expire at the same time than the \
             corresponding data in the parent table. default_time_to_live must be set to zero, see CASSANDRA-12868 for more \
             information"
        ));
    }
    check_options(alter.kind, &properties, &options)?;
    if options.cap != view.options.cap {
        return invalid(format!("The cap of a {kind} can only be given when it is created"));
    }
    if view.options.is_encrypted && !options.is_encrypted {
        return invalid(format!("A {kind} of an encrypted table is encrypted, and stays so"));
    }
    if options == view.options {
        return Ok(unchanged(catalog));
    }
    let view = Arc::new(Table { options, ..Table::clone(view) });
    Ok(changed(
        catalog,
        keyspace,
        |keyspace| keyspace.tables.insert(view.name.clone(), Arc::clone(&view)),
        (ChangeType::Updated, &view.name),
        TableAction::Alter(Arc::clone(&view)),
        context,
    ))
}

fn drop(catalog: &Catalog, session: Option<&str>, drop: &DropView, context: &DdlContext) -> Result<Change> {
    let Some((keyspace, view)) = found(catalog, session, &drop.name, drop.kind, drop.if_exists)? else {
        return Ok(unchanged(catalog));
    };
    Ok(changed(
        catalog,
        keyspace,
        |keyspace| keyspace.tables.remove(&view.name),
        (ChangeType::Dropped, &view.name),
        TableAction::Drop(view.id),
        context,
    ))
}

/// The options that views cannot have.
fn check_options(kind: ViewKind, properties: &Properties, options: &TableOptions) -> Result<()> {
    let kind = kind_name(kind);
    if options.cdc.is_some() {
        return invalid(format!("cdc is not supported on a {kind}: its base table can have a change feed"));
    }
    if options.has_rate_limit() {
        return invalid(format!("Limits of rates are not supported on a {kind}: the node writes its rows"));
    }
    if options.gc_grace_seconds == 0 {
        return invalid(format!(
            "gc_grace_seconds of a {kind} cannot be 0: its deleted rows could come back"
        ));
    }
    if options.set_tombstone_gc.is_some() && properties.contains("tombstone_gc") {
        return invalid(format!("tombstone_gc is not supported on a {kind} yet"));
    }
    Ok(())
}

/// The view of ALTER or DROP.
fn found<'c>(
    catalog: &'c Catalog,
    session: Option<&str>,
    name: &QualifiedName,
    kind: ViewKind,
    if_exists: bool,
) -> Result<Option<(&'c Arc<Keyspace>, &'c Arc<Table>)>> {
    let keyspace_name = keyspace_of(name, session)?;
    refuse_system(keyspace_name)?;
    let keyspace = catalog.keyspace(keyspace_name);
    let found = keyspace.and_then(|keyspace| Some((keyspace, keyspace.tables.get(name.name.as_str())?)));
    let found =
        found.filter(|(_, table)| table.view.as_ref().is_some_and(|view| view.statement.kind == kind));
    if found.is_none() && !if_exists {
        let kind = kind.title();
        return invalid(format!("{kind} '{keyspace_name}.{}' doesn't exist", name.name.as_str()));
    }
    Ok(found)
}

fn changed(
    catalog: &Catalog,
    keyspace: &Keyspace,
    change: impl FnOnce(&mut Keyspace) -> Option<Arc<Table>>,
    (change_type, name): (ChangeType, &str),
    action: TableAction,
    context: &DdlContext,
) -> Change {
    let mut keyspace = keyspace.clone();
    change(&mut keyspace);
    let effect = event(change_type, ChangeTarget::Table, &keyspace.name, name);
    let mut catalog = catalog.clone();
    catalog.version = context.new_version;
    catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
    Change {
        catalog: Arc::new(catalog),
        effect: Some(effect),
        warnings: Vec::new(),
        table_actions: vec![action],
    }
}

fn unchanged(catalog: &Catalog) -> Change {
    Change {
        catalog: Arc::new(catalog.clone()),
        effect: None,
        warnings: Vec::new(),
        table_actions: Vec::new(),
    }
}

fn refuse_system(keyspace: &str) -> Result<()> {
    if is_system(keyspace) {
        return invalid(format!("System keyspace '{keyspace}' is not user-modifiable"));
    }
    Ok(())
}

fn modifiable_keyspace<'c>(catalog: &'c Catalog, name: &str) -> Result<&'c Arc<Keyspace>> {
    refuse_system(name)?;
    catalog.keyspace(name).ok_or_else(|| RequestError::Invalid(format!("Keyspace '{name}' doesn't exist")))
}

/// Refuses what other statements cannot do with views, with tables beside them, and with those that they are computed of.
fn check(catalog: &Catalog, session: Option<&str>, statement: &Statement) -> Result<()> {
    let table = |name: &QualifiedName| {
        let keyspace = keyspace_of(name, session).ok()?;
        catalog.table(keyspace, name.name.as_str()).map(AsRef::as_ref)
    };
    match statement {
        Statement::AlterTable(alter) => {
            table(&alter.table).map_or(Ok(()), |table| check_alter(catalog, table, &alter.operation))
        }
        Statement::DropTable(drop) => {
            let Some(table) = table(&drop.table) else { return Ok(()) };
            if let Some(view) = &table.view {
                return invalid(match view.statement.kind {
                    ViewKind::Materialized => {
                        "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead."
                    }
                    ViewKind::Projection => {
                        "Cannot use DROP TABLE on a projection. Please use DROP PROJECTION instead."
                    }
                });
            }
            refuse_hidden(table, "dropped")?;
            let views = dependents(catalog, table);
            if views.is_empty() {
                return Ok(());
            }
            invalid(format!(
                "Cannot drop a table when materialized views still depend on it ({})",
                names_of(&views)
            ))
        }
        Statement::CreateIndex(create) => {
            let Some(table) = table(&create.table) else { return Ok(()) };
            if table.view.is_some() {
                return invalid("Secondary indexes on materialized views aren't supported");
            }
            refuse_hidden(table, "indexed")
        }
        Statement::CopyTable(copy) => {
            let Some(table) = table(&copy.source) else { return Ok(()) };
            if let Some(view) = &table.view {
                return invalid(format!(
                    "Cannot use CREATE TABLE LIKE on a {} '{}'.",
                    kind_name(view.statement.kind),
                    table.full_name()
                ));
            }
            refuse_hidden(table, "copied")
        }
        _ => Ok(()),
    }
}

fn check_alter(catalog: &Catalog, table: &Table, operation: &AlterTableOperation) -> Result<()> {
    if let Some(view) = &table.view {
        return invalid(match view.statement.kind {
            ViewKind::Materialized => {
                "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead"
            }
            ViewKind::Projection => "Cannot use ALTER TABLE on a projection; use ALTER PROJECTION instead",
        });
    }
    refuse_hidden(table, "altered")?;
    match operation {
        AlterTableOperation::DropColumns { columns, .. } => {
            let column = columns.iter().find_map(|name| table.column(name.as_str()));
            let Some(column) = column.filter(|column| !column.is_primary_key()) else { return Ok(()) };
            if dependents(catalog, table).is_empty() {
                return Ok(());
            }
            invalid(format!(
                "Cannot drop column {} on base table {} with materialized views",
                named(column),
                table.name
            ))
        }
        AlterTableOperation::SetProperties(properties) => {
            let properties = Properties::from_ast(properties)?;
            let has_materialized = || {
                let keyspace = catalog.keyspace(&table.keyspace);
                keyspace.is_some_and(|keyspace| {
                    keyspace.views_of(table).any(|view| {
                        view.view.as_ref().is_some_and(|view| view.statement.kind == ViewKind::Materialized)
                    })
                })
            };
            if properties.contains("gc_grace_seconds")
                && properties.integer("gc_grace_seconds")? == Some(0)
                && has_materialized()
            {
                return invalid(
                    "Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is used to TTL \
                     undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being \
                     replayed.",
                );
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn refuse_hidden(table: &Table, what: &str) -> Result<()> {
    if table.is_hidden() {
        return invalid(format!("{} is kept by the node for views, and cannot be {what}", table.full_name()));
    }
    Ok(())
}
