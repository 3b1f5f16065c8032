//! The catalog as a document (JSON with types as CQL text), for the disk and the metadata log.
//!
//! It contains the users' keyspaces completely. Of the system keyspaces it contains only the settings that may be
//! altered: replication and durable writes. The rest of them comes with the program, so that a newer program brings
//! its own system tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::syntax::{parse_constraints, parse_mask};
use cql_lite::types::cql_type::TypeParseError;
use cql_lite::types::{CqlType, UserType, literal};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::view::ViewDocument;
use super::catalog::{
    Catalog, Column, ColumnKind, CompactStorage, DroppedColumn, Keyspace, Replication, Table, TableKind,
};
use super::constraint::Constraints;
use super::index::{Index, IndexKind, IndexedPart};
use super::mask::ColumnMask;
use super::options::TableOptions;
use super::user_functions::UserFunctions;
use super::view::View;
use super::{system_keyspaces, system_tables};
use crate::functions::user::{UserAggregate, UserFunction, type_names};

mod view;

/// The reason why a document is not a catalog.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the type of {place} in the catalog cannot be read: {source}")]
    Type { place: String, source: TypeParseError },
    #[error("the id {text} in the catalog is not a UUID")]
    Id { text: String },
    #[error("the change concerns keyspace {0}, which is not there")]
    MissingKeyspace(String),
    #[error("the index {index} in the catalog has no column in the table {table}")]
    IndexWithoutColumn { index: String, table: String },
    #[error("the initial condition of the aggregate {aggregate} in the catalog cannot be read")]
    InitialCondition { aggregate: String },
    #[error("the constraints or the mask of {place}: {message}")]
    Rule { place: String, message: String },
    #[error("the statement of a view in the catalog cannot be read: {text}")]
    View { text: String },
    #[error("the catalog has user types that need each other or a missing one: {names}")]
    UserTypes { names: String },
}

/// Keyspaces of a catalog: all of them, or those altered by a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CatalogDocument {
    version: String,
    keyspaces: Vec<KeyspaceDocument>,
    system_keyspaces: BTreeMap<String, SettingsDocument>,
    /// Changes of keyspaces that are there: only in documents of [`CatalogDocument::delta`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    altered: Vec<AlteredKeyspaceDocument>,
}

/// The settings of a keyspace that may be altered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettingsDocument {
    replication: Replication,
    durable_writes: bool,
}

/// A keyspace of users, complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyspaceDocument {
    name: String,
    settings: SettingsDocument,
    types: Vec<UserTypeDocument>,
    tables: Vec<TableDocument>,
    /// Only where there are any: members understand them from a feature level on.
    #[serde(default, skip_serializing_if = "FunctionsDocument::is_empty")]
    user_functions: FunctionsDocument,
}

/// The user-defined functions and aggregates of a keyspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct FunctionsDocument {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    functions: Vec<FunctionDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aggregates: Vec<AggregateDocument>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct FunctionDocument {
    name: String,
    /// Names and types, in order.
    arguments: Vec<(String, String)>,
    returns: String,
    called_on_null_input: bool,
    language: String,
    body: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct AggregateDocument {
    name: String,
    argument_types: Vec<String>,
    state_function: String,
    state_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    final_function: Option<String>,
    returns: String,
    /// Wire bytes as a literal of a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_condition: Option<String>,
}

