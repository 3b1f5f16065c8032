//! What would serve a SELECT: an index, a further table, a table that is there, or another key.
//!
//! Invariant: a candidate was tried. The planner takes the statement with it, without ALLOW FILTERING, and finds its rows by keys or by the index.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use cql_lite::syntax::ast::{self, Comparison, Expression, Identifier, Literal, Relation, Subject};
use cql_lite::types::CqlType;
use helenus_query::plan::Plan;
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::{Column, Table, TableKind};

use crate::estimate::Access;
use crate::need::Need;
use crate::schema::Schema;

/// The column that divides a table whose rows are wanted in one order over all partitions.
const BUCKET: &str = "bucket";
/// A day, for partitions that grow without bound.
const DAY: &str = "day";

/// A way to serve a SELECT.
#[derive(Debug)]
pub struct Candidate {
    /// Of the schema. Empty: nothing has to be changed.
    pub statements: Vec<String>,
    /// The SELECT as it would be.
    pub select: String,
    /// The table that it would ask.
    pub table: Arc<Table>,
    pub copied: Copied,
}

/// What of a table is kept once more. Columns are indexes in [`Table::columns`].
#[derive(Debug, Default)]
pub struct Copied {
    /// Empty: nothing.
    pub columns: BTreeSet<usize>,
    /// Those of them that are no key of the table, but are of the copy: where they change, the row moves.
    pub keys: BTreeSet<usize>,
    /// The copy has a row for each partition, not for each row.
    pub is_of_partitions: bool,
}

/// How a plan finds its rows.
pub fn access_of(plan: &SelectPlan) -> Access {
    match plan.restrictions.partition {
        _ if plan.index.is_some() || plan.nearest.is_some() => Access::Index,
        PartitionRestriction::Keys(_) if plan.names_rows() => Access::Rows,
        PartitionRestriction::Keys(_) if plan.table.clustering_key_count == 0 => Access::Rows,
        PartitionRestriction::Keys(_) => Access::Partitions,
        PartitionRestriction::Range(_) => Access::Scan,
    }
}

/// The plan of a SELECT without ALLOW FILTERING, if it is taken.
pub fn unfiltered(schema: &Schema, select: &ast::Select) -> Option<SelectPlan> {
    let select = ast::Select { allow_filtering: false, ..select.clone() };
    match schema.plan(ast::Statement::Select(select)) {
        Ok(Plan::Select(plan)) => Some(plan),
        _ => None,
    }
}

/// The same if keys decide all that it wants.
fn by_keys(schema: &Schema, select: &ast::Select) -> Option<SelectPlan> {
    unfiltered(schema, select).filter(|plan| {
        matches!(access_of(plan), Access::Rows | Access::Partitions) && plan.restrictions.filters.is_empty()
    })
}

/// Indexes on the columns that a SELECT filters by.
pub fn indexes(schema: &Schema, select: &ast::Select, need: &Need, table: &Arc<Table>) -> Option<Candidate> {
    let is_indexed = |name: &str| table.indexes.iter().any(|index| table.indexed_column(index).name == name);
    let names = need.filtered.iter().map(|column| table.columns[*column].name.as_str());
    let statements: Vec<String> = names
        .filter(|name| !is_indexed(name))
        .map(|name| format!("CREATE INDEX ON {} ({}) USING 'sai'", named(table), Identifier::quoted(name)))
        .collect();
    if statements.is_empty() {
        return None;
    }
    let after = schema.with(&statements).ok()?;
    let plan = unfiltered(&after, select).filter(|plan| plan.index.is_some())?;
    let select = ast::Select { allow_filtering: false, ..select.clone() };
    Some(Candidate {
        statements,
        select: text_of(select),
        table: plan.table.clone(),
        copied: Copied::default(),
    })
}

/// A table of the same keyspace that can have the same rows, and has all that a SELECT wants, under the right key.
pub fn existing(schema: &Schema, select: &ast::Select, need: &Need, table: &Table) -> Option<Candidate> {
    let key = 0..key_count_of_rows(need, table);
    let has_column = |other: &Table, column: usize| {
        let column = &table.columns[column];
        other.column(&column.name).is_some_and(|same| same.column_type == column.column_type)
    };
    let mut others = schema.tables(&table.keyspace).filter(|other| {
        other.name != table.name
            && other.kind == TableKind::Stored
            // Names that are alike say little: rows without the key of the others are others.
            && key.clone().all(|column| {
                has_column(other, column)
                    && other.column(&table.columns[column].name).is_some_and(Column::is_primary_key)
            })
            && need.read.iter().all(|column| has_column(other, *column))
    });
    others.find_map(|other| {
        let select = renamed(select, other);
        let plan = by_keys(schema, &select)?;
        Some(Candidate {
            statements: Vec::new(),
            select: text_of(select),
            table: plan.table.clone(),
            copied: Copied::default(),
        })
    })
}

