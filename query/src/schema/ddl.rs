//! Statements that change the schema: take a catalog and a statement, and return a new catalog.
//!
//! No side effects: time, new ids and the topology are passed in through [`DdlContext`]. The caller makes the new
//! catalog durable, executes the [`TableAction`]s and notifies clients of the effect. Checks and error texts are
//! Cassandra 5.0's.

mod alter_table;
pub(crate) mod bounds;
mod cap;
mod class_name;
mod compact_table;
mod constant;
mod copy_table;
mod function;
mod index;
mod keyspace;
mod restore;
mod table;
mod type_name;
mod user_type;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::frame::{SchemaChange, SchemaChangeKind, SchemaTarget};
use cql_lite::syntax::ast::{
    AlterTableOperation, ColumnDefinition, Identifier, QualifiedName, Statement, ViewKind,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::alter_table::without_user_types;
pub use self::bounds::check_change as check_bounds;
pub use self::cap::check_cap;
pub use self::class_name::resolve as custom_type;
pub use self::restore::{SnapshotSchema, SnapshotSchemaError};
pub use self::table::{check_key_column, check_table_name, define_table, id_of_new};
pub use self::type_name::resolve as resolve_type;
use super::catalog::{Catalog, Keyspace, Table};
use super::options::DataCenters;
use super::system_keyspaces;
use crate::error::{RequestError, Result};
use crate::functions::user::UserFunctionRuntime;

/// The longest name of a keyspace, in characters.
const MAX_KEYSPACE_NAME_LENGTH: usize = 48;
/// The longest name of a table or index, in characters.
pub const MAX_TABLE_NAME_LENGTH: usize = 222;

/// The values that a schema change takes from outside.
#[derive(Debug, Clone)]
pub struct DdlContext {
    /// Microseconds since the epoch: the drop time of dropped columns.
    pub now_micros: i64,
    /// The id of the table or index that the statement creates.
    pub new_id: Uuid,
    /// The version of the catalog if the statement changes it.
    pub new_version: Uuid,
    pub data_centers: DataCenters,
    /// Checks the functions of users.
    pub user_functions: &'static dyn UserFunctionRuntime,
    /// Whether ALTER TABLE … DROP COMPACT STORAGE is allowed.
    pub may_drop_compact_storage: bool,
}

/// The result of a statement.
#[derive(Debug, Clone)]
pub struct Change {
    /// The new catalog; the old one if nothing changed.
    pub catalog: Arc<Catalog>,
    /// `None` if the statement had nothing to do (`IF NOT EXISTS`).
    pub effect: Option<SchemaChangeEvent>,
    pub warnings: Vec<String>,
    /// In the order of execution.
    pub table_actions: Vec<TableAction>,
}

/// A schema change as it is reported to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaChangeEvent {
    pub change_type: ChangeType,
    pub target: ChangeTarget,
    pub keyspace: String,
    /// The name within the keyspace; empty for the keyspace itself.
    pub name: String,
    /// Argument types of a function or aggregate.
    pub arguments: Vec<String>,
}

/// The kind of a change as the protocol names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeType {
    Created,
    Updated,
    Dropped,
}

/// The kind of the changed element, as the protocol names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeTarget {
    Keyspace,
    Table,
    Type,
    Function,
    Aggregate,
}

/// The effect of a change on stored data.
#[derive(Debug, Clone)]
pub enum TableAction {
    Create(Arc<Table>),
    /// The columns, types or options have changed; the id has not.
    Alter(Arc<Table>),
    Drop(Uuid),
}

impl ChangeType {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Updated => "UPDATED",
            Self::Dropped => "DROPPED",
        }
    }
}

impl ChangeTarget {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyspace => "KEYSPACE",
            Self::Table => "TABLE",
            Self::Type => "TYPE",
            Self::Function => "FUNCTION",
            Self::Aggregate => "AGGREGATE",
        }
    }
}

/// Executes a statement that changes the schema. Other statements are refused.
pub fn execute(
    catalog: &Catalog,
    statement: &Statement,
    current_keyspace: Option<&str>,
    context: &DdlContext,
) -> Result<Change> {
    bounds::check_statement(statement)?;
    let change = carry_out(&Ddl { catalog, current_keyspace, context }, statement)?;
    bounds::check_change(catalog, &change.catalog)?;
    Ok(change)
}

