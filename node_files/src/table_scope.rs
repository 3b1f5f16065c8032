//! Which files of a node are encrypted where tables choose: all but those of tables of users without the option `encryption`.
//!
//! Invariants:
//! * What is not known to be plain is encrypted when it is made: the node's own files and tables, logs, tables that are not in the catalog yet or
//!   any more, and everything before the catalog is known.
//! * A file belongs to the table whose id its directory is named after (`tables/<id>`, `snapshots/<name>/<id>`, `backups/<id>`).
//! * Plain files of tables that are not in the catalog are never refused: they are left of a table that was dropped, in its snapshots, or
//!   because a crash came before they were removed.
//! * Where plain files are refused, a table that is altered to be encrypted keeps its plain files readable until the node stops: they have to be
//!   read to be written anew. The next start refuses those that are left.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use helenus_at_rest::Scope;
use helenus_engine::TableId;
use helenus_query::schema::catalog::{Catalog, TableKind};
use helenus_query::schema::system_keyspaces;

/// The directory of the tables of a shard.
const TABLES: &str = "tables";
/// The directory with files that were damaged or unknown.
const QUARANTINE: &str = "quarantine";
/// What the ids of the node's own tables begin with, which no catalog has.
const OWN: &[u8] = b"helenus-";

/// The tables of a node by what becomes of their files.
#[derive(Debug, Default)]
pub(super) struct TableScope {
    /// `None`: the catalog is not known yet.
    known: RwLock<Option<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// New files are not encrypted.
    plain: HashSet<TableId>,
    /// The others of the catalog.
    encrypted: HashSet<TableId>,
    /// Those that are plain, or were since the node has started.
    were_plain: HashSet<TableId>,
}

impl TableScope {
    /// From now on files are made as this catalog has it.
    pub(super) fn note(&self, catalog: &Catalog) {
        self.set(Known::of(catalog));
    }

    /// Prepares for a catalog that is about to be stored: what it encrypts is encrypted from now on, and what it does not encrypt any more still is.
    pub(super) fn prepare(&self, catalog: &Catalog) {
        let mut next = Known::of(catalog);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref() {
            let stays = known.encrypted.intersection(&next.plain).copied().collect::<Vec<_>>();
            next.plain.retain(|table| !known.encrypted.contains(table));
            next.encrypted.extend(stays);
        }
        drop(known);
        self.set(next);
    }

    fn set(&self, next: Known) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.were_plain.extend(&next.plain);
        known.plain = next.plain;
        known.encrypted = next.encrypted;
    }

    /// What `of_known` says of the table of a file. `None`: the file is of no table, or the catalog is not known.
    fn of_table<T>(&self, path: &Path, of_known: impl Fn(&Known, &TableId) -> T) -> Option<T> {
        let table = table_of(path)?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|known| of_known(known, &table))
    }

    /// Whether a plain file at this path should be encrypted, whether it is refused or not. Before the catalog is known this is said of no
    /// file of a table.
    pub(super) fn wants_encrypted(&self, path: &Path) -> bool {
        match self.of_table(path, Known::wants_encrypted) {
            Some(is_wanted) => is_wanted,
            None => table_of(path).is_none(),
        }
    }
}

impl Known {
    /// The tables of a catalog.
    fn of(catalog: &Catalog) -> Self {
        let (mut plain, mut encrypted) = (HashSet::new(), HashSet::new());
        for keyspace in catalog.keyspaces.values() {
            let is_of_users = !system_keyspaces::is_system(&keyspace.name);
            for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
                let id = table.engine_id();
                let is_plain = is_of_users && !table.options.is_encrypted && !id.0.starts_with(OWN);
                let ids = if is_plain { &mut plain } else { &mut encrypted };
                ids.insert(id);
            }
        }
        Self { plain, encrypted, were_plain: HashSet::new() }
    }

    /// Whether no file of the table should be plain.
    fn wants_encrypted(&self, table: &TableId) -> bool {
        self.encrypted.contains(table) || table.0.starts_with(OWN)
    }

    fn accepts_plain(&self, table: &TableId) -> bool {
        self.were_plain.contains(table) || !self.wants_encrypted(table)
    }
}

impl Scope for TableScope {
    fn encrypts(&self, path: &Path) -> bool {
        let is_plain = self.of_table(path, |known, table| known.plain.contains(table));
        !(is_in_tables(path) && is_plain == Some(true))
    }

    fn accepts_plain(&self, path: &Path) -> bool {
        self.of_table(path, Known::accepts_plain) == Some(true)
    }

    fn refuses_links(&self, path: &Path) -> bool {
        is_in_tables(path) && self.encrypts(path)
    }
}

/// The table in whose directory a file is.
fn table_of(path: &Path) -> Option<TableId> {
    // What is being made has a suffix.
    TableId::parse(path.parent()?.file_name()?.to_str()?.split('.').next()?)
}

/// Whether a file is one of a table, not of a snapshot or of backups.
fn is_in_tables(path: &Path) -> bool {
    let name_above = |levels| path.ancestors().nth(levels).and_then(Path::file_name);
    // What is in the quarantine was moved or linked there as it was: `quarantine/<time>/shard-0/tables/<id>/file`.
    name_above(2) == Some(OsStr::new(TABLES)) && name_above(5) != Some(OsStr::new(QUARANTINE))
}

#[cfg(test)]
mod tests;
