//! The catalog as bytes, for the disk.
//!
//! ```text
//! "HELENUSCATALOG" | format version (u16) | length of the document (u32) | CRC-32 of the document (u32) | document
//! ```
//!
//! Numbers are big endian. The document is JSON with types as CQL text. It holds the keyspaces of the users whole and
//! of the system keyspaces only what may be altered: replication and durable writes. Everything else about them comes
//! with the program, so that a newer program brings its own system tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::types::cql_type::TypeParseError;
use cql_lite::types::{CqlType, UserType};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::catalog::{Catalog, Column, ColumnKind, DroppedColumn, Keyspace, Replication, Table, TableKind};
use super::options::TableOptions;
use super::system_keyspaces;

const MAGIC: &[u8; 14] = b"HELENUSCATALOG";
const FORMAT_VERSION: u16 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 2 + 4 + 4;

/// Why bytes are not a catalog.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the file is not a Helenus catalog")]
    NotACatalog,
    #[error("the catalog has format version {found}; this program reads version {FORMAT_VERSION}")]
    Version { found: u16 },
    #[error(
        "the catalog is damaged: {expected} bytes with CRC {expected_crc:08x} announced, {found} with {found_crc:08x} found"
    )]
    Damaged { expected: usize, expected_crc: u32, found: usize, found_crc: u32 },
    #[error("the catalog cannot be read: {0}")]
    Document(#[from] serde_json::Error),
    #[error("the type of {place} in the catalog cannot be read: {source}")]
    Type { place: String, source: TypeParseError },
    #[error("the id {text} in the catalog is not a UUID")]
    Id { text: String },
    #[error("the catalog has user types that need each other or a missing one: {names}")]
    UserTypes { names: String },
}

#[derive(Serialize, Deserialize)]
struct CatalogDocument {
    version: String,
    keyspaces: Vec<KeyspaceDocument>,
    system_keyspaces: BTreeMap<String, SettingsDocument>,
}

#[derive(Serialize, Deserialize)]
struct SettingsDocument {
    replication: Replication,
    durable_writes: bool,
}

#[derive(Serialize, Deserialize)]
struct KeyspaceDocument {
    name: String,
    settings: SettingsDocument,
    types: Vec<UserTypeDocument>,
    tables: Vec<TableDocument>,
}

