//! The statements by which the node keeps the rows of a view true, and where their values are.
//!
//! Markers of a unit are its columns in the order of the base table's primary key. In hidden tables the columns of a unit are `u0`, `u1`, …,
//! those of the view's key that the unit does not have `v0`, `v1`, …, the key of a joined table `j0`, `j1`, ….

use std::collections::BTreeSet;
use std::fmt::Write;

use cql_lite::syntax::ast::Identifier;
use helenus_query::schema::catalog::{Column, ColumnKind, Table};

use crate::definition::{Condition, Definition, Joined, Source};

/// The texts for one view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statements {
    /// The values of a unit; they are taken apart by [`Statements::places`].
    pub read_unit: String,
    pub places: Places,
    /// The rows of the view that come from a unit: columns `v0`, `v1`, ….
    pub read_origins: String,
    pub put_origin: String,
    pub delete_origin: String,
    /// All columns of the view, in their order.
    pub put_row: String,
    /// The columns of the view's key, in their order.
    pub delete_row: String,
    /// All columns of the view, by its key.
    pub read_row: String,
    /// The key of the last row of a partition of the view, if it has a cap.
    pub read_last: Option<String>,
    /// The keys of the view's rows, by tokens of the view.
    pub scan_view: String,
    /// The times to live of the values of a unit, a row for each row of it; `None`: no column has one.
    pub read_times: Option<String>,
    /// The units of the base table with tokens from the first marker to the second one.
    pub scan_base: String,
    /// The units of the table of origins, by tokens, too.
    pub scan_origins: String,
    pub lookup: Option<LookupStatements>,
}

/// The texts for looking up rows of a joined table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupStatements {
    /// The columns of [`Places::joined`], by the joined table's key.
    pub read_joined: String,
    /// The key of the joined table and then the unit.
    pub put_lookup: String,
    /// The units that have looked up a row, by its key.
    pub read_lookups: String,
    /// Those that have looked up rows of a partition, by its key.
    pub read_lookups_of_partition: String,
}

/// Where the values of a unit are in the row that [`Statements::read_unit`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// For each column of the base table that is read, its index in the table; the values come in this order, first.
    pub base: Vec<usize>,
    /// The expressions, in the order of their outputs, behind the columns.
    pub expressions: usize,
    /// Whether the last value is the number of rows of the unit: without any there is no row in the view.
    pub ends_with_count: bool,
    /// For each column of the joined table that is read, its index in that table.
    pub joined: Vec<usize>,
}

impl Statements {
    /// All texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let lookup = self.lookup.iter().flat_map(|lookup| {
            [&lookup.read_joined, &lookup.put_lookup, &lookup.read_lookups, &lookup.read_lookups_of_partition]
        });
        let own = [
            &self.read_unit,
            &self.read_origins,
            &self.put_origin,
            &self.delete_origin,
            &self.put_row,
            &self.delete_row,
            &self.scan_base,
            &self.scan_origins,
        ];
        own.into_iter().chain(&self.read_times).chain(lookup).map(String::as_str)
    }

    pub fn of(definition: &Definition) -> Self {
        let unit: Vec<String> = definition.unit().map(|column| quoted(&column.name)).collect();
        let hidden_unit = numbered('u', unit.len());
        let origin = numbered('v', definition.origin_outputs().len());
        let places = places(definition);
        let rows = full_name(&definition.rows);
        let view = full_name(&definition.view);
        let whole_origin: Vec<String> = hidden_unit.iter().chain(&origin).cloned().collect();
        let all: Vec<String> = definition.view.columns.iter().map(|column| quoted(&column.name)).collect();
        let key: Vec<String> = definition.view_key().map(|column| quoted(&column.name)).collect();
        // Something has to be selected: a row is there or not.
        let selected_origin = if origin.is_empty() { &hidden_unit } else { &origin };
        Self {
            read_unit: read_unit(definition, &places, &unit),
            read_origins: format!(
                "SELECT {} FROM {rows} WHERE {}",
                selected_origin.join(", "),
                equalities(&hidden_unit)
            ),
            put_origin: insert(&rows, &whole_origin),
            delete_origin: format!("DELETE FROM {rows} WHERE {}", equalities(&whole_origin)),
            put_row: insert(&view, &all),
            delete_row: format!("DELETE FROM {view} WHERE {}", equalities(&key)),
            read_row: format!("SELECT {} FROM {view} WHERE {}", all.join(", "), equalities(&key)),
            read_last: definition.view.options.cap.as_ref().map(|_| last_row(&definition.view, &view, &key)),
            scan_view: scan(&view, &key, definition.view.partition_key_count),
            read_times: read_times(&definition.base, &unit),
            scan_base: scan(&full_name(&definition.base), &unit, definition.base.partition_key_count),
            scan_origins: scan(&rows, &hidden_unit, definition.base.partition_key_count),
            lookup: definition.joined.as_ref().map(|joined| lookup(joined, &places, &hidden_unit)),
            places,
        }
    }
}