/// A further table whose key is what a SELECT restricts and orders by.
pub fn table(schema: &Schema, select: &ast::Select, need: &Need, base: &Table) -> Option<Candidate> {
    if base.is_counter || (need.equal.is_empty() && need.ordered.is_empty()) {
        return None;
    }
    // Nothing but a number of rows bounds one order over all partitions.
    let needs_bucket = need.equal.is_empty();
    if needs_bucket && base.column(BUCKET).is_some() {
        return None;
    }
    let key_count = key_count_of_rows(need, base);
    let mut clustering: Vec<(usize, bool)> = Vec::new();
    let wanted = need.ordered.iter().copied();
    let ranged = need.ranged.iter().map(|column| (*column, base.columns[*column].is_descending()));
    let rest = (0..key_count).map(|column| (column, base.columns[column].is_descending()));
    for (column, is_descending) in wanted.chain(ranged).chain(rest) {
        let is_known = need.equal.contains(&column) || clustering.iter().any(|(known, _)| *known == column);
        if !is_known {
            clustering.push((column, is_descending));
        }
    }
    let columns_copied: BTreeSet<usize> =
        need.read.iter().copied().chain(0..key_count).chain(need.equal.iter().copied()).collect();
    let key: Vec<usize> = if needs_bucket {
        need.ordered.iter().map(|(column, _)| *column).collect()
    } else {
        need.equal.clone()
    };
    let name = free_name(schema, base, &key);
    let mut key_names: Vec<String> = need.equal.iter().map(|column| quoted(base, *column)).collect();
    let mut columns: Vec<(String, String)> = Vec::new();
    if needs_bucket {
        key_names.push(BUCKET.to_owned());
        columns.push((BUCKET.to_owned(), "text".to_owned()));
    }
    columns.extend(
        columns_copied
            .iter()
            .map(|column| (quoted(base, *column), base.columns[*column].column_type.to_string())),
    );
    let definition = definition(&base.keyspace, &name, &columns, &key_names, &named_order(base, &clustering));
    let after = schema.with(std::slice::from_ref(&definition)).ok()?;
    let qualified = ast::QualifiedName {
        keyspace: Some(Identifier::quoted(base.keyspace.as_str())),
        name: Identifier::quoted(name),
    };
    let new = after.table(&qualified)?.clone();
    let mut select = ast::Select { distinct: false, ..renamed(select, &new) };
    if needs_bucket {
        select.relations.push(Relation::Compare {
            subject: Subject::Column(Identifier::quoted(BUCKET)),
            operator: Comparison::Equal,
            value: Expression::Literal(Literal::String("all".to_owned())),
        });
    }
    by_keys(&after, &select)?;
    let is_new_key = |column: &usize| {
        let column = &base.columns[*column];
        !column.is_primary_key() && new.column(&column.name).is_some_and(Column::is_primary_key)
    };
    let copied = Copied {
        keys: columns_copied.iter().copied().filter(is_new_key).collect(),
        columns: columns_copied,
        is_of_partitions: base.clustering_key_count > 0 && key_count == base.partition_key_count,
    };
    Some(Candidate { statements: vec![definition], select: text_of(select), table: new, copied })
}

/// The same table with clustering columns moved into the partition key, or divided by days where there is none to move. `selects`: all that
/// ask the table. Returns the definition of the new table.
pub fn with_narrower_key(
    schema: &Schema,
    table: &Table,
    moved: usize,
    selects: &[&ast::Select],
) -> Option<String> {
    let clustering = table.clustering_key();
    let (to_partition, rest) = clustering.split_at(moved.min(clustering.len()));
    let has_day = to_partition.is_empty();
    if has_day && table.column(DAY).is_some() {
        return None;
    }
    let mut key: Vec<String> = table.partition_key().iter().map(name_of).collect();
    key.extend(to_partition.iter().map(name_of));
    let mut columns: Vec<(String, String)> = Vec::new();
    for column in &table.columns {
        let is_static = if column.is_static() { " static" } else { "" };
        columns.push((name_of(column), format!("{}{is_static}", column.column_type)));
    }
    if has_day {
        key.push(DAY.to_owned());
        columns.push((DAY.to_owned(), "date".to_owned()));
    }
    let first_moved = table.partition_key_count;
    let moved: Vec<usize> = (first_moved..first_moved + to_partition.len()).collect();
    let name = if has_day { free_name_of(schema, table, DAY) } else { free_name(schema, table, &moved) };
    let order: Vec<(String, bool)> =
        rest.iter().map(|column| (name_of(column), column.is_descending())).collect();
    let definition = definition(&table.keyspace, &name, &columns, &key, &order);
    let after = schema.with(std::slice::from_ref(&definition)).ok()?;
    let qualified = ast::QualifiedName {
        keyspace: Some(Identifier::quoted(table.keyspace.as_str())),
        name: Identifier::quoted(name),
    };
    let new = after.table(&qualified)?;
    let is_served = |select: &&ast::Select| {
        let mut select = renamed(select, new);
        if has_day {
            select.relations.push(Relation::Compare {
                subject: Subject::Column(Identifier::quoted(DAY)),
                operator: Comparison::Equal,
                value: Expression::Literal(Literal::String("2000-01-01".to_owned())),
            });
        }
        by_keys(&after, &select).is_some()
    };
    selects.iter().all(is_served).then_some(definition)
}

