//! Guardrails of statements that change the schema, and of TRUNCATE.
//!
//! Checks that need only the statement come before it is carried out, the others use the resulting catalog.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::{AlterTableOperation, AlterTypeOperation, ColumnDefinition, Property, Statement};
use cql_lite::types::CqlType;

use super::Guardrails;
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Keyspace, Replication, Table, TableKind};
use helenus_query::schema::ddl::{Change, ChangeTarget, ChangeType, SchemaChangeEvent};
use helenus_query::schema::options::{CompactionClass, Compressor};
use helenus_query::schema::system_keyspaces;

impl Guardrails {
    /// Checks a statement before it is carried out. Returns it without the properties that must be ignored.
    pub fn check_schema_statement<'s>(
        &self,
        statement: &'s Statement,
        warnings: &mut Vec<String>,
    ) -> Result<Cow<'s, Statement>> {
        self.ddl.guard(warnings)?;
        match statement {
            Statement::DropKeyspace(_) => self.drop_keyspace.guard(warnings)?,
            Statement::CreateIndex(_) => self.secondary_indexes.guard(warnings)?,
            Statement::CreateTable(create) if create.options.compact_storage => {
                self.compact_tables.guard(warnings)?;
            }
            Statement::DropTable(_) => self.drop_truncate_table.guard(warnings)?,
            Statement::AlterTable(alter) => match &alter.operation {
                AlterTableOperation::AddColumns { .. }
                | AlterTableOperation::DropColumns { .. }
                | AlterTableOperation::RenameColumns { .. } => self.alter_table.guard(warnings)?,
                _ => {}
            },
            _ => {}
        }
        let ignored: Vec<String> = match properties(statement) {
            Some(properties) if self.table_properties.is_set() => {
                let names: Vec<String> =
                    properties.iter().map(|property| property.name.as_str().to_lowercase()).collect();
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                let ignored = self.table_properties.guard(&names, warnings)?;
                ignored.into_iter().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        if ignored.is_empty() {
            return Ok(Cow::Borrowed(statement));
        }
        let mut statement = statement.clone();
        let is_kept = |property: &Property| !ignored.contains(&property.name.as_str().to_lowercase());
        match &mut statement {
            Statement::CreateTable(create) => create.options.properties.retain(is_kept),
            Statement::CopyTable(copy) => copy.properties.retain(is_kept),
            Statement::CreateView(create) => create.options.properties.retain(is_kept),
            Statement::AlterView(alter) => alter.properties.retain(is_kept),
            Statement::AlterTable(alter) => {
                if let AlterTableOperation::SetProperties(properties) = &mut alter.operation {
                    properties.retain(is_kept);
                }
            }
            _ => {}
        }
        Ok(Cow::Owned(statement))
    }

    /// Checks an UPDATE of the extensions of a table. Returns whether they are set, and not ignored.
    pub fn check_extensions(&self, warnings: &mut Vec<String>) -> Result<bool> {
        self.ddl.guard(warnings)?;
        let ignored = self.table_properties.guard(&BTreeSet::from(["extensions"]), warnings)?;
        Ok(ignored.is_empty())
    }

    /// Checks TRUNCATE.
    pub fn check_truncate(&self, warnings: &mut Vec<String>) -> Result<()> {
        self.drop_truncate_table.guard(warnings)
    }

    /// Checks what a statement results in.
    pub fn check_schema_change(
        &self,
        statement: &Statement,
        change: &Change,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let Some(SchemaChangeEvent { change_type, target, keyspace, name, .. }) = &change.effect else {
            return Ok(());
        };
        if *change_type == ChangeType::Dropped || system_keyspaces::is_system(keyspace) {
            return Ok(());
        }
        let is_created = *change_type == ChangeType::Created;
        let Some(keyspace) = change.catalog.keyspace(keyspace) else { return Ok(()) };
        match target {
            ChangeTarget::Keyspace => self.check_keyspace(keyspace, &change.catalog, is_created, warnings),
            ChangeTarget::Table => match keyspace.tables.get(name) {
                Some(table) => self.check_table(statement, table, &change.catalog, is_created, warnings),
                None => Ok(()),
            },
            ChangeTarget::Type => match keyspace.user_type(name) {
                Some(definition) => {
                    let fields = definition.field_names.len() as u64;
                    self.fields_per_udt.guard(fields, name, warnings)?;
                    let added = added_field(statement);
                    let fields = definition.field_names.iter().zip(&definition.field_types);
                    let fields = fields.filter(|(name, _)| is_created || added == Some(&***name));
                    self.check_vectors("Field", fields.map(|(name, its)| (&**name, its)), warnings)
                }
                None => Ok(()),
            },
            ChangeTarget::Function | ChangeTarget::Aggregate => Ok(()),
        }
    }

    fn check_keyspace(
        &self,
        keyspace: &Keyspace,
        catalog: &Catalog,
        is_created: bool,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let factors: Vec<u32> = match &keyspace.replication {
            Replication::Simple { replication_factor } => {
                self.simplestrategy.guard(warnings)?;
                vec![*replication_factor]
            }
            Replication::NetworkTopology { data_centers } => data_centers.values().copied().collect(),
            Replication::Local => Vec::new(),
        };
        if is_created {
            let count = user_keyspaces(catalog).count() as u64;
            self.keyspaces.guard(count, &keyspace.name, warnings)?;
        }
        for factor in factors {
            self.minimum_replication_factor.guard(u64::from(factor), &keyspace.name, warnings)?;
            self.maximum_replication_factor.guard(u64::from(factor), &keyspace.name, warnings)?;
        }
        Ok(())
    }

    fn check_table(
        &self,
        statement: &Statement,
        table: &Table,
        catalog: &Catalog,
        is_created: bool,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        if let Some(view) = &table.view {
            // Views have no other guardrails in Cassandra.
            let keyspace = catalog.keyspace(&table.keyspace).filter(|_| is_created);
            let Some(keyspace) = keyspace else { return Ok(()) };
            let base = &view.statement.from.name;
            let views = keyspace.tables.get(base.as_str()).map_or(0, |base| keyspace.views_of(base).count());
            let what = format!("{} on table {}", table.name, base.as_str());
            return self.materialized_views_per_table.guard(views as u64, &what, warnings);
        }
        if is_created {
            let stored = |keyspace: &Keyspace| {
                let is_counted = |table: &&Arc<Table>| {
                    table.kind == TableKind::Stored && table.view.is_none() && !table.is_hidden()
                };
                keyspace.tables.values().filter(is_counted).count()
            };
            let count = user_keyspaces(catalog).map(stored).sum::<usize>() as u64;
            self.tables.guard(count, &table.name, warnings)?;
        }
        if let Statement::CreateIndex(create) = statement {
            let on_table = format!("on table {}", table.name);
            let what = match &create.name {
                Some(name) => format!("{} {on_table}", name.as_str()),
                None => on_table,
            };
            self.secondary_indexes_per_table.guard(table.indexes.len() as u64, &what, warnings)?;
        }
        if matches!(statement, Statement::CopyTable(_)) && !table.indexes.is_empty() {
            self.secondary_indexes.guard(warnings)?;
            let what = format!("on table {}", table.name);
            self.secondary_indexes_per_table.guard(table.indexes.len() as u64, &what, warnings)?;
        }
        let added = added_columns(statement);
        if is_created || added.is_some() {
            self.columns_per_table.guard(table.columns.len() as u64, &table.name, warnings)?;
            // Those that the table had before are nobody's concern now.
            let is_new = |name: &str| {
                added.is_none_or(|added| added.iter().any(|column| column.name.as_str() == name))
            };
            let columns = table.columns.iter().filter(|column| is_new(&column.name));
            let columns = columns.map(|column| (column.name.as_str(), &column.column_type));
            self.check_vectors("Column", columns, warnings)?;
        }
        if matches!(statement, Statement::CopyTable(_)) && table.compact.is_some() {
            self.compact_tables.guard(warnings)?;
        }
        let Some(properties) = properties(statement) else { return Ok(()) };
        let is_given =
            |name: &str| properties.iter().any(|property| property.name.as_str().eq_ignore_ascii_case(name));
        let compressor = table.options.compression.compressor;
        // What a table is copied from gives all options.
        let is_given = is_given("compression") || matches!(statement, Statement::CopyTable(_));
        if is_given && matches!(compressor, Compressor::None) {
            self.uncompressed_tables.guard(warnings)?;
        }
        if table.options.compaction.class == CompactionClass::TimeWindow
            && table.options.default_time_to_live == 0
        {
            self.zero_ttl_on_twcs.guard(warnings)?;
        }
        Ok(())
    }

    /// Checks the dimensions of all vectors in columns or fields, given by name and type.
    fn check_vectors<'t>(
        &self,
        kind: &str,
        named: impl Iterator<Item = (&'t str, &'t CqlType)>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        if !self.vector_dimensions.is_set() && !self.vector_type.is_set() {
            return Ok(());
        }
        for (name, its_type) in named {
            let dimensions = largest_vector(its_type);
            if dimensions > 0 {
                self.vector_type.guard_as(&format!("{kind} {name}"), warnings)?;
                self.vector_dimensions.guard(dimensions, &format!("{kind} {name}"), warnings)?;
            }
        }
        Ok(())
    }
}

