//! Views and the tables beside them follow the tables that they are computed of: a statement that changes one of these changes views, their
//! statements and the hidden tables with it, or is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::{CreateView, Identifier, SelectClause, SelectedItem, ViewJoin};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, CatalogView, ColumnKind, Keyspace, Table};
use helenus_query::schema::ddl::{Change, DdlContext, TableAction, check_bounds};
use helenus_query::schema::view::{View, log_name, lookups_name, rows_name};
use helenus_query::statement::Statement;

use crate::computation::Computation;
use crate::defining::tables_of;
use crate::definition::{Definition, Source};
use crate::expression::{qualified, renamed, unqualified};
use crate::hidden;
use crate::names::Names;
use crate::resolving::{Resolved, ViewColumn, resolve};
use crate::statement::place_columns;

/// The change, with what it means for views and the tables beside them.
pub fn followed(before: &Catalog, change: Change, context: &DdlContext) -> Result<Change> {
    let all = |catalog: &Catalog| -> Vec<Arc<Table>> {
        let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.filter(|table| table.view.is_some() || table.is_hidden()).cloned().collect()
    };
    let of_views = all(&change.catalog);
    if of_views.is_empty() {
        return Ok(change);
    }
    let mut following =
        Following { before, catalog: Catalog::clone(&change.catalog), actions: Vec::new(), context };
    let mut needed: BTreeSet<(String, String)> = BTreeSet::new();
    for view in of_views.iter().filter(|table| table.view.is_some()) {
        needed.extend(following.view(view)?);
    }
    for table in of_views.iter().filter(|table| table.is_hidden()) {
        if !needed.contains(&(table.keyspace.clone(), table.name.clone())) {
            following.remove(table);
        }
    }
    let Following { catalog, mut actions, .. } = following;
    if actions.is_empty() {
        return Ok(change);
    }
    let mut change = change;
    change.catalog = Arc::new(catalog);
    check_bounds(before, &change.catalog)?;
    change.table_actions.append(&mut actions);
    let changed = change.table_actions.iter().filter_map(|action| match action {
        TableAction::Create(table) | TableAction::Alter(table) => Some(table),
        TableAction::Drop(_) => None,
    });
    for view in changed.filter(|table| table.view.is_some()) {
        if let Some(view) = change.catalog.table(&view.keyspace, &view.name) {
            check_kept(&change.catalog, view)?;
        }
    }
    Ok(change)
}

/// Refuses a view whose rows the node could not keep: its conditions have to be checked, and its statements to be planned.
fn check_kept(catalog: &Arc<Catalog>, view: &Arc<Table>) -> Result<()> {
    let computation = Computation::new(Definition::new(catalog, view)?, catalog)?;
    let planned = CatalogView::new(0, Arc::clone(catalog));
    for text in computation.statements.texts() {
        Statement::of_node(text, &planned)?;
    }
    Ok(())
}

struct Following<'a> {
    before: &'a Catalog,
    catalog: Catalog,
    actions: Vec<TableAction>,
    context: &'a DdlContext,
}

impl Following<'_> {
    /// Brings a view and the tables beside it up to date. Returns the keyspaces and names of those that it needs.
    fn view(&mut self, view: &Arc<Table>) -> Result<Vec<(String, String)>> {
        let Some(declared) = &view.view else { return Ok(Vec::new()) };
        let (base, joined) = tables_of(&self.catalog, view, declared)?;
        let (base, joined) = (Arc::clone(base), joined.cloned());
        let joined = joined.as_ref();
        let needed = needed_by(view, &base, joined);
        let present = |(keyspace, name): &(String, String)| self.catalog.table(keyspace, name).is_some();
        if self.is_unchanged(&base)
            && joined.is_none_or(|joined| self.is_unchanged(joined))
            && self.is_known(view)
            && needed.iter().all(present)
        {
            return Ok(needed);
        }
        let (statement, resolved, mut view) = self.resolved(view, declared, &base, joined)?;
        view.options.is_encrypted |=
            base.options.is_encrypted || joined.is_some_and(|joined| joined.options.is_encrypted);
        view.view = Some(Arc::new(View { statement, ..View::clone(declared) }));
        self.keep(view.clone());
        for table in std::iter::once(&base).chain(joined) {
            let log = self.catalog.table(&table.keyspace, &log_name(&table.name));
            let log = hidden::log(log.map(AsRef::as_ref), self.before_of(table), table, self.context)?;
            self.keep(log);
        }
        let mut beside = vec![hidden::rows(&view, &base, &resolved, self.context)?];
        if let Some(joined) = joined {
            beside.push(hidden::lookups(&view, &base, joined, &resolved, self.context)?);
        }
        for mut table in beside {
            if let Some(present) = self.catalog.table(&table.keyspace, &table.name) {
                table = Table { columns: table.columns, ..Table::clone(present) };
                table.options.is_encrypted |= view.options.is_encrypted;
            }
            self.keep(table);
        }
        Ok(needed)
    }

    /// The statement of a view with the names of now, what it means, and the view with its columns.
    fn resolved(
        &self,
        view: &Table,
        declared: &View,
        base: &Table,
        joined: Option<&Arc<Table>>,
    ) -> Result<(CreateView, Resolved, Table)> {
        let joined = joined.map(AsRef::as_ref);
        let old_base = self.before_of(base).unwrap_or(base);
        let old_joined = joined.map(|joined| self.before_of(joined).unwrap_or(joined));
        let old_names = Names::new(&declared.statement, old_base, old_joined)?;
        let new_names = Names::new(&declared.statement, base, joined)?;
        let statement = with_names(&declared.statement, &old_names, &new_names)?;
        // The order of clustering columns is in the view, not in its statement.
        let mut resolved = resolve(&self.catalog, &statement, base, joined)?;
        keep_order(&mut resolved.columns, view);
        let mut known_as = |name: &str| {
            let column = resolved.columns.iter().find(|column| column.name == name);
            let Some(column) = column.filter(|column| !column.has_alias) else { return name.to_owned() };
            let now = new_names.column(&column.source);
            let old = match column.source {
                Source::Joined(_) => old_joined,
                _ => Some(old_base),
            };
            let before = now.and_then(|now| old?.columns.iter().find(|before| before.id == now.id));
            before.map_or_else(|| name.to_owned(), |before| before.name.clone())
        };
        let mut view = view.clone();
        place_columns(&mut view, &resolved, base, joined, &mut known_as);
        Ok((statement, resolved, view))
    }

    /// The table before the change.
    fn before_of(&self, table: &Table) -> Option<&Table> {
        let before = self.before.table(&table.keyspace, &table.name).map(AsRef::as_ref);
        before.filter(|before| before.id == table.id)
    }

    fn is_unchanged(&self, table: &Arc<Table>) -> bool {
        self.before.table(&table.keyspace, &table.name).is_some_and(|before| Arc::ptr_eq(before, table))
    }

    /// Whether the view was there with the same definition, and its keyspace had the same types.
    fn is_known(&self, view: &Table) -> bool {
        let keyspaces = self.before.keyspace(&view.keyspace).zip(self.catalog.keyspace(&view.keyspace));
        let has_same_types = keyspaces.is_some_and(|(before, now)| before.types == now.types);
        has_same_types && self.before_of(view).is_some_and(|before| before.view == view.view)
    }

    /// Puts a table into the catalog, if it differs from the present one.
    fn keep(&mut self, table: Table) {
        let Some(keyspace) = self.catalog.keyspaces.get(&table.keyspace) else { return };
        let present = keyspace.tables.get(&table.name);
        if present.is_some_and(|present| **present == table) {
            return;
        }
        let table = Arc::new(table);
        self.actions.push(match present {
            Some(_) => TableAction::Alter(Arc::clone(&table)),
            None => TableAction::Create(Arc::clone(&table)),
        });
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.tables.insert(table.name.clone(), Arc::clone(&table));
        self.catalog.keyspaces.insert(table.keyspace.clone(), Arc::new(keyspace));
    }

    fn remove(&mut self, table: &Table) {
        let Some(keyspace) = self.catalog.keyspaces.get(&table.keyspace) else { return };
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.tables.remove(&table.name);
        self.catalog.keyspaces.insert(table.keyspace.clone(), Arc::new(keyspace));
        self.actions.push(TableAction::Drop(table.id));
    }
}