/// The changed parts of a keyspace.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AlteredKeyspaceDocument {
    name: String,
    settings: SettingsDocument,
    /// All types, if one has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Vec<UserTypeDocument>>,
    /// The tables that are added or replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tables: Vec<TableDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped_tables: Vec<String>,
    /// All functions and aggregates, if one has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_functions: Option<FunctionsDocument>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct UserTypeDocument {
    name: String,
    /// Names and types, in order.
    fields: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TableDocument {
    name: String,
    id: String,
    columns: Vec<ColumnDocument>,
    options: TableOptions,
    is_counter: bool,
    dropped_columns: Vec<DroppedColumnDocument>,
    next_column_id: u32,
    /// Only where there are any: members understand them from a feature level on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<IndexDocument>,
    /// Only in tables WITH COMPACT STORAGE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compact: Option<CompactDocument>,
    /// Only of views. Members understand it from a feature level on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<ViewDocument>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct CompactDocument {
    hidden_columns: Vec<ColumnDocument>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ColumnDocument {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_text: String,
    kind: ColumnKind,
    /// The constraints as CQL after CHECK. Members understand them from a feature level on, as the mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    constraints: Option<String>,
    /// The mask as CQL: `MASKED WITH …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct DroppedColumnDocument {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_text: String,
    is_static: bool,
    dropped_at_micros: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct IndexDocument {
    name: String,
    id: String,
    kind: IndexKind,
    column_id: u32,
    part: IndexedPart,
    options: BTreeMap<String, String>,
}

impl CatalogDocument {
    /// The document of a whole catalog.
    pub fn of(catalog: &Catalog) -> Self {
        Self::of_keyspaces(catalog.version, catalog.keyspaces.values())
    }

    /// The changes that lead from `old` to `new`, in keyspaces that both have by table. Dropped keyspaces are not in it. It costs as much as
    /// the changes, where the catalogs share what did not change. Members understand it from a feature level on.
    pub fn delta(old: &Catalog, new: &Catalog) -> Self {
        let is_known = |keyspace: &Keyspace| {
            old.keyspaces.contains_key(&keyspace.name) && !system_keyspaces::is_system(&keyspace.name)
        };
        let (known, others): (Vec<_>, Vec<_>) =
            changed_keyspaces(old, new).partition(|keyspace| is_known(keyspace));
        let altered = known.into_iter().filter_map(|keyspace| {
            Some(AlteredKeyspaceDocument::of(old.keyspaces.get(&keyspace.name)?, keyspace))
        });
        Self { altered: altered.collect(), ..Self::of_keyspaces(new.version, others.into_iter()) }
    }

    /// The keyspaces in which `new` differs from `old`, complete; the version is the new one.
    pub fn difference(old: &Catalog, new: &Catalog) -> Self {
        Self::of_keyspaces(new.version, changed_keyspaces(old, new))
    }

    fn of_keyspaces<'a>(version: Uuid, keyspaces: impl Iterator<Item = &'a Arc<Keyspace>>) -> Self {
        let (system, users): (Vec<_>, Vec<_>) =
            keyspaces.partition(|keyspace| system_keyspaces::is_system(&keyspace.name));
        Self {
            version: version.to_string(),
            keyspaces: users.into_iter().map(|keyspace| keyspace_document(keyspace)).collect(),
            system_keyspaces: system
                .into_iter()
                .filter(|keyspace| system_keyspaces::is_replicated(&keyspace.name))
                .map(|keyspace| (keyspace.name.clone(), settings_document(keyspace)))
                .collect(),
            altered: Vec::new(),
        }
    }

    /// The version of the catalog of this document.
    pub fn version(&self) -> Result<Uuid, DocumentError> {
        uuid(&self.version)
    }

    /// The catalog of a complete document, with the system keyspaces of this program.
    pub fn catalog(&self) -> Result<Catalog, DocumentError> {
        self.over(&system_tables::initial_catalog(Uuid::nil()))
    }

    /// A catalog with these keyspaces added, replaced or altered.
    pub fn over(&self, catalog: &Catalog) -> Result<Catalog, DocumentError> {
        let mut catalog = catalog.clone();
        catalog.version = self.version()?;
        for (name, settings) in &self.system_keyspaces {
            if let Some(keyspace) = catalog.keyspaces.get_mut(name) {
                let mut altered = Keyspace::clone(keyspace);
                altered.replication = settings.replication.clone();
                altered.durable_writes = settings.durable_writes;
                *keyspace = Arc::new(altered);
            }
        }
        for document in &self.keyspaces {
            let keyspace = keyspace(document)?;
            catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        }
        for altered in &self.altered {
            let keyspace = catalog.keyspaces.get_mut(&altered.name);
            let keyspace = keyspace.ok_or_else(|| DocumentError::MissingKeyspace(altered.name.clone()))?;
            *keyspace = Arc::new(altered.over(keyspace)?);
        }
        Ok(catalog)
    }
}

/// The keyspaces of `new` that are not those of `old`.
fn changed_keyspaces<'a>(old: &Catalog, new: &'a Catalog) -> impl Iterator<Item = &'a Arc<Keyspace>> {
    let is_same = |keyspace: &Arc<Keyspace>| {
        old.keyspaces.get(&keyspace.name).is_some_and(|known| Arc::ptr_eq(known, keyspace))
    };
    new.keyspaces.values().filter(move |keyspace| !is_same(keyspace))
}

