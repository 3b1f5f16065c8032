//! The tables beside a view that clients do not see: how they look. [`helenus_query::schema::view`] says what they hold.

use cql_lite::types::CqlType;
use helenus_feed_logs::{log_table, with_columns_of};
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Column, ColumnKind, Table};
use helenus_query::schema::ddl::{DdlContext, MAX_TABLE_NAME_LENGTH};
use helenus_query::schema::options::caching::RowsPerPartition;
use helenus_query::schema::options::{Caching, TableOptions};
use helenus_query::schema::view::{CHANGES_TTL_SECONDS, log_name, lookups_name, rows_name};
use md5::{Digest, Md5};
use uuid::Builder;

use crate::refusal::invalid;
use crate::resolving::Resolved;

/// The log of the changes of a base or joined table, with its columns of now. `present`: as it is; `old`: the table before the change.
pub fn log(
    present: Option<&Table>,
    old: Option<&Table>,
    base: &Table,
    context: &DdlContext,
) -> Result<Table> {
    if let Some(present) = present {
        return with_columns_of(present, old, base, context);
    }
    let mut log = log_table(log_name(&base.name), base, CHANGES_TTL_SECONDS, context)?;
    log.options.comment = format!("changes of {} for its views", base.full_name());
    log.options.allow_auto_snapshot = false;
    check_length(&log)?;
    with_columns_of(&log, None, base, context)
}

/// The table of the origins of a view's rows.
pub fn rows(view: &Table, base: &Table, resolved: &Resolved, context: &DdlContext) -> Result<Table> {
    let units = unit_types(base, resolved);
    let is_of_unit = |column: &Column| {
        resolved.columns.iter().any(|of| {
            of.name == column.name
                && matches!(of.source, crate::definition::Source::Base(index) if index < resolved.unit_columns)
        })
    };
    let key = view.partition_key().iter().chain(view.clustering_key());
    let others = key.filter(|column| !is_of_unit(column));
    let others = numbered('v', others.map(|column| &column.column_type));
    let mut columns = numbered('u', units);
    let clustering = columns.split_off(base.partition_key_count);
    table(view, rows_name(&view.name), columns, [clustering, others].concat(), context)
}

/// The table of what a view has looked up in a joined table.
pub fn lookups(
    view: &Table,
    base: &Table,
    joined: &Table,
    resolved: &Resolved,
    context: &DdlContext,
) -> Result<Table> {
    let key = joined.partition_key().iter().chain(joined.clustering_key());
    let key = numbered('j', key.map(|column| &column.column_type));
    let units = numbered('u', unit_types(base, resolved));
    table(view, lookups_name(&view.name), key, units, context)
}

/// Refuses a table with a name that is too long for the tables beside it.
fn check_length(table: &Table) -> Result<()> {
    if table.name.len() > MAX_TABLE_NAME_LENGTH {
        return invalid(format!(
            "{}: Table name must not be more than {MAX_TABLE_NAME_LENGTH} characters long, also of the tables that are kept beside \
             views (got {} characters for \"{}\")",
            table.full_name(),
            table.name.len(),
            table.name
        ));
    }
    Ok(())
}

fn unit_types<'a>(base: &'a Table, resolved: &Resolved) -> impl Iterator<Item = &'a CqlType> {
    base.columns[..resolved.unit_columns].iter().map(|column| &column.column_type)
}

/// Names like `u0`, which cannot clash with each other whatever the tables' columns are called.
fn numbered<'t>(letter: char, types: impl Iterator<Item = &'t CqlType>) -> Vec<(String, CqlType)> {
    types.enumerate().map(|(number, of)| (format!("{letter}{number}"), of.clone())).collect()
}

fn table(
    view: &Table,
    name: String,
    partition: Vec<(String, CqlType)>,
    clustering: Vec<(String, CqlType)>,
    context: &DdlContext,
) -> Result<Table> {
    let mut digest = Md5::new();
    digest.update(context.new_id.as_bytes());
    digest.update(format!("{}.{name}", view.keyspace));
    let partition = (0..).zip(partition).map(|(position, of)| (of, ColumnKind::PartitionKey { position }));
    let clustering = (0..)
        .zip(clustering)
        .map(|(position, of)| (of, ColumnKind::Clustering { position, descending: false }));
    let columns = (0..).zip(partition.chain(clustering));
    let columns = columns.map(|(id, ((name, column_type), kind))| Column { id, name, column_type, kind });
    let id = Builder::from_md5_bytes(digest.finalize().into()).into_uuid();
    let options = TableOptions {
        is_encrypted: view.options.is_encrypted,
        allow_auto_snapshot: false,
        comment: format!("kept beside the view {}", view.full_name()),
        caching: Caching { keys: true, rows_per_partition: RowsPerPartition::None },
        ..TableOptions::default()
    };
    let mut table =
        Table { columns: columns.collect(), ..Table::without_columns(&view.keyspace, name, id, options) };
    table.next_column_id = table.columns.len() as u32;
    table.arrange_columns();
    check_length(&table)?;
    Ok(table)
}
