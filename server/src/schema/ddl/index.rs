//! CREATE INDEX and DROP INDEX.
//!
//! An index is kept in the catalog as declared: a secondary index (`COMPOSITES`) or a storage-attached one (`CUSTOM`
//! with its class name). Its target is text: `column`, `values(column)`, `keys(column)`, `entries(column)` or
//! `full(column)`, the name quoted where CQL asks for it.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::{CreateIndex, DropIndex, Identifier, IndexTarget};
use cql_lite::types::CqlType;

use super::{
    Change, Ddl, MAX_TABLE_NAME_LENGTH, configuration, invalid, is_valid_name, quoted, refuse_system_keyspace,
};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, Index, Keyspace, Table};
use crate::schema::options::Properties;

const CLASS_NAME: &str = "class_name";
const TARGET: &str = "target";
/// Names under which the storage-attached index is known, in lower case.
const STORAGE_ATTACHED: [&str; 3] =
    ["sai", "storageattachedindex", "org.apache.cassandra.index.sai.storageattachedindex"];
const STORAGE_ATTACHED_OPTIONS: [&str; 8] = [
    "ascii",
    "case_sensitive",
    "construction_beam_width",
    "maximum_node_connections",
    "normalize",
    "optimize_for",
    "similarity_function",
    "index_analyzer",
];

impl Ddl<'_> {
    pub(super) fn create_index(&self, create: &CreateIndex) -> Result<Change> {
        let keyspace_name = self.keyspace_name(create.table.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let class_options = class_options(create)?;
        let keyspace = self.modifiable_keyspace(keyspace_name)?;
        let table_name = create.table.name.as_str();
        let Some(table) = keyspace.tables.get(table_name) else {
            return invalid(format!("Table '{table_name}' doesn't exist"));
        };
        let name = create.name.as_ref().map(Identifier::as_str);
        if let Some(name) = name
            && find(keyspace, name).is_some()
        {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index '{name}' already exists"))
            };
        }
        if table.is_counter {
            return invalid("Secondary indexes on counter tables aren't supported");
        }
        let target = match create.targets.as_slice() {
            [target] => target,
            [] if class_options.is_none() => {
                return invalid("Only CUSTOM indexes can be created without specifying a target column");
            }
            [] => return invalid("A storage-attached index needs exactly one target column"),
            _ if class_options.is_none() => return invalid("Only CUSTOM indexes support multiple columns"),
            _ => return invalid("Cannot create secondary index on multiple columns"),
        };
        let target = Target::prepare(table, target)?;
        target.check(table)?;

        let (kind, mut options) = match class_options {
            None => ("COMPOSITES", BTreeMap::new()),
            Some(options) => ("CUSTOM", options),
        };
        options.insert(TARGET.to_owned(), target.to_text());
        let name = match name {
            Some(name) if is_valid_name(name, MAX_TABLE_NAME_LENGTH) => name.to_owned(),
            Some(name) => return invalid(format!("Illegal index name {name}")),
            None => available_name(keyspace, table_name, &target.column.name),
        };
        let index = Index { name: name.clone(), kind: kind.to_owned(), options };
        let twin =
            table.indexes.values().find(|other| other.kind == index.kind && other.options == index.options);
        if let Some(twin) = twin {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index {name} is a duplicate of existing index {}", twin.name))
            };
        }
        let mut altered = Table::clone(table);
        altered.indexes.insert(name, index);
        Ok(self.table_changed(keyspace, altered))
    }

    pub(super) fn drop_index(&self, drop: &DropIndex) -> Result<Change> {
        let keyspace_name = self.keyspace_name(drop.name.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = drop.name.name.as_str();
        let found =
            self.catalog.keyspace(keyspace_name).and_then(|keyspace| Some((keyspace, find(keyspace, name)?)));
        let Some((keyspace, table)) = found else {
            return if drop.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index '{keyspace_name}.{name}' doesn't exist"))
            };
        };
        let mut altered = Table::clone(table);
        altered.indexes.remove(name);
        Ok(self.table_changed(keyspace, altered))
    }
}

/// The column of a target text; nothing if the text is not of a known form.
pub(super) fn target_column(target: &str) -> Option<String> {
    let inner = match target.split_once('(') {
        Some((function, rest)) if ["values", "keys", "entries", "full"].contains(&function) => {
            rest.strip_suffix(')')?
        }
        _ => target,
    };
    match inner.strip_prefix('"') {
        Some(rest) => Some(rest.strip_suffix('"')?.replace("\"\"", "\"")),
        None => Some(inner.to_owned()),
    }
}

/// The table that has the index.
fn find<'a>(keyspace: &'a Keyspace, index: &str) -> Option<&'a Table> {
    keyspace.tables.values().find(|table| table.indexes.contains_key(index)).map(AsRef::as_ref)
}

