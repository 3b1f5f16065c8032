//! The logs of change feeds follow their base tables: a statement that makes, alters or drops a table does so with its log.
//!
//! A log belongs to the table of its name without the suffix. It stays when the feed is turned off, until either table is dropped, and the
//! feed goes on with it when it is turned on again. Texts of refusals are ScyllaDB's.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::types::CqlType;
use helenus_feed_tables::{Place, columns};
use md5::{Digest, Md5};

use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{
    Catalog, Column, ColumnKind, DroppedColumn, Keyspace, Table, TableDifferences,
};
use helenus_query::schema::ddl::{
    Change, DdlContext, TableAction, check_bounds, check_table_name, without_user_types,
};
use helenus_query::schema::options::caching::RowsPerPartition;
use helenus_query::schema::options::{Caching, Compaction, FeedHistory, TableOptions};

/// A log of a feed with a time to live has about this many files.
const FILES: u32 = 24;

/// The change, with what it means for logs.
pub fn followed(before: &Catalog, mut change: Change, context: &DdlContext) -> Result<Change> {
    let mut catalog = Catalog::clone(&change.catalog);
    let mut actions = Vec::new();
    for (name, keyspace) in &change.catalog.keyspaces {
        let known = before.keyspaces.get(name).map(AsRef::as_ref);
        if known.is_some_and(|known| std::ptr::eq(known, keyspace.as_ref())) {
            continue;
        }
        let differences: TableDifferences<'_, '_> = Keyspace::table_differences(known, Some(keyspace));
        let mut followed = Keyspace::clone(keyspace);
        let known_actions = actions.len();
        for (old, new) in differences {
            actions.extend(of_table(&mut followed, old.map(AsRef::as_ref), new.map(AsRef::as_ref), context)?);
        }
        if actions.len() > known_actions {
            catalog.keyspaces.insert(name.clone(), Arc::new(followed));
        }
    }
    if !actions.is_empty() {
        change.catalog = Arc::new(catalog);
        check_bounds(before, &change.catalog)?;
        change.table_actions.append(&mut actions);
    }
    Ok(change)
}

/// Makes the log follow a change of a table, in the keyspace after the change.
fn of_table(
    keyspace: &mut Keyspace,
    old: Option<&Table>,
    new: Option<&Table>,
    context: &DdlContext,
) -> Result<Option<TableAction>> {
    match (old, new) {
        // What views need is made and altered with them.
        (Some(table), _) if table.is_hidden() => Ok(None),
        (Some(log), new) if log.options.is_feed_log => check_log(keyspace, log, new).map(|()| None),
        (_, Some(base)) if base.options.feed().is_some() => log_kept(keyspace, old, base, context),
        (Some(base), None) => {
            let Some(log) = keyspace.feed_log(&base.name).cloned() else { return Ok(None) };
            keyspace.tables.remove(&log.name);
            Ok(Some(TableAction::Drop(log.id)))
        }
        (Some(old), Some(base)) => Ok(left_log_kept(keyspace, old, base)),
        (None, _) => Ok(None),
    }
}

/// The log that a feed has left follows its base table in what protects and names its entries.
fn left_log_kept(keyspace: &mut Keyspace, old: &Table, base: &Table) -> Option<TableAction> {
    let present = keyspace.feed_log(&base.name)?.clone();
    let mut log = Table::clone(&present);
    log.options.is_encrypted |= base.options.is_encrypted;
    rename_keys(&mut log.columns, old, base);
    if log == *present {
        return None;
    }
    let log = Arc::new(log);
    keyspace.tables.insert(log.name.clone(), Arc::clone(&log));
    Some(TableAction::Alter(log))
}

/// Renames columns of a log as those of the base table were. Only columns of the key are renamed, and those have no others beside them.
fn rename_keys(columns: &mut [Column], old: &Table, base: &Table) {
    for column in columns {
        let before = old.columns.iter().find(|before| before.name == column.name);
        let after = before.and_then(|before| base.columns.iter().find(|after| after.id == before.id));
        if let (Some(before), Some(after)) = (before, after)
            && before.is_primary_key()
        {
            column.name.clone_from(&after.name);
        }
    }
}

/// Refuses what cannot be done with a log itself.
fn check_log(keyspace: &Keyspace, log: &Table, new: Option<&Table>) -> Result<()> {
    let base = keyspace.feed_base(log);
    let Some(new) = new else {
        return match base {
            Some(base) if base.options.feed().is_some() => {
                invalid(format!("Cannot DROP cdc log table {}", log.name))
            }
            _ => Ok(()),
        };
    };
    let names = |table: &Table| -> Vec<(u32, String)> {
        table.columns.iter().map(|column| (column.id, column.name.clone())).collect()
    };
    if names(log) != names(new) {
        return invalid(
            "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead.",
        );
    }
    if new.indexes != log.indexes {
        return invalid("Secondary indexes cannot be created on CDC Log tables");
    }
    if base.is_some_and(|base| base.options.is_encrypted) && !new.options.is_encrypted {
        return invalid("The CDC log of an encrypted table is encrypted");
    }
    if new.constraints != log.constraints || new.masks != log.masks {
        return invalid("Columns of a CDC log table have neither constraints nor masks");
    }
    Ok(())
}