impl AlteredKeyspaceDocument {
    fn of(old: &Keyspace, new: &Keyspace) -> Self {
        let (mut tables, mut dropped_tables) = (Vec::new(), Vec::new());
        for (before, table) in Keyspace::table_differences(Some(old), Some(new)) {
            match (before, table) {
                (_, Some(table)) => tables.push(table_document(table)),
                (before, None) => dropped_tables.extend(before.map(|before| before.name.clone())),
            }
        }
        Self {
            name: new.name.clone(),
            settings: settings_document(new),
            types: (old.types != new.types).then(|| type_documents(new)),
            tables,
            dropped_tables,
            user_functions: (old.user_functions != new.user_functions).then(|| FunctionsDocument::of(new)),
        }
    }

    fn over(&self, old: &Keyspace) -> Result<Keyspace, DocumentError> {
        let mut keyspace = old.clone();
        keyspace.replication = self.settings.replication.clone();
        keyspace.durable_writes = self.settings.durable_writes;
        if let Some(types) = &self.types {
            keyspace.types = user_types(&self.name, types)?;
        }
        for name in &self.dropped_tables {
            keyspace.tables.remove(name);
        }
        for document in &self.tables {
            let table = table(document, &keyspace)?;
            keyspace.tables.insert(table.name.clone(), Arc::new(table));
        }
        if let Some(functions) = &self.user_functions {
            keyspace.user_functions = functions.functions(&keyspace)?;
        }
        Ok(keyspace)
    }
}

impl FunctionsDocument {
    fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.aggregates.is_empty()
    }

    fn of(keyspace: &Keyspace) -> Self {
        let functions = keyspace.user_functions.functions().iter().map(|function| FunctionDocument {
            name: function.name.clone(),
            arguments: std::iter::zip(function.argument_names.clone(), type_names(&function.argument_types))
                .collect(),
            returns: function.return_type.to_string(),
            called_on_null_input: function.called_on_null_input,
            language: function.language.clone(),
            body: function.body.clone(),
        });
        let aggregates = keyspace.user_functions.aggregates().iter().map(|aggregate| AggregateDocument {
            name: aggregate.name.clone(),
            argument_types: type_names(&aggregate.argument_types),
            state_function: aggregate.state_function.clone(),
            state_type: aggregate.state_type.to_string(),
            final_function: aggregate.final_function.clone(),
            returns: aggregate.return_type.to_string(),
            initial_condition: aggregate
                .initial_condition
                .as_ref()
                .map(|bytes| literal::format(&CqlType::Blob, bytes)),
        });
        Self { functions: functions.collect(), aggregates: aggregates.collect() }
    }

    /// The functions and aggregates in a keyspace that has its types.
    fn functions(&self, keyspace: &Keyspace) -> Result<UserFunctions, DocumentError> {
        let parse = |of: &str, text: &str| {
            parse_type(text, &keyspace.types, || format!("function {}.{of}", keyspace.name))
        };
        let mut functions = Vec::with_capacity(self.functions.len());
        for document in &self.functions {
            let name = &document.name;
            let (argument_names, types): (Vec<String>, Vec<String>) =
                document.arguments.iter().cloned().unzip();
            let argument_types = types.iter().map(|text| parse(name, text)).collect::<Result<_, _>>()?;
            functions.push(UserFunction {
                keyspace: keyspace.name.clone(),
                name: name.clone(),
                argument_names,
                argument_types,
                return_type: parse(name, &document.returns)?,
                called_on_null_input: document.called_on_null_input,
                language: document.language.clone(),
                body: document.body.clone(),
            });
        }
        let mut aggregates = Vec::with_capacity(self.aggregates.len());
        for document in &self.aggregates {
            let name = &document.name;
            let argument_types = document.argument_types.iter().map(|text| parse(name, text));
            let initial_condition = document.initial_condition.as_ref().map(|text| {
                literal::parse(&CqlType::Blob, text).map_err(|_| DocumentError::InitialCondition {
                    aggregate: format!("{}.{name}", keyspace.name),
                })
            });
            aggregates.push(UserAggregate {
                keyspace: keyspace.name.clone(),
                name: name.clone(),
                argument_types: argument_types.collect::<Result<_, _>>()?,
                state_function: document.state_function.clone(),
                state_type: parse(name, &document.state_type)?,
                final_function: document.final_function.clone(),
                return_type: parse(name, &document.returns)?,
                initial_condition: initial_condition.transpose()?,
            });
        }
        Ok(UserFunctions::new(functions, aggregates))
    }
}

