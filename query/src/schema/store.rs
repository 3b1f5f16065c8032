//! The catalog as bytes, for the disk.
//!
//! ```text
//! "HELENUSCATALOG" | format version (u16) | length of the document (u32) | CRC-32 of the document (u32) | document
//! ```
//!
//! Numbers are big endian. In version 1 the document is a catalog ([`super::document`]); in version 2 it is the whole
//! applied state of the cluster, catalog included, and in version 3 the changes to such a state; the server encodes both.

use super::catalog::Catalog;
use super::document::{CatalogDocument, DocumentError};

const MAGIC: &[u8; 14] = b"HELENUSCATALOG";
const HEADER_BYTES: usize = MAGIC.len() + 2 + 4 + 4;
/// A catalog alone.
pub const CATALOG_VERSION: u16 = 1;
/// The applied state of the cluster.
pub const STATE_VERSION: u16 = 2;
/// Changes to an applied state.
pub const CHANGES_VERSION: u16 = 3;

/// The reason why bytes are not a catalog.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the file is not a Helenus catalog")]
    NotACatalog,
    #[error("the catalog has format version {found}; this program reads versions up to {CHANGES_VERSION}")]
    Version { found: u16 },
    #[error(
        "the catalog is damaged: {expected} bytes with CRC {expected_crc:08x} announced, {found} with {found_crc:08x} found"
    )]
    Damaged { expected: usize, expected_crc: u32, found: usize, found_crc: u32 },
    #[error("the catalog cannot be read: {0}")]
    Document(#[from] serde_json::Error),
    #[error(transparent)]
    Catalog(#[from] DocumentError),
}

/// Encodes a catalog as bytes of version 1, as earlier programs did.
#[cfg(test)]
pub fn encode(catalog: &Catalog) -> Result<Vec<u8>, StoreError> {
    Ok(frame(CATALOG_VERSION, &serde_json::to_vec(&CatalogDocument::of(catalog))?))
}

/// Decodes a catalog of version 1, with the system keyspaces of this program.
#[cfg(test)]
pub fn decode(bytes: &[u8]) -> Result<Catalog, StoreError> {
    match checked_document(bytes)? {
        (CATALOG_VERSION, document) => decode_document(document),
        (found, _) => Err(StoreError::Version { found }),
    }
}

/// Decodes the catalog of a document of version 1.
pub fn decode_document(document: &[u8]) -> Result<Catalog, StoreError> {
    let document: CatalogDocument = serde_json::from_slice(document)?;
    Ok(document.catalog()?)
}

/// Encodes a document with its header.
pub fn frame(version: u16, document: &[u8]) -> Vec<u8> {
    debug_assert!(u32::try_from(document.len()).is_ok(), "a schema of 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + document.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&(document.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(document).to_be_bytes());
    bytes.extend_from_slice(document);
    bytes
}

/// Decodes the version and the document from bytes written by [`frame`], and checks them.
pub fn checked_document(bytes: &[u8]) -> Result<(u16, &[u8]), StoreError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(StoreError::NotACatalog)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(StoreError::NotACatalog)?;
    let version = u16::from_be_bytes(*version);
    if !(CATALOG_VERSION..=CHANGES_VERSION).contains(&version) {
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
    Ok((version, document))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::schema::ddl::tests::Session;
    use crate::schema::system_tables;

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
    fn a_stored_catalog_is_read_back_unchanged() {
        let catalog = catalog();
        let read = decode(&encode(&catalog).unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{catalog:?}"));
    }

    #[test]
    fn damage_is_detected() {
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
        newer[MAGIC.len() + 1] = 4;
        assert!(matches!(decode(&newer), Err(StoreError::Version { found: 4 })));
    }

    #[test]
    fn the_header_is_as_described() {
        let bytes = encode(&system_tables::initial_catalog(Uuid::nil())).unwrap();
        assert_eq!(&bytes[..16], b"HELENUSCATALOG\x00\x01");
        let length = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
        assert_eq!(length as usize, bytes.len() - HEADER_BYTES);
        assert!(bytes[HEADER_BYTES..].starts_with(b"{\"version\":\"00000000-"));
    }
}