#[derive(Serialize, Deserialize)]
struct UserTypeDocument {
    name: String,
    /// Names and types, in order.
    fields: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct TableDocument {
    name: String,
    id: String,
    columns: Vec<ColumnDocument>,
    options: TableOptions,
    is_counter: bool,
    dropped_columns: Vec<DroppedColumnDocument>,
    next_column_id: u32,
}

#[derive(Serialize, Deserialize)]
struct ColumnDocument {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_text: String,
    kind: ColumnKind,
}

#[derive(Serialize, Deserialize)]
struct DroppedColumnDocument {
    id: u32,
    name: String,
    #[serde(rename = "type")]
    type_text: String,
    is_static: bool,
    dropped_at_micros: i64,
}

/// The catalog as bytes.
pub fn encode(catalog: &Catalog) -> Result<Vec<u8>, StoreError> {
    let (system, users): (Vec<_>, Vec<_>) =
        catalog.keyspaces.values().partition(|keyspace| system_keyspaces::is_system(&keyspace.name));
    let document = CatalogDocument {
        version: catalog.version.to_string(),
        keyspaces: users.into_iter().map(|keyspace| keyspace_document(keyspace)).collect(),
        system_keyspaces: system
            .into_iter()
            .filter(|keyspace| system_keyspaces::is_replicated(&keyspace.name))
            .map(|keyspace| (keyspace.name.clone(), settings_document(keyspace)))
            .collect(),
    };
    let document = serde_json::to_vec(&document)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + document.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
    bytes.extend_from_slice(&(document.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&document).to_be_bytes());
    bytes.extend_from_slice(&document);
    Ok(bytes)
}

/// The catalog that [`encode`] wrote, with the system keyspaces of this program.
pub fn decode(bytes: &[u8]) -> Result<Catalog, StoreError> {
    let document: CatalogDocument = serde_json::from_slice(checked_document(bytes)?)?;
    let mut catalog = system_keyspaces::initial_catalog(uuid(&document.version)?);
    for (name, settings) in document.system_keyspaces {
        if let Some(keyspace) = catalog.keyspaces.get_mut(&name) {
            let mut altered = Keyspace::clone(keyspace);
            altered.replication = settings.replication;
            altered.durable_writes = settings.durable_writes;
            *keyspace = Arc::new(altered);
        }
    }
    for document in document.keyspaces {
        let keyspace = keyspace(document)?;
        catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
    }
    Ok(catalog)
}

fn checked_document(bytes: &[u8]) -> Result<&[u8], StoreError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(StoreError::NotACatalog)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(StoreError::NotACatalog)?;
    let version = u16::from_be_bytes(*version);
    if version != FORMAT_VERSION {
        return Err(StoreError::Version { found: version });
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or(StoreError::NotACatalog)?;
    let (crc, document) = rest.split_first_chunk::<4>().ok_or(StoreError::NotACatalog)?;
    let expected = u32::from_be_bytes(*length) as usize;
    let expected_crc = u32::from_be_bytes(*crc);
    let found_crc = crc32fast::hash(document);
    if expected != document.len() || expected_crc != found_crc {
        return Err(StoreError::Damaged { expected, expected_crc, found: document.len(), found_crc });
    }
    Ok(document)
}

fn settings_document(keyspace: &Keyspace) -> SettingsDocument {
    SettingsDocument { replication: keyspace.replication.clone(), durable_writes: keyspace.durable_writes }
}

fn keyspace_document(keyspace: &Keyspace) -> KeyspaceDocument {
    let types = keyspace.types.values().map(|definition| {
        let fields = definition.field_names.iter().zip(&definition.field_types);
        UserTypeDocument {
            name: definition.name.to_string(),
            fields: fields.map(|(name, field)| (name.to_string(), field.to_string())).collect(),
        }
    });
    KeyspaceDocument {
        name: keyspace.name.clone(),
        settings: settings_document(keyspace),
        types: types.collect(),
        tables: keyspace.tables.values().map(|table| table_document(table)).collect(),
    }
}

fn table_document(table: &Table) -> TableDocument {
    let columns = table.columns.iter().map(|column| ColumnDocument {
        id: column.id,
        name: column.name.clone(),
        type_text: column.column_type.to_string(),
        kind: column.kind,
    });
    let dropped_columns = table.dropped_columns.iter().map(|column| DroppedColumnDocument {
        id: column.id,
        name: column.name.clone(),
        type_text: column.column_type.to_string(),
        is_static: column.is_static,
        dropped_at_micros: column.dropped_at_micros,
    });
    TableDocument {
        name: table.name.clone(),
        id: table.id.to_string(),
        columns: columns.collect(),
        options: table.options.clone(),
        is_counter: table.is_counter,
        dropped_columns: dropped_columns.collect(),
        next_column_id: table.next_column_id,
    }
}

fn keyspace(document: KeyspaceDocument) -> Result<Keyspace, StoreError> {
    let mut keyspace = Keyspace {
        types: user_types(&document)?,
        name: document.name,
        replication: document.settings.replication,
        durable_writes: document.settings.durable_writes,
        is_virtual: false,
        tables: BTreeMap::new(),
    };
    for document in document.tables {
        let table = table(document, &keyspace)?;
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    Ok(keyspace)
}

/// The user types, each after those that it uses.
fn user_types(document: &KeyspaceDocument) -> Result<BTreeMap<String, Arc<UserType>>, StoreError> {
    let mut known: BTreeMap<String, Arc<UserType>> = BTreeMap::new();
    let mut waiting: Vec<&UserTypeDocument> = document.types.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut still_waiting = Vec::new();
        for user_type in waiting {
            match user_type_of(&document.name, user_type, &known) {
                Ok(definition) => {
                    known.insert(user_type.name.clone(), Arc::new(definition));
                }
                Err(StoreError::Type { source: TypeParseError::UnknownType { .. }, .. }) => {
                    still_waiting.push(user_type);
                }
                Err(error) => return Err(error),
            }
        }
        waiting = still_waiting;
        if waiting.len() == before {
            let names: Vec<&str> = waiting.iter().map(|user_type| user_type.name.as_str()).collect();
            return Err(StoreError::UserTypes { names: names.join(", ") });
        }
    }
    Ok(known)
}

fn user_type_of(
    keyspace: &str,
    document: &UserTypeDocument,
    known: &BTreeMap<String, Arc<UserType>>,
) -> Result<UserType, StoreError> {
    let mut field_names = Vec::with_capacity(document.fields.len());
    let mut field_types = Vec::with_capacity(document.fields.len());
    for (name, text) in &document.fields {
        field_names.push(name.as_str().into());
        field_types.push(parse_type(text, known, || format!("{keyspace}.{}.{name}", document.name))?);
    }
    Ok(UserType { keyspace: keyspace.into(), name: document.name.as_str().into(), field_names, field_types })
}

fn table(document: TableDocument, keyspace: &Keyspace) -> Result<Table, StoreError> {
    let place = |column: &str| format!("{}.{}.{column}", keyspace.name, document.name);
    let mut columns = Vec::with_capacity(document.columns.len());
    for column in document.columns {
        let column_type = parse_type(&column.type_text, &keyspace.types, || place(&column.name))?;
        columns.push(Column { id: column.id, name: column.name, column_type, kind: column.kind });
    }
    let mut dropped_columns = Vec::with_capacity(document.dropped_columns.len());
    for column in document.dropped_columns {
        let column_type = parse_type(&column.type_text, &keyspace.types, || place(&column.name))?;
        dropped_columns.push(DroppedColumn {
            id: column.id,
            name: column.name,
            column_type,
            is_static: column.is_static,
            dropped_at_micros: column.dropped_at_micros,
        });
    }
    let mut table = Table {
        keyspace: keyspace.name.clone(),
        id: uuid(&document.id)?,
        name: document.name,
        kind: TableKind::Stored,
        columns,
        partition_key_count: 0,
        clustering_key_count: 0,
        options: document.options,
        is_counter: document.is_counter,
        dropped_columns,
        next_column_id: document.next_column_id,
    };
    table.arrange_columns();
    Ok(table)
}

fn parse_type(
    text: &str,
    known: &BTreeMap<String, Arc<UserType>>,
    place: impl Fn() -> String,
) -> Result<CqlType, StoreError> {
    let parsed = CqlType::parse(text, &|name| known.get(name).cloned());
    parsed.map_err(|source| StoreError::Type { place: place(), source })
}

fn uuid(text: &str) -> Result<Uuid, StoreError> {
    Uuid::parse_str(text).map_err(|_| StoreError::Id { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ddl::tests::Session;

    fn catalog() -> Catalog {
        let session = Session::with(&[
            "CREATE TYPE zz (x int, \"Odd name\" frozen<list<text>>)",
            "CREATE TYPE aa (z frozen<zz>, v vector<float, 3>)",
            "CREATE TABLE t (k1 int, k2 text, c frozen<aa>, s int STATIC, m map<text, frozen<zz>>, u zz, \
             t tuple<int, text>, old frozen<zz>, PRIMARY KEY ((k1, k2), c)) WITH CLUSTERING ORDER BY (c DESC) AND \
             comment = 'it''s' AND speculative_retry = 'MIN(99p,50ms)' AND compression = {'class': 'ZstdCompressor'}",
            "CREATE TABLE n (k int PRIMARY KEY, c counter)",
            "ALTER TABLE t DROP old",
            "ALTER KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        ]);
        Catalog::clone(&session.catalog)
    }

    #[test]
    fn a_catalog_reads_back_as_itself() {
        let catalog = catalog();
        let read = decode(&encode(&catalog).unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{catalog:?}"));
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = encode(&catalog()).unwrap();
        assert!(matches!(decode(b""), Err(StoreError::NotACatalog)));
        assert!(matches!(decode(&bytes[..HEADER_BYTES - 1]), Err(StoreError::NotACatalog)));
        assert!(matches!(decode(&bytes[..bytes.len() - 1]), Err(StoreError::Damaged { .. })));
        for position in HEADER_BYTES..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert!(matches!(decode(&damaged), Err(StoreError::Damaged { .. })));
        }
        let mut newer = bytes;
        newer[MAGIC.len() + 1] = 2;
        assert!(matches!(decode(&newer), Err(StoreError::Version { found: 2 })));
    }

    #[test]
    fn the_header_is_as_described() {
        let bytes = encode(&system_keyspaces::initial_catalog(Uuid::nil())).unwrap();
        assert_eq!(&bytes[..16], b"HELENUSCATALOG\x00\x01");
        let length = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
        assert_eq!(length as usize, bytes.len() - HEADER_BYTES);
        assert!(bytes[HEADER_BYTES..].starts_with(b"{\"version\":\"00000000-"));
    }
}