fn settings_document(keyspace: &Keyspace) -> SettingsDocument {
    SettingsDocument { replication: keyspace.replication.clone(), durable_writes: keyspace.durable_writes }
}

fn type_documents(keyspace: &Keyspace) -> Vec<UserTypeDocument> {
    let types = keyspace.types.values().map(|definition| {
        let fields = definition.field_names.iter().zip(&definition.field_types);
        UserTypeDocument {
            name: definition.name.to_string(),
            fields: fields.map(|(name, field)| (name.to_string(), field.to_string())).collect(),
        }
    });
    types.collect()
}

fn keyspace_document(keyspace: &Keyspace) -> KeyspaceDocument {
    KeyspaceDocument {
        name: keyspace.name.clone(),
        settings: settings_document(keyspace),
        types: type_documents(keyspace),
        tables: keyspace.tables.values().map(|table| table_document(table)).collect(),
        user_functions: FunctionsDocument::of(keyspace),
    }
}

fn table_document(table: &Table) -> TableDocument {
    let column = |column: &Column| ColumnDocument {
        id: column.id,
        name: column.name.clone(),
        type_text: column.column_type.to_string(),
        kind: column.kind,
        constraints: table.constraints.get(&column.id).map(|constraints| constraints.to_cql(&column.name)),
        mask: table.masks.get(&column.id).map(ColumnMask::to_cql),
    };
    let compact = |compact: &CompactStorage| CompactDocument {
        hidden_columns: compact.hidden_columns.iter().map(column).collect(),
    };
    let dropped_columns = table.dropped_columns.iter().map(|column| DroppedColumnDocument {
        id: column.id,
        name: column.name.clone(),
        type_text: column.column_type.to_string(),
        is_static: column.is_static,
        dropped_at_micros: column.dropped_at_micros,
    });
    let indexes = table.indexes.iter().map(|index| IndexDocument {
        name: index.name.clone(),
        id: index.id.to_string(),
        kind: index.kind,
        column_id: index.column_id,
        part: index.part,
        options: index.options.clone(),
    });
    TableDocument {
        name: table.name.clone(),
        id: table.id.to_string(),
        columns: table.columns.iter().map(column).collect(),
        options: table.options.clone(),
        is_counter: table.is_counter,
        dropped_columns: dropped_columns.collect(),
        next_column_id: table.next_column_id,
        indexes: indexes.collect(),
        compact: table.compact.as_ref().map(compact),
        view: table.view.as_deref().map(ViewDocument::of),
    }
}

fn keyspace(document: &KeyspaceDocument) -> Result<Keyspace, DocumentError> {
    let mut keyspace = Keyspace {
        types: user_types(&document.name, &document.types)?,
        name: document.name.clone(),
        replication: document.settings.replication.clone(),
        durable_writes: document.settings.durable_writes,
        is_virtual: false,
        tables: OrdMap::new(),
        user_functions: UserFunctions::default(),
    };
    keyspace.user_functions = document.user_functions.functions(&keyspace)?;
    for document in &document.tables {
        let table = table(document, &keyspace)?;
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    Ok(keyspace)
}

/// The user types, each after those that it uses.
fn user_types(
    keyspace: &str,
    documents: &[UserTypeDocument],
) -> Result<BTreeMap<String, Arc<UserType>>, DocumentError> {
    let mut known: BTreeMap<String, Arc<UserType>> = BTreeMap::new();
    let mut waiting: Vec<&UserTypeDocument> = documents.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut still_waiting = Vec::new();
        for user_type in waiting {
            match user_type_of(keyspace, user_type, &known) {
                Ok(definition) => {
                    known.insert(user_type.name.clone(), Arc::new(definition));
                }
                Err(DocumentError::Type { source: TypeParseError::UnknownType { .. }, .. }) => {
                    still_waiting.push(user_type);
                }
                Err(error) => return Err(error),
            }
        }
        waiting = still_waiting;
        if waiting.len() == before {
            let names: Vec<&str> = waiting.iter().map(|user_type| user_type.name.as_str()).collect();
            return Err(DocumentError::UserTypes { names: names.join(", ") });
        }
    }
    Ok(known)
}