/// A partition is read from its end: backwards.
fn last_row(view: &Table, name: &str, key: &[String]) -> String {
    let [first, ..] = view.clustering_key() else {
        unreachable!("a table with a cap has clustering columns")
    };
    let direction = if first.is_descending() { "ASC" } else { "DESC" };
    let partition = equalities(&key[..view.partition_key_count]);
    format!(
        "SELECT {} FROM {name} WHERE {partition} ORDER BY {} {direction} LIMIT 1",
        key.join(", "),
        quoted(&first.name)
    )
}

fn lookup(joined: &Joined, places: &Places, hidden_unit: &[String]) -> LookupStatements {
    let key = numbered('j', joined.on.len());
    let names = joined.key().map(|column| quoted(&column.name)).collect::<Vec<_>>();
    let read = places.joined.iter().map(|&index| quoted(&joined.table.columns[index].name));
    // A joined row of which nothing is read still has to be there.
    let read = read.chain((places.joined.is_empty()).then(|| names[0].clone())).collect::<Vec<_>>();
    let lookups = full_name(&joined.lookups);
    let whole: Vec<String> = key.iter().chain(hidden_unit).cloned().collect();
    let read_lookups = |key: &[String]| {
        format!("SELECT {} FROM {lookups} WHERE {}", hidden_unit.join(", "), equalities(key))
    };
    LookupStatements {
        read_joined: format!(
            "SELECT {} FROM {} WHERE {}",
            read.join(", "),
            full_name(&joined.table),
            equalities(&names)
        ),
        put_lookup: insert(&lookups, &whole),
        read_lookups: read_lookups(&key),
        read_lookups_of_partition: read_lookups(&key[..joined.table.partition_key_count]),
    }
}

/// A SELECT of the times to live of a unit.
fn read_times(base: &Table, unit: &[String]) -> Option<String> {
    let columns = base
        .columns
        .iter()
        .filter(|column| column.kind == ColumnKind::Regular && !column.column_type.is_multi_cell());
    let times: Vec<String> = columns.map(|column| format!("ttl({})", quoted(&column.name))).collect();
    (!times.is_empty())
        .then(|| format!("SELECT {} FROM {} WHERE {}", times.join(", "), full_name(base), equalities(unit)))
}

/// A SELECT of units, or of keys, by tokens. Several rows may be of one unit.
fn scan(table: &str, unit: &[String], partition_columns: usize) -> String {
    let partition_key = unit[..partition_columns].join(", ");
    let distinct = if unit.len() == partition_columns { "DISTINCT " } else { "" };
    format!(
        "SELECT {distinct}{} FROM {table} WHERE token({partition_key}) >= ? AND token({partition_key}) <= ?",
        unit.join(", ")
    )
}

/// What is read of a unit and of the joined row.
fn places(definition: &Definition) -> Places {
    let (mut base, mut joined, mut expressions) = (BTreeSet::new(), BTreeSet::new(), 0);
    let of_conditions = definition.conditions_of_units.iter().chain(
        // Aggregates have them in the text.
        definition.conditions_of_rows.iter().filter(|_| !definition.is_aggregate),
    );
    let sources = definition.outputs.iter().map(|output| &output.source);
    for source in sources.chain(of_conditions.map(|condition: &Condition| &condition.column)) {
        match source {
            Source::Base(index) => {
                base.insert(*index);
            }
            Source::Joined(index) => {
                joined.insert(*index);
            }
            Source::Expression(_) => expressions += 1,
        }
    }
    if let Some(found) = &definition.joined {
        base.extend(&found.on);
    }
    Places {
        base: base.into_iter().collect(),
        expressions,
        ends_with_count: definition.is_aggregate,
        joined: joined.into_iter().collect(),
    }
}

