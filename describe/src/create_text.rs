//! The CREATE statements of the elements of the catalog, in the format of Cassandra 5.0's DESCRIBE.
//!
//! Executed in the order keyspace, types, functions, aggregates, tables, indexes, they create an equal schema. Names are quoted if necessary. A
//! virtual keyspace cannot be created: it and its tables are shown in a comment.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::{Identifier, SelectClause};
use cql_lite::types::{CqlType, UserType, literal};

use helenus_query::functions::user::{UserAggregate, UserFunction};
use helenus_query::schema::catalog::{Column, DroppedColumn, Keyspace, Replication, Table};
use helenus_query::schema::index::{CLASS_NAME, Index};
use helenus_query::schema::options::TableOptions;
use helenus_query::schema::options::encryption::enabled_map;
use helenus_query::schema::view::View;

const STRATEGY_PACKAGE: &str = "org.apache.cassandra.locator.";
const VIRTUAL_HEAD_END: &str = "cannot be recreated with CQL.\nStructure, for reference:\n";

/// A name, quoted if necessary.
pub fn quoted(name: &str) -> String {
    Identifier::quoted(name).to_string()
}

/// `CREATE KEYSPACE …`
pub fn keyspace(keyspace: &Keyspace) -> String {
    let name = quoted(&keyspace.name);
    if keyspace.is_virtual {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and {VIRTUAL_HEAD_END}VIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let replication = replication(&keyspace.replication);
    let durable_writes = keyspace.durable_writes;
    format!("CREATE KEYSPACE {name} WITH replication = {replication}  AND durable_writes = {durable_writes};")
}

/// The class comes first, by its short name.
fn replication(replication: &Replication) -> String {
    let mut options = replication.to_map();
    let class = options.remove("class");
    debug_assert!(class.is_some(), "every replication has a class");
    let class = class.unwrap_or_default();
    let class = class.strip_prefix(STRATEGY_PACKAGE).unwrap_or(&class);
    let options = options.iter().map(|(name, value)| format!(", {}: {}", string(name), string(value)));
    format!("{{'class': {}{}}}", string(class), options.collect::<String>())
}

/// `CREATE TYPE …`
pub fn user_type(user_type: &UserType) -> String {
    let fields: Vec<String> = user_type
        .field_names
        .iter()
        .zip(&user_type.field_types)
        .map(|(name, field_type)| format!("    {} {field_type}", quoted(name)))
        .collect();
    format!(
        "CREATE TYPE {}.{} (\n{}\n);",
        quoted(&user_type.keyspace),
        quoted(&user_type.name),
        fields.join(",\n")
    )
}

/// `CREATE TABLE …`, in a comment if the table is virtual, WITH COMPACT STORAGE or the log of a change feed. `with_internals`: with its id, and with statements that
/// restore its dropped columns.
pub fn table(keyspace: &Keyspace, table: &Table, with_internals: bool) -> String {
    let text = table_statements(keyspace, table, with_internals);
    let name = table_name(table);
    if table.options.is_feed_log {
        return format!(
            "/*\nWarning: Table {name} is the log of a change feed, and is created with its base table by the option cdc of that.\n\
             Structure, for reference:\n\n{text}\n*/"
        );
    }
    if table.compact.is_none() {
        return text;
    }
    format!(
        "/*\nWarning: Table {name} omitted because it has constructs not compatible with CQL (was created via legacy API).\n\
         Approximate structure, for reference:\n(this should not be used to reproduce this schema)\n\n{text}\n*/"
    )
}

/// `CREATE MATERIALIZED VIEW …` or `CREATE PROJECTION …`
fn view(keyspace: &Keyspace, table: &Table, view: &View, with_internals: bool) -> String {
    let create = &view.statement;
    let base = keyspace.tables.get(create.from.name.as_str());
    // All columns cannot be selected of a table that has got static ones.
    let clause = if create.clause == SelectClause::All && base.is_some_and(|base| base.has_static_columns()) {
        table.columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ")
    } else {
        create.clause.to_string()
    };
    let alias = create.alias.as_ref().map_or_else(String::new, |alias| format!(" AS {alias}"));
    let mut text = format!(
        "CREATE {} {} AS\n    SELECT {clause}\n    FROM {}{alias}",
        create.kind,
        table_name(table),
        create.from
    );
    if let Some(join) = &create.join {
        text.extend(["\n    ", &join.to_string()]);
    }
    if !create.relations.is_empty() {
        text.extend(["\n    WHERE ", &view.where_clause()]);
    }
    if !create.group_by.is_empty() {
        let group_by: Vec<String> = create.group_by.iter().map(ToString::to_string).collect();
        text.extend(["\n    GROUP BY ", &group_by.join(", ")]);
    }
    let mut options = option_lines(table, false, with_internals);
    // They cannot be given to a view.
    options.retain(|line| !line.starts_with("default_time_to_live ") && !line.starts_with("cdc "));
    format!("{text}\n    {}\n WITH {};", primary_key(table), options.join("\n    AND "))
}

/// The statements that create a table.
pub fn table_statements(keyspace: &Keyspace, table: &Table, with_internals: bool) -> String {
    if let Some(of_view) = &table.view {
        return view(keyspace, table, of_view, with_internals);
    }
    let name = table_name(table);
    let is_virtual = keyspace.is_virtual;
    let mut text = if is_virtual {
        format!("/*\nWarning: Table {name} is a virtual table and {VIRTUAL_HEAD_END}VIRTUAL TABLE {name} (\n")
    } else {
        format!("CREATE TABLE {name} (\n")
    };
    text += &column_lines(table, with_internals);
    text += "\n) WITH ";
    text += &option_lines(table, is_virtual, with_internals).join("\n    AND ");
    text += ";";
    if is_virtual {
        text += "\n*/";
    }
    if with_internals {
        text += &drop_statements(table);
    }
    text
}

/// `CREATE [CUSTOM] INDEX …`
pub fn index(table: &Table, index: &Index) -> String {
    let (name, table_name, target) = (quoted(&index.name), table_name(table), table.index_target(index));
    let mut options = index.options.clone();
    match options.remove(CLASS_NAME) {
        None => format!("CREATE INDEX {name} ON {table_name} ({target});"),
        Some(class) => {
            let with =
                if options.is_empty() { String::new() } else { format!(" WITH OPTIONS = {}", map(&options)) };
            let class = string(&class);
            format!("CREATE CUSTOM INDEX {name} ON {table_name} ({target}) USING {class}{with};")
        }
    }
}

/// `CREATE FUNCTION …`
pub fn function(function: &UserFunction) -> String {
    let arguments = function.argument_names.iter().zip(&function.argument_types);
    let arguments: Vec<String> =
        arguments.map(|(name, of)| format!("{} {}", quoted(name), signature_type(of))).collect();
    let null = if function.called_on_null_input { "CALLED" } else { "RETURNS NULL" };
    let body = if function.body.contains("$$") || function.body.ends_with('$') {
        string(&function.body)
    } else {
        format!("$${}$$", function.body)
    };
    format!(
        "CREATE FUNCTION {}.{}({})\n    {null} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS {body};",
        quoted(&function.keyspace),
        quoted(&function.name),
        arguments.join(", "),
        signature_type(&function.return_type),
        function.language
    )
}

/// `CREATE AGGREGATE …`
pub fn aggregate(aggregate: &UserAggregate) -> String {
    let mut text = format!(
        "CREATE AGGREGATE {}.{}\n    SFUNC {}\n    STYPE {}",
        quoted(&aggregate.keyspace),
        signature(&aggregate.name, &aggregate.argument_types),
        quoted(&aggregate.state_function),
        signature_type(&aggregate.state_type)
    );
    if let Some(function) = &aggregate.final_function {
        text.extend(["\n    FINALFUNC ", &quoted(function)]);
    }
    if let Some(condition) = &aggregate.initial_condition {
        text.extend(["\n    INITCOND ", &literal::format(&aggregate.state_type, condition)]);
    }
    text + ";"
}

/// A function's name with the types of its arguments.
pub fn signature(name: &str, arguments: &[CqlType]) -> String {
    let arguments: Vec<String> = arguments.iter().map(signature_type).collect();
    format!("{}({})", quoted(name), arguments.join(", "))
}

/// A type of a signature: a tuple stands there without `frozen`.
fn signature_type(of: &CqlType) -> String {
    let text = of.to_string();
    let inner = text.strip_prefix("frozen<").and_then(|rest| rest.strip_suffix('>'));
    match (of, inner) {
        (CqlType::Tuple(_), Some(inner)) => inner.to_owned(),
        _ => text,
    }
}

fn table_name(table: &Table) -> String {
    format!("{}.{}", quoted(&table.keyspace), quoted(&table.name))
}

/// The lines in the parentheses of CREATE TABLE.
fn column_lines(table: &Table, with_dropped: bool) -> String {
    let is_dropped =
        |name: &str| with_dropped && table.dropped_columns.iter().any(|column| column.name == name);
    let (key, values) = table.columns.split_at(table.partition_key_count + table.clustering_key_count);
    let has_inline_key = key.len() == 1 && table.compact.is_none();

    let mut ordered: Vec<&Column> = values.iter().collect();
    // Columns with many cells come last, among the static ones and among the others.
    ordered.sort_by_key(|column| (!column.is_static(), column.column_type.is_multi_cell()));

    let mut lines: Vec<String> = Vec::with_capacity(table.columns.len() + 1);
    for column in key.iter().chain(ordered) {
        // A column that was added again is created as it was first, then dropped and added again.
        if is_dropped(&column.name) {
            continue;
        }
        let key_suffix = if has_inline_key && column.is_partition_key() { " PRIMARY KEY" } else { "" };
        lines.push(format!("    {}{key_suffix}", column_definition(table, column)));
    }
    if with_dropped {
        let definitions = table.dropped_columns.iter().map(|column| dropped_definition(table, column));
        lines.extend(definitions.map(|definition| format!("    {definition}")));
    }
    if !has_inline_key {
        lines.push(format!("    {}", primary_key(table)));
    }
    lines.join(",\n")
}

fn column_definition(table: &Table, column: &Column) -> String {
    let is_static = column.is_static() && table.compact.is_none();
    let mut text = definition(&column.name, &column.column_type.to_string(), is_static);
    if let Some(mask) = table.masks.get(&column.id) {
        text += " ";
        text += &mask.to_cql();
    }
    if let Some(constraints) = table.constraints.get(&column.id) {
        text += " CHECK ";
        text += &constraints.to_cql(&column.name);
    }
    text
}

fn dropped_definition(table: &Table, column: &DroppedColumn) -> String {
    definition(&column.name, &column.column_type.to_string(), column.is_static && table.compact.is_none())
}

fn definition(name: &str, column_type: &str, is_static: bool) -> String {
    format!("{} {column_type}{}", quoted(name), if is_static { " static" } else { "" })
}

fn primary_key(table: &Table) -> String {
    let names =
        |columns: &[Column]| -> Vec<String> { columns.iter().map(|column| quoted(&column.name)).collect() };
    let partition = names(table.partition_key()).join(", ");
    let mut parts = vec![if table.partition_key_count > 1 { format!("({partition})") } else { partition }];
    parts.extend(names(table.clustering_key()));
    format!("PRIMARY KEY ({})", parts.join(", "))
}

/// The options after WITH, to be joined by AND.
fn option_lines(table: &Table, is_virtual: bool, with_internals: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if table.compact.is_some() {
        lines.push("COMPACT STORAGE".to_owned());
    }
    if with_internals {
        lines.push(format!("ID = {}", table.id));
    }
    if table.clustering_key_count > 0 {
        let order: Vec<String> = table
            .clustering_key()
            .iter()
            .map(|column| {
                format!("{} {}", quoted(&column.name), if column.is_descending() { "DESC" } else { "ASC" })
            })
            .collect();
        lines.push(format!("CLUSTERING ORDER BY ({})", order.join(", ")));
    }
    if is_virtual {
        lines.push(format!("comment = {}", string(&table.options.comment)));
    } else {
        lines.extend(stored_option_lines(&table.options));
    }
    lines
}

fn stored_option_lines(options: &TableOptions) -> Vec<String> {
    let extensions: BTreeMap<String, String> =
        options.extensions.iter().map(|(name, bytes)| (name.clone(), literal::format_hex(bytes))).collect();
    // These have no default: they are shown where they are set.
    let per_partition = options.per_partition_rate_limit;
    let per_partition = per_partition.map(|option| ("per_partition_rate_limit", map(&option.to_map())));
    let rate_limit = options.rate_limit.map(|option| ("rate_limit", map(&option.to_map())));
    let cap = options.cap.as_ref().map(|cap| ("cap", cap.rows.to_string()));
    let max_charge = options.max_charge.map(|charge| ("max_charge", charge.to_string()));
    let encryption = options.is_encrypted.then(|| ("encryption", map(&enabled_map())));
    let tombstone_gc = options.set_tombstone_gc.map(|option| ("tombstone_gc", map(&option.to_map())));
    [
        ("additional_write_policy", string(&options.additional_write_policy.to_string())),
        ("allow_auto_snapshot", options.allow_auto_snapshot.to_string()),
        ("bloom_filter_fp_chance", double(options.bloom_filter_fp_chance)),
        ("caching", map(&options.caching.to_map())),
        ("cdc", options.cdc.map_or_else(|| "false".to_owned(), |feed| map(&feed.to_map()))),
        ("comment", string(&options.comment)),
        ("compaction", map(&options.compaction.to_map())),
        ("compression", map(&options.compression.to_map())),
        ("memtable", string(&options.memtable)),
        ("crc_check_chance", double(options.crc_check_chance)),
        ("default_time_to_live", options.default_time_to_live.to_string()),
        ("extensions", map_with(&extensions, str::to_owned)),
        ("gc_grace_seconds", options.gc_grace_seconds.to_string()),
        ("incremental_backups", options.incremental_backups.to_string()),
        ("max_index_interval", options.max_index_interval.to_string()),
        ("memtable_flush_period_in_ms", options.memtable_flush_period_in_ms.to_string()),
        ("min_index_interval", options.min_index_interval.to_string()),
        ("read_repair", string(options.read_repair.name())),
        ("speculative_retry", string(&options.speculative_retry.to_string())),
    ]
    .into_iter()
    .chain(cap)
    .chain(per_partition)
    .chain(rate_limit)
    .chain(max_charge)
    .chain(encryption)
    .chain(tombstone_gc)
    .map(|(name, value)| format!("{name} = {value}"))
    .collect()
}

/// The statements that drop columns again, and add those that came back; each on a new line.
fn drop_statements(table: &Table) -> String {
    let alter = format!("\nALTER TABLE {}", table_name(table));
    let statements = table.dropped_columns.iter().map(|dropped| {
        let name = quoted(&dropped.name);
        let drop = format!("{alter} DROP {name} USING TIMESTAMP {};", dropped.dropped_at_micros);
        match table.column(&dropped.name) {
            Some(column) => format!("{drop}{alter} ADD {};", column_definition(table, column)),
            None => drop,
        }
    });
    statements.collect()
}

fn string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A number in the format of a double, with a decimal point.
fn double(value: f64) -> String {
    format!("{value:?}")
}

fn map(entries: &BTreeMap<String, String>) -> String {
    map_with(entries, string)
}

fn map_with(entries: &BTreeMap<String, String>, value_text: impl Fn(&str) -> String) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(name, value)| format!("{}: {}", string(name), value_text(value))).collect();
    format!("{{{}}}", entries.join(", "))
}