fn needed_by(view: &Table, base: &Table, joined: Option<&Arc<Table>>) -> Vec<(String, String)> {
    let mut needed =
        vec![(view.keyspace.clone(), rows_name(&view.name)), (base.keyspace.clone(), log_name(&base.name))];
    if let Some(joined) = joined {
        needed.push((view.keyspace.clone(), lookups_name(&view.name)));
        needed.push((joined.keyspace.clone(), log_name(&joined.name)));
    }
    needed
}

/// The clustering columns of a view stay in the order in which they are stored.
fn keep_order(columns: &mut [ViewColumn], view: &Table) {
    for column in columns {
        if let ColumnKind::Clustering { position, descending } = &mut column.kind
            && let Some(present) = view.clustering_key().get(*position)
        {
            *descending = present.is_descending();
        }
    }
}

/// A statement with the names that columns have in new versions of its tables.
fn with_names(statement: &CreateView, old: &Names<'_>, new: &Names<'_>) -> Result<CreateView> {
    let clause = match &statement.clause {
        SelectClause::All => SelectClause::All,
        SelectClause::Items(items) => SelectClause::Items(
            items
                .iter()
                .map(|item| {
                    Ok(SelectedItem {
                        expression: old.renamed(&item.expression, new)?,
                        alias: item.alias.clone(),
                    })
                })
                .collect::<Result<_>>()?,
        ),
    };
    let relations = statement.relations.iter().map(|written| {
        let (table, relation) = unqualified(written);
        let relation = renamed(relation, &mut |column| old.new_name(&old.source(table, column)?, new))?;
        Ok(qualified(table, relation))
    });
    let join = statement.join.as_ref().map(|join| {
        let on = join.on.iter().map(|(left, right)| Ok((old.renamed(left, new)?, old.renamed(right, new)?)));
        Ok::<_, RequestError>(ViewJoin { on: on.collect::<Result<_>>()?, ..join.clone() })
    });
    let mut primary_key = statement.primary_key.clone();
    for name in primary_key.partition.iter_mut().chain(&mut primary_key.clustering) {
        *name = name_in_view(&statement.clause, name, old, new)?;
    }
    Ok(CreateView {
        clause,
        relations: relations.collect::<Result<_>>()?,
        join: join.transpose()?,
        group_by: statement.group_by.iter().map(|of| old.renamed(of, new)).collect::<Result<_>>()?,
        primary_key,
        ..statement.clone()
    })
}

/// The new name of a column of the view: without an alias it has that of the column that it comes from.
fn name_in_view(
    clause: &SelectClause,
    name: &Identifier,
    old: &Names<'_>,
    new: &Names<'_>,
) -> Result<Identifier> {
    let SelectClause::Items(items) = clause else {
        return old.new_name(&old.source(None, name)?, new);
    };
    for item in items.iter().filter(|item| item.alias.is_none()) {
        let Some(source) = old.plain(&item.expression)? else { continue };
        if old.column(&source).is_some_and(|column| column.name == name.as_str()) {
            return old.new_name(&source, new);
        }
    }
    Ok(name.clone())
}