/// Sets the extensions of a table as a whole.
pub fn set_extensions(
    catalog: &Catalog,
    keyspace: &str,
    table: &str,
    extensions: &BTreeMap<String, Vec<u8>>,
    context: &DdlContext,
) -> Result<Change> {
    refuse_system_keyspace(keyspace)?;
    let ddl = Ddl { catalog, current_keyspace: None, context };
    let found = catalog.keyspace(keyspace).and_then(|keyspace| Some((keyspace, keyspace.tables.get(table)?)));
    // Views, and what is beside them, have no row in the table of tables.
    let found = found.filter(|(_, table)| table.view.is_none() && !table.is_hidden());
    let Some((keyspace, table)) = found else {
        return invalid(format!("Table '{keyspace}.{table}' doesn't exist"));
    };
    if table.options.extensions == *extensions {
        return Ok(ddl.unchanged());
    }
    let mut altered = Table::clone(table);
    altered.options.extensions.clone_from(extensions);
    let change = ddl.table_changed(keyspace, altered);
    bounds::check_change(catalog, &change.catalog)?;
    Ok(change)
}

fn carry_out(ddl: &Ddl<'_>, statement: &Statement) -> Result<Change> {
    match statement {
        Statement::CreateKeyspace(create) => ddl.create_keyspace(create),
        Statement::AlterKeyspace(alter) => ddl.alter_keyspace(alter),
        Statement::DropKeyspace(drop) => ddl.drop_keyspace(drop),
        Statement::CreateTable(create) => ddl.create_table(create),
        Statement::CopyTable(copy) => ddl.copy_table(copy),
        Statement::AlterTable(alter) => ddl.alter_table(alter),
        Statement::DropTable(drop) => ddl.drop_table(drop),
        Statement::CreateType(create) => ddl.create_type(create),
        Statement::AlterType(alter) => ddl.alter_type(alter),
        Statement::DropType(drop) => ddl.drop_type(drop),
        Statement::CreateIndex(create) => ddl.create_index(create),
        Statement::DropIndex(drop) => ddl.drop_index(drop),
        Statement::CreateView(create) => unsupported(&format!("{}s", create.kind.title())),
        Statement::AlterView(alter) => ddl.absent_view(alter.kind, &alter.name, alter.if_exists),
        Statement::DropView(drop) => ddl.absent_view(drop.kind, &drop.name, drop.if_exists),
        Statement::CreateFunction(create) => ddl.create_function(create),
        Statement::CreateAggregate(create) => ddl.create_aggregate(create),
        Statement::DropFunction(drop) => ddl.drop_function(drop),
        Statement::DropAggregate(drop) => ddl.drop_aggregate(drop),
        Statement::CreateTrigger(_) => unsupported("Triggers"),
        Statement::DropTrigger(drop) => ddl.absent_trigger(&drop.name, &drop.table, drop.if_exists),
        _ => invalid("This statement does not change the schema"),
    }
}

/// Whether a statement gives columns masks.
pub fn declares_mask(statement: &Statement) -> bool {
    let is_masked = |columns: &[ColumnDefinition]| columns.iter().any(|column| column.mask.is_some());
    match statement {
        Statement::CreateTable(create) => is_masked(&create.columns),
        Statement::AlterTable(alter) => match &alter.operation {
            AlterTableOperation::AddColumns { columns, .. } => is_masked(columns),
            AlterTableOperation::AlterColumnMask { mask, .. } => mask.is_some(),
            _ => false,
        },
        _ => false,
    }
}

/// The execution of one statement.
struct Ddl<'a> {
    catalog: &'a Catalog,
    current_keyspace: Option<&'a str>,
    context: &'a DdlContext,
}