/// `<table>_<column>_idx`, with a number if that is taken.
fn available_name(keyspace: &Keyspace, table: &str, column: &str) -> String {
    let mut base = format!("{table}_{column}_idx");
    base.retain(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let numbered = (1_u32..).map(|number| format!("{base}_{number}"));
    let mut candidates = std::iter::once(base.clone()).chain(numbered);
    candidates.find(|name| find(keyspace, name).is_none()).unwrap_or(base)
}

/// Nothing for a secondary index; the options of the class, with its name, for a storage-attached one.
fn class_options(create: &CreateIndex) -> Result<Option<BTreeMap<String, String>>> {
    let properties = Properties::from_ast(&create.properties)?;
    properties.refuse_unknown(&["options"])?;
    let options = properties.map("options")?.cloned().unwrap_or_default();
    let class = match &create.class {
        None if create.custom => return invalid("CUSTOM index requires specifying the index class"),
        None => None,
        Some(class) if class.eq_ignore_ascii_case("legacy_local_table") && !create.custom => None,
        Some(class) => Some(class),
    };
    let Some(class) = class else {
        return if options.is_empty() {
            Ok(None)
        } else {
            invalid("Cannot specify options for a non-CUSTOM index")
        };
    };
    if !STORAGE_ATTACHED.contains(&class.to_lowercase().as_str()) {
        return invalid(format!(
            "The index class '{class}' is not supported by Helenus; use 'StorageAttachedIndex'"
        ));
    }
    for reserved in [CLASS_NAME, TARGET] {
        if options.contains_key(reserved) {
            return invalid(format!("Cannot specify {reserved} as a CUSTOM option"));
        }
    }
    if let Some(unknown) = options.keys().find(|name| !STORAGE_ATTACHED_OPTIONS.contains(&name.as_str())) {
        return configuration(format!(
            "Properties specified [{unknown}] are not understood by StorageAttachedIndex"
        ));
    }
    let mut options = options;
    options.insert(CLASS_NAME.to_owned(), class.clone());
    Ok(Some(options))
}

/// What of a column is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetKind {
    Simple,
    Values,
    Keys,
    Entries,
    Full,
}

impl TargetKind {
    fn name(self) -> &'static str {
        match self {
            Self::Simple => "",
            Self::Values => "values",
            Self::Keys => "keys",
            Self::Entries => "entries",
            Self::Full => "full",
        }
    }
}

struct Target<'a> {
    kind: TargetKind,
    column: &'a Column,
}

impl<'a> Target<'a> {
    fn prepare(table: &'a Table, target: &IndexTarget) -> Result<Self> {
        let name = target.column().as_str();
        let column = table
            .column(name)
            .ok_or_else(|| RequestError::Invalid(format!("Column '{name}' doesn't exist")))?;
        let kind = match target {
            // The index of a collection is one of its values unless it says otherwise.
            IndexTarget::Simple(_) if column.column_type.is_collection() => TargetKind::Values,
            IndexTarget::Simple(_) => TargetKind::Simple,
            IndexTarget::Values(_) => TargetKind::Values,
            IndexTarget::Keys(_) => TargetKind::Keys,
            IndexTarget::Entries(_) => TargetKind::Entries,
            IndexTarget::Full(_) => TargetKind::Full,
        };
        Ok(Self { kind, column })
    }

    fn to_text(&self) -> String {
        let name = quoted(&self.column.name);
        match self.kind {
            TargetKind::Simple => name,
            kind => format!("{}({name})", kind.name()),
        }
    }

    fn check(&self, table: &Table) -> Result<()> {
        let column = &self.column.name;
        let column_type = &self.column.column_type;
        let kind = self.kind;
        if column_type.any(&|inner| *inner == CqlType::Duration) {
            let place = match column_type {
                CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => {
                    "collections containing durations"
                }
                CqlType::Tuple(_) => "tuples containing durations",
                CqlType::UserType { .. } => "UDTs containing durations",
                _ => "duration columns",
            };
            return invalid(format!("Secondary indexes are not supported on {place}"));
        }
        if self.column.is_partition_key() && table.partition_key_count == 1 {
            return invalid(format!(
                "Cannot create secondary index on the only partition key column {column}"
            ));
        }
        let is_frozen_collection = column_type.is_collection() && !column_type.is_multi_cell();
        if is_frozen_collection && kind != TargetKind::Full {
            return invalid(format!(
                "Cannot create {}() index on frozen column {column}. Frozen collections are immutable and must be \
                 fully indexed by using the 'full({column})' modifier",
                kind.name()
            ));
        }
        if !is_frozen_collection && kind == TargetKind::Full {
            return invalid("full() indexes can only be created on frozen collections");
        }
        if !column_type.is_collection() && kind != TargetKind::Simple {
            return invalid(format!(
                "Cannot create {}() index on {column}. Non-collection columns only support simple indexes",
                kind.name()
            ));
        }
        let is_map = matches!(column_type, CqlType::Map { frozen: false, .. });
        if !is_map && matches!(kind, TargetKind::Keys | TargetKind::Entries) {
            return invalid(format!(
                "Cannot create index on {} of column {column} with non-map type",
                kind.name()
            ));
        }
        if column_type.is_user_type() && column_type.is_multi_cell() {
            return invalid(format!("Cannot create index on non-frozen UDT column {column}"));
        }
        Ok(())
    }
}