/// The keyspace gets the log of a table with a feed, or the log its columns.
fn log_kept(
    keyspace: &mut Keyspace,
    old: Option<&Table>,
    base: &Table,
    context: &DdlContext,
) -> Result<Option<TableAction>> {
    if base.is_counter {
        let name = base.full_name();
        return invalid(format!("Cannot create CDC log for table {name}. Counter support not implemented"));
    }
    let present = keyspace.tables.get(&columns::log_name(&base.name)).cloned();
    let log = match &present {
        Some(log) if log.options.is_feed_log => with_columns_of(log, old, base, context)?,
        Some(other) => {
            let (base, other) = (base.full_name(), other.full_name());
            return invalid(format!(
                "Cannot create CDC log table for table {base} because a table of name {other} already exists"
            ));
        }
        None => {
            let ttl_seconds = base.options.feed().map_or(0, |feed| feed.ttl_seconds);
            let mut log = log_table(columns::log_name(&base.name), base, ttl_seconds, context)?;
            log.options.comment = format!("CDC log for {}", base.full_name());
            check_table_name(&log)?;
            with_columns_of(&log, None, base, context)?
        }
    };
    if present.as_deref() == Some(&log) {
        return Ok(None);
    }
    let log = Arc::new(log);
    keyspace.tables.insert(log.name.clone(), Arc::clone(&log));
    Ok(Some(if present.is_some() { TableAction::Alter(log) } else { TableAction::Create(log) }))
}

/// A log without columns, whose entries are kept for this time; 0: for ever.
pub fn log_table(name: String, base: &Table, ttl_seconds: u32, context: &DdlContext) -> Result<Table> {
    let mut digest = Md5::new();
    digest.update(context.new_id.as_bytes());
    digest.update(format!("{}.{name}", base.keyspace));
    let id = uuid::Builder::from_md5_bytes(digest.finalize().into()).into_uuid();
    Ok(Table::without_columns(&base.keyspace, name, id, log_options(base, ttl_seconds)?))
}

/// The options of a new log: its files expire as a whole.
fn log_options(base: &Table, ttl_seconds: u32) -> Result<TableOptions> {
    let mut options = TableOptions {
        is_feed_log: true,
        is_encrypted: base.options.is_encrypted,
        caching: Caching { keys: false, rows_per_partition: RowsPerPartition::None },
        ..TableOptions::default()
    };
    let mut compaction = BTreeMap::from([("class".to_owned(), "TimeWindowCompactionStrategy".to_owned())]);
    if ttl_seconds > 0 {
        let window_seconds = ttl_seconds.div_ceil(FILES);
        options.gc_grace_seconds = 0;
        compaction.extend([
            ("compaction_window_unit".to_owned(), "MINUTES".to_owned()),
            ("compaction_window_size".to_owned(), window_seconds.div_ceil(60).to_string()),
            ("expired_sstable_check_frequency_seconds".to_owned(), (window_seconds / 2).max(1).to_string()),
        ]);
    }
    options.compaction = Compaction::from_map(&compaction)?;
    Ok(options)
}

/// The log with the columns that its base table asks for. `old`: the base table before the change. Columns keep their ids, also under another
/// name.
pub fn with_columns_of(
    log: &Table,
    old: Option<&Table>,
    base: &Table,
    context: &DdlContext,
) -> Result<Table> {
    fn typed(column: &Column) -> (&str, &CqlType) {
        (&column.name, &column.column_type)
    }
    let keys = base.partition_key().iter().chain(base.clustering_key()).map(typed);
    let wanted = columns::log_columns(keys, base.value_columns().iter().map(typed));
    if let Some(name) = columns::name_taken_twice(&wanted) {
        let name = name.to_owned();
        return invalid(format!(
            "Cannot create CDC log for table {}: two columns of the log would have the name {name}",
            base.full_name()
        ));
    }
    let mut log = log.clone();
    log.options.is_encrypted |= base.options.is_encrypted;
    // What is written for views has no consumers that could miss anything unseen.
    if !log.is_hidden() {
        let was_on = old.is_some_and(|old| old.options.feed().is_some());
        let ttl_seconds = base.options.feed().map_or(0, |feed| feed.ttl_seconds);
        log.options.feed_history = Some(match log.options.feed_history {
            None => FeedHistory::begin(context.now_micros, ttl_seconds),
            Some(history) => history.changed(was_on, ttl_seconds, context.now_micros),
        });
    }
    let mut present = std::mem::take(&mut log.columns);
    if let Some(old) = old {
        rename_keys(&mut present, old, base);
    }
    for column in wanted {
        let kind = match column.place {
            Place::PartitionKey => ColumnKind::PartitionKey { position: 0 },
            Place::Clustering { position } => ColumnKind::Clustering { position, descending: false },
            Place::Regular => ColumnKind::Regular,
        };
        let (name, column_type) = (column.name, column.column_type);
        let is_kept = |known: &Column| known.name == name && known.column_type == column_type;
        let id = match present.iter().position(is_kept) {
            Some(at) => present.remove(at).id,
            None => id_of_new(&mut log, &name, &column_type),
        };
        log.columns.push(Column { id, name, column_type, kind });
    }
    for gone in present {
        log.dropped_columns.retain(|dropped| dropped.id != gone.id);
        log.dropped_columns.push(DroppedColumn {
            id: gone.id,
            name: gone.name,
            column_type: without_user_types(&gone.column_type),
            is_static: false,
            dropped_at_micros: context.now_micros,
        });
    }
    log.arrange_columns();
    Ok(log)
}

/// A column that is added again keeps its id, so that what was dropped stays hidden, unless its type is another one.
fn id_of_new(log: &mut Table, name: &str, column_type: &CqlType) -> u32 {
    let dropped = log.latest_drop(name);
    if let Some(dropped) = dropped.filter(|dropped| dropped.column_type == without_user_types(column_type)) {
        return dropped.id;
    }
    let id = log.next_column_id;
    log.next_column_id += 1;
    id
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Invalid(message.into()))
}

#[cfg(test)]
mod tests;
