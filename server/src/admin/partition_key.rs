//! A partition key that an operator has typed.

use cql_lite::types::CqlType;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::AdminError;
use helenus_query::bind::OwnedBindings;
use helenus_query::plan::term::Bindings;
use helenus_query::run::keys::partition_keys;
use helenus_query::schema::catalog::{Column, Table};
use helenus_query::statement::Statement;
use helenus_query::stored_key::PartitionKey;

/// The key of a partition, as tables have it. `key`: the values of the partition key's columns as texts, with `:` between them; a key of
/// one column is the whole text.
pub fn parse(context: &ShardContext, table: &Table, key: &str) -> Result<PartitionKey, AdminError> {
    let columns = &table.columns[..table.partition_key_count];
    let values: Vec<&str> = if columns.len() == 1 { vec![key] } else { key.split(':').collect() };
    if values.len() != columns.len() {
        return Err(AdminError::Unknown(format!(
            "the partition key of {} has {} columns, and the key has {} parts; write them with ':' between them",
            table.full_name(),
            columns.len(),
            values.len()
        )));
    }
    let conditions = columns.iter().zip(values).map(|(column, value)| condition(column, value));
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?.join(" AND ");
    let text = format!("DELETE FROM {}.{} WHERE {conditions}", quoted(&table.keyspace), quoted(&table.name));
    let refused = |error: helenus_query::error::RequestError| AdminError::Unknown(error.to_string());
    let statement = Statement::new(&text, None, &context.catalog_view()).map_err(refused)?;
    let Statement::Modify(statement) = statement else { unreachable!("{text} is a DELETE") };
    let (owned, call) = (OwnedBindings::new(&[]), context.call_context());
    let bindings = Bindings { values: &owned.borrow(), call: &call };
    let plan = &statement.plan;
    let keys = partition_keys(&plan.partition, &plan.table, &bindings).map_err(refused)?;
    keys.into_iter().next().ok_or_else(|| AdminError::Unknown(format!("'{key}' is no key of a partition")))
}

/// `column = value`, as CQL.
fn condition(column: &Column, value: &str) -> Result<String, AdminError> {
    let is_text = matches!(
        column.column_type,
        CqlType::Ascii | CqlType::Text | CqlType::Inet | CqlType::Timestamp | CqlType::Date | CqlType::Time
    );
    // Anything else could be more than a value; two dashes begin a comment.
    let is_of_value = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
    let is_plain = !value.is_empty() && value.bytes().all(is_of_value) && !value.contains("--");
    let literal = if is_text {
        format!("'{}'", value.replace('\'', "''"))
    } else if is_plain {
        value.to_owned()
    } else {
        return Err(AdminError::Unknown(format!("'{value}' is no value of the column {}", column.name)));
    };
    Ok(format!("{} = {literal}", quoted(&column.name)))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