fn read_unit(definition: &Definition, places: &Places, unit: &[String]) -> String {
    let columns = places.base.iter().map(|&index| quoted(&definition.base.columns[index].name));
    let expressions = definition.outputs.iter().filter_map(|output| match &output.source {
        Source::Expression(text) => Some(text.clone()),
        Source::Base(_) | Source::Joined(_) => None,
    });
    // A partition with nothing but static columns has no row of a view: each row has clustering columns.
    let counted =
        definition.base.clustering_key().first().map_or("*".to_owned(), |column| quoted(&column.name));
    let count = places.ends_with_count.then(|| format!("count({counted})"));
    let mut selected: Vec<String> = columns.chain(expressions).chain(count).collect();
    if selected.is_empty() {
        selected.push(unit[0].clone());
    }
    let mut text = format!(
        "SELECT {} FROM {} WHERE {}",
        selected.join(", "),
        full_name(&definition.base),
        equalities(unit)
    );
    if definition.is_aggregate && !definition.conditions_of_rows.is_empty() {
        for condition in &definition.conditions_of_rows {
            put(&mut text, format_args!(" AND {}", condition.relation));
        }
        text.push_str(" ALLOW FILTERING");
    }
    text
}

/// `a = ? AND b = ?`
fn equalities(columns: &[String]) -> String {
    let equalities: Vec<String> = columns.iter().map(|column| format!("{column} = ?")).collect();
    equalities.join(" AND ")
}

fn insert(table: &str, columns: &[String]) -> String {
    format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), vec!["?"; columns.len()].join(", "))
}

fn numbered(letter: char, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{letter}{number}")).collect()
}

/// The name of a column as CQL.
pub fn quoted(name: &str) -> String {
    Identifier::quoted(name).to_string()
}

/// The name of a table as CQL, with its keyspace.
pub fn full_name(table: &Table) -> String {
    format!("{}.{}", quoted(&table.keyspace), quoted(&table.name))
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).unwrap_or_else(|_| unreachable!("a string takes what is written to it"));
}

/// Which bounds the first clustering column of units has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounds {
    /// `>= ?`
    pub has_from: bool,
    /// `<= ?`
    pub has_to: bool,
}

impl Definition {
    /// A SELECT of the units of a partition that may have rows in the view. Markers are the partition key and the bounds.
    pub fn units_of_partition(&self, bounds: Bounds) -> String {
        let unit = numbered('u', self.unit_columns);
        let (partition_key, clustering) = unit.split_at(self.base.partition_key_count);
        let mut text = format!(
            "SELECT {} FROM {} WHERE {}",
            unit.join(", "),
            full_name(&self.rows),
            equalities(partition_key)
        );
        if let Some(first) = clustering.first() {
            let of = [(bounds.has_from, ">="), (bounds.has_to, "<=")];
            for (_, operator) in of.iter().filter(|(has_bound, _)| *has_bound) {
                put(&mut text, format_args!(" AND {first} {operator} ?"));
            }
        }
        text
    }

    /// The columns of the base table that name a unit.
    pub fn unit(&self) -> impl Iterator<Item = &Column> {
        self.base.partition_key().iter().chain(self.base.clustering_key()).take(self.unit_columns)
    }

    /// The columns of the view's primary key.
    pub fn view_key(&self) -> impl Iterator<Item = &Column> {
        self.view.partition_key().iter().chain(self.view.clustering_key())
    }

    /// The columns of the view's key (their indexes, which are those of their outputs) that the unit does not have: what the table of origins
    /// has beside the unit.
    pub fn origin_outputs(&self) -> Vec<usize> {
        let key_columns = self.view.partition_key_count + self.view.clustering_key_count;
        (0..key_columns)
            .filter(|&index| !matches!(self.outputs[index].source, Source::Base(column) if column < self.unit_columns))
            .collect()
    }
}

impl Joined {
    /// The columns of the joined table's primary key.
    pub fn key(&self) -> impl Iterator<Item = &Column> {
        self.table.partition_key().iter().chain(self.table.clustering_key())
    }
}