/// The columns that a statement adds to a table.
fn added_columns(statement: &Statement) -> Option<&[ColumnDefinition]> {
    let Statement::AlterTable(alter) = statement else { return None };
    let AlterTableOperation::AddColumns { columns, .. } = &alter.operation else { return None };
    Some(columns)
}

/// The field that a statement adds to a user-defined type.
fn added_field(statement: &Statement) -> Option<&str> {
    let Statement::AlterType(alter) = statement else { return None };
    let AlterTypeOperation::AddField { field, .. } = &alter.operation else { return None };
    Some(field.as_str())
}

/// The properties of a table that a statement gives; `None` if it can give none.
fn properties(statement: &Statement) -> Option<&[Property]> {
    match statement {
        Statement::CreateTable(create) => Some(&create.options.properties),
        Statement::CopyTable(copy) => Some(&copy.properties),
        Statement::CreateView(create) => Some(&create.options.properties),
        Statement::AlterView(alter) => Some(&alter.properties),
        Statement::AlterTable(alter) => match &alter.operation {
            AlterTableOperation::SetProperties(properties) => Some(properties),
            _ => None,
        },
        _ => None,
    }
}

fn user_keyspaces(catalog: &Catalog) -> impl Iterator<Item = &Keyspace> {
    let keyspaces = catalog.keyspaces.values().map(AsRef::as_ref);
    keyspaces.filter(|keyspace: &&Keyspace| !system_keyspaces::is_system(&keyspace.name))
}

/// The dimensions of the largest vector in a type; 0 if it has none.
fn largest_vector(of: &CqlType) -> u64 {
    match of {
        CqlType::Vector { element, dimension } => (*dimension as u64).max(largest_vector(element)),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => largest_vector(element),
        CqlType::Map { key, value, .. } => largest_vector(key).max(largest_vector(value)),
        CqlType::Tuple(elements) => elements.iter().map(largest_vector).max().unwrap_or(0),
        _ => 0,
    }
}