/// A table with a row for each element of a collection.
pub fn rows_of_collection(schema: &Schema, table: &Table, column: &Column) -> Option<String> {
    let (key_type, value_type) = match &column.column_type {
        CqlType::Map { key, value, .. } => (key.to_string(), Some(value.to_string())),
        CqlType::Set { element, .. } => (element.to_string(), None),
        CqlType::List { element, .. } => ("timeuuid".to_owned(), Some(element.to_string())),
        _ => return None,
    };
    let keys: Vec<&Column> = table.partition_key().iter().chain(table.clustering_key()).collect();
    if keys.iter().any(|key| ["element", "value"].contains(&key.name.as_str())) {
        return None;
    }
    let mut columns: Vec<(String, String)> =
        keys.iter().map(|key| (name_of(key), key.column_type.to_string())).collect();
    columns.push(("element".to_owned(), key_type));
    columns.extend(value_type.map(|of| ("value".to_owned(), of)));
    let partition: Vec<String> = keys.iter().map(|key| name_of(key)).collect();
    let name = free_name_of(schema, table, &column.name);
    let order = [("element".to_owned(), true)];
    let definition = definition(&table.keyspace, &name, &columns, &partition, &order);
    schema.with(std::slice::from_ref(&definition)).is_ok().then_some(definition)
}

/// The columns of the key that tell the rows of a SELECT apart: rows of one partition are alike where only static columns are wanted.
fn key_count_of_rows(need: &Need, table: &Table) -> usize {
    let reads_partitions =
        need.read.iter().all(|column| !table.columns[*column].is_clustering() && !is_regular(table, *column));
    table.partition_key_count + if reads_partitions { 0 } else { table.clustering_key_count }
}

fn is_regular(table: &Table, column: usize) -> bool {
    let column = &table.columns[column];
    !column.is_primary_key() && !column.is_static()
}

fn renamed(select: &ast::Select, table: &Table) -> ast::Select {
    let from = ast::QualifiedName {
        keyspace: Some(Identifier::quoted(table.keyspace.as_str())),
        name: Identifier::quoted(table.name.as_str()),
    };
    ast::Select { from, allow_filtering: false, ..select.clone() }
}

fn text_of(select: ast::Select) -> String {
    ast::Statement::Select(select).to_string()
}

fn name_of(column: &Column) -> String {
    Identifier::quoted(column.name.as_str()).to_string()
}

fn quoted(table: &Table, column: usize) -> String {
    name_of(&table.columns[column])
}

/// The quoted name of a table, with its keyspace.
pub fn named(table: &Table) -> String {
    qualified(&table.keyspace, &table.name)
}

fn qualified(keyspace: &str, name: &str) -> String {
    format!("{}.{}", Identifier::quoted(keyspace), Identifier::quoted(name))
}

fn named_order(table: &Table, order: &[(usize, bool)]) -> Vec<(String, bool)> {
    order.iter().map(|(column, is_descending)| (quoted(table, *column), *is_descending)).collect()
}

/// A name for a table like this one by these columns, which no table has.
fn free_name(schema: &Schema, table: &Table, by: &[usize]) -> String {
    let by: Vec<&str> = by.iter().map(|column| table.columns[*column].name.as_str()).collect();
    free_name_of(schema, table, &by.join("_"))
}

fn free_name_of(schema: &Schema, table: &Table, by: &str) -> String {
    let wanted = format!("{}_by_{by}", table.name);
    let is_taken = |name: &str| schema.tables(&table.keyspace).any(|other| other.name == name);
    let mut name = wanted.clone();
    let mut number = 2;
    while is_taken(&name) {
        name = format!("{wanted}_{number}");
        number += 1;
    }
    name
}

/// `CREATE TABLE …`
fn definition(
    keyspace: &str,
    name: &str,
    columns: &[(String, String)],
    partition_key: &[String],
    clustering: &[(String, bool)],
) -> String {
    let mut text = format!("CREATE TABLE {} (", qualified(keyspace, name));
    // Writing to a string cannot fail.
    for (name, cql_type) in columns {
        let _ = write!(text, "{name} {cql_type}, ");
    }
    let _ = write!(text, "PRIMARY KEY (({})", partition_key.join(", "));
    for (name, _) in clustering {
        let _ = write!(text, ", {name}");
    }
    text += "))";
    if clustering.iter().any(|(_, is_descending)| *is_descending) {
        let order = clustering
            .iter()
            .map(|(name, is_descending)| format!("{name} {}", if *is_descending { "DESC" } else { "ASC" }));
        let _ = write!(text, " WITH CLUSTERING ORDER BY ({})", order.collect::<Vec<_>>().join(", "));
    }
    text
}