fn user_type_of(
    keyspace: &str,
    document: &UserTypeDocument,
    known: &BTreeMap<String, Arc<UserType>>,
) -> Result<UserType, DocumentError> {
    let mut field_names = Vec::with_capacity(document.fields.len());
    let mut field_types = Vec::with_capacity(document.fields.len());
    for (name, text) in &document.fields {
        field_names.push(name.as_str().into());
        field_types.push(parse_type(text, known, || format!("{keyspace}.{}.{name}", document.name))?);
    }
    Ok(UserType { keyspace: keyspace.into(), name: document.name.as_str().into(), field_names, field_types })
}

fn table(document: &TableDocument, keyspace: &Keyspace) -> Result<Table, DocumentError> {
    let place = |column: &str| format!("{}.{}.{column}", keyspace.name, document.name);
    let columns_of = |documents: &[ColumnDocument]| {
        let column = |column: &ColumnDocument| {
            let column_type = parse_type(&column.type_text, &keyspace.types, || place(&column.name))?;
            Ok(Column { id: column.id, name: column.name.clone(), column_type, kind: column.kind })
        };
        documents.iter().map(column).collect::<Result<Vec<Column>, DocumentError>>()
    };
    let columns = columns_of(&document.columns)?;
    let compact = match &document.compact {
        Some(compact) => Some(CompactStorage { hidden_columns: columns_of(&compact.hidden_columns)? }),
        None => None,
    };
    let (mut constraints, mut masks) = (BTreeMap::new(), BTreeMap::new());
    for (stored, column) in document.columns.iter().zip(&columns) {
        let invalid = |message: String| DocumentError::Rule { place: place(&column.name), message };
        if let Some(text) = &stored.constraints {
            let stored = parse_constraints(text).map_err(|error| invalid(error.to_string()))?;
            constraints.insert(column.id, Constraints::restore(column.constraint_target(), &stored));
        }
        if let Some(text) = &stored.mask {
            let mask = parse_mask(text).map_err(|error| invalid(error.to_string()))?;
            let mask = ColumnMask::restore(&column.column_type, &mask)
                .ok_or_else(|| invalid(format!("{text} has an argument that is no constant")))?;
            masks.insert(column.id, mask);
        }
    }
    let mut dropped_columns = Vec::with_capacity(document.dropped_columns.len());
    for column in &document.dropped_columns {
        let column_type = parse_type(&column.type_text, &keyspace.types, || place(&column.name))?;
        dropped_columns.push(DroppedColumn {
            id: column.id,
            name: column.name.clone(),
            column_type,
            is_static: column.is_static,
            dropped_at_micros: column.dropped_at_micros,
        });
    }
    let mut indexes = Vec::with_capacity(document.indexes.len());
    for index in &document.indexes {
        if columns.iter().all(|column| column.id != index.column_id) {
            return Err(DocumentError::IndexWithoutColumn {
                index: index.name.clone(),
                table: format!("{}.{}", keyspace.name, document.name),
            });
        }
        indexes.push(Arc::new(Index {
            name: index.name.clone(),
            id: uuid(&index.id)?,
            kind: index.kind,
            column_id: index.column_id,
            part: index.part,
            options: index.options.clone(),
        }));
    }
    let mut table = Table {
        keyspace: keyspace.name.clone(),
        id: uuid(&document.id)?,
        name: document.name.clone(),
        kind: TableKind::Stored,
        columns,
        partition_key_count: 0,
        clustering_key_count: 0,
        options: document.options.clone(),
        is_counter: document.is_counter,
        compact,
        dropped_columns,
        next_column_id: document.next_column_id,
        indexes,
        constraints,
        masks,
        view: document.view.as_ref().map(view_of).transpose()?.map(Arc::new),
    };
    table.arrange_columns();
    Ok(table)
}

fn view_of(document: &ViewDocument) -> Result<View, DocumentError> {
    document.view().ok_or_else(|| DocumentError::View { text: document.text().to_owned() })
}

fn parse_type(
    text: &str,
    known: &BTreeMap<String, Arc<UserType>>,
    place: impl Fn() -> String,
) -> Result<CqlType, DocumentError> {
    let parsed = CqlType::parse(text, &|name| known.get(name).cloned());
    parsed.map_err(|source| DocumentError::Type { place: place(), source })
}

fn uuid(text: &str) -> Result<Uuid, DocumentError> {
    Uuid::parse_str(text).map_err(|_| DocumentError::Id { text: text.to_owned() })
}

#[cfg(test)]
mod tests;