impl Ddl<'_> {
    /// The keyspace in the statement, or else the session's.
    fn keyspace_name<'n>(&'n self, written: Option<&'n Identifier>) -> Result<&'n str> {
        written.map(Identifier::as_str).or(self.current_keyspace).ok_or_else(|| {
            RequestError::invalid(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
            )
        })
    }

    /// Like `keyspace_name`, with Cassandra's refusal of system keyspaces in statements about indexes, views,
    /// functions and triggers.
    fn user_keyspace_name<'n>(&'n self, written: Option<&'n Identifier>) -> Result<&'n str> {
        let name = self.keyspace_name(written)?;
        if system_keyspaces::is_system(name) {
            return invalid(format!("System keyspace '{name}' is not user-modifiable"));
        }
        Ok(name)
    }

    /// A keyspace whose contents may be changed.
    fn modifiable_keyspace(&self, name: &str) -> Result<&Arc<Keyspace>> {
        refuse_system_keyspace(name)?;
        self.catalog
            .keyspace(name)
            .ok_or_else(|| RequestError::Invalid(format!("Keyspace '{name}' doesn't exist")))
    }

    /// Nothing to do.
    fn unchanged(&self) -> Change {
        Change {
            catalog: Arc::new(self.catalog.clone()),
            effect: None,
            warnings: Vec::new(),
            table_actions: Vec::new(),
        }
    }

    /// The catalog with a keyspace added or replaced.
    fn with_keyspace(&self, keyspace: Keyspace) -> Arc<Catalog> {
        let mut catalog = self.catalog.clone();
        catalog.version = self.context.new_version;
        catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        Arc::new(catalog)
    }

    /// The change that replaces a table of the keyspace.
    fn table_changed(&self, keyspace: &Keyspace, table: Table) -> Change {
        let effect = event(ChangeType::Updated, ChangeTarget::Table, &keyspace.name, &table.name);
        let table = Arc::new(table);
        let mut keyspace = keyspace.clone();
        keyspace.tables.insert(table.name.clone(), table.clone());
        Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(effect),
            warnings: Vec::new(),
            table_actions: vec![TableAction::Alter(table)],
        }
    }

    /// Handles a name of a materialized view. There are none, so naming one is an error or has no effect.
    fn absent_view(&self, kind: ViewKind, view: &QualifiedName, if_exists: bool) -> Result<Change> {
        let keyspace = self.user_keyspace_name(view.keyspace.as_ref())?;
        if if_exists {
            return Ok(self.unchanged());
        }
        invalid(format!("{} '{keyspace}.{}' doesn't exist", kind.title(), view.name.as_str()))
    }

    fn absent_trigger(&self, name: &Identifier, table: &QualifiedName, if_exists: bool) -> Result<Change> {
        let keyspace = self.user_keyspace_name(table.keyspace.as_ref())?;
        if if_exists {
            return Ok(self.unchanged());
        }
        invalid(format!("Trigger '{}' on '{keyspace}.{}' doesn't exist", name.as_str(), table.name.as_str()))
    }
}

fn refuse_system_keyspace(name: &str) -> Result<()> {
    if system_keyspaces::is_system(name) {
        return Err(RequestError::Unauthorized(format!("{name} keyspace is not user-modifiable.")));
    }
    Ok(())
}

/// The event for a change in a keyspace.
pub fn event(change_type: ChangeType, target: ChangeTarget, keyspace: &str, name: &str) -> SchemaChangeEvent {
    SchemaChangeEvent {
        change_type,
        target,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        arguments: Vec::new(),
    }
}

/// Whether a keyspace or table may have the name.
fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn unsupported<T>(feature: &str) -> Result<T> {
    invalid(format!("{feature} are not supported by Helenus yet"))
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Invalid(message.into()))
}

fn configuration<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Configuration(message.into()))
}

/// A name in CQL: quoted if necessary.
fn quoted(name: &str) -> String {
    Identifier::quoted(name).to_string()
}

/// A change as the protocol reports it.
pub fn protocol_change(effect: SchemaChangeEvent) -> SchemaChange {
    let SchemaChangeEvent { change_type, target, keyspace, name, arguments } = effect;
    SchemaChange {
        kind: match change_type {
            ChangeType::Created => SchemaChangeKind::Created,
            ChangeType::Updated => SchemaChangeKind::Updated,
            ChangeType::Dropped => SchemaChangeKind::Dropped,
        },
        keyspace,
        target: match target {
            ChangeTarget::Keyspace => SchemaTarget::Keyspace,
            ChangeTarget::Table => SchemaTarget::Table { name },
            ChangeTarget::Type => SchemaTarget::Type { name },
            ChangeTarget::Function => SchemaTarget::Function { name, argument_types: arguments },
            ChangeTarget::Aggregate => SchemaTarget::Aggregate { name, argument_types: arguments },
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;
