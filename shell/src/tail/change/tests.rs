use std::rc::Rc;

use cql_lite::types::UserType;

use super::*;
use crate::{
    connection::Column,
    tail::entry::{BaseColumn, ColumnKind, Layout},
};

fn column(name: &str, cql_type: CqlType) -> Column {
    Column { name: name.to_owned(), cql_type }
}

/// A table of the key `(p, c)`, a text, a list, a set and a user type, none of them frozen.
fn layout() -> Rc<Layout> {
    let user_type = UserType {
        keyspace: "ks".into(),
        name: "address".into(),
        field_names: vec!["street".into(), "City".into()],
        field_types: vec![CqlType::Text, CqlType::Text],
    };
    let user_type = CqlType::UserType { definition: user_type.into(), frozen: true };
    let columns = [
        column("p", CqlType::Int),
        column("c", CqlType::Int),
        column("v", CqlType::Text),
        column("cdc$deleted_v", CqlType::Boolean),
        column("items", CqlType::map(CqlType::Timeuuid, CqlType::Int, true)),
        column("cdc$deleted_items", CqlType::Boolean),
        column("cdc$deleted_elements_items", CqlType::set(CqlType::Timeuuid, true)),
        column("tags", CqlType::set(CqlType::Text, true)),
        column("cdc$deleted_tags", CqlType::Boolean),
        column("cdc$deleted_elements_tags", CqlType::set(CqlType::Text, true)),
        column("home", user_type),
        column("cdc$deleted_home", CqlType::Boolean),
        column("cdc$deleted_elements_home", CqlType::set(CqlType::Smallint, true)),
    ];
    let base = |name: &str, kind, is_list| BaseColumn {
        name: name.to_owned(),
        kind,
        position: 0,
        is_list,
        is_descending: false,
    };
    let base = [
        base("p", ColumnKind::PartitionKey, false),
        base("c", ColumnKind::Clustering, false),
        base("v", ColumnKind::Other, false),
        base("items", ColumnKind::Other, true),
        base("tags", ColumnKind::Other, false),
        base("home", ColumnKind::Other, false),
    ];
    Rc::new(Layout::new(&columns, &base).unwrap())
}

/// An entry with values in some columns. `at`: its time.
fn entry(layout: &Rc<Layout>, at: i64, operation: i8, values: &[(&str, Value)]) -> Entry {
    let cells = layout.columns.iter().map(|column| {
        let value = values.iter().find(|(name, _)| *name == column.name);
        value.map(|(_, value)| value.encode(&column.cql_type))
    });
    Entry {
        cells: cells.collect(),
        layout: Rc::clone(layout),
        time: timeuuid::from_micros(at, 0, 0, [0; 6]),
        stream: vec![1],
        sequence: 0,
        operation,
        ttl_seconds: None,
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// What the edits of one entry say.
fn edits(values: &[(&str, Value)]) -> Vec<String> {
    let layout = layout();
    let shown = |edit: &Edit| match edit {
        Edit::Set(field) => format!("{} = {}", field.name, field.literal()),
        Edit::Deleted(name) => format!("{name} deleted"),
        Edit::Added(field) => format!("{} + {}", field.name, field.literal()),
        Edit::Removed(field) => format!("{} - {}", field.name, field.literal()),
    };
    changes(&[entry(&layout, 1, 1, values)])[0].edits.iter().map(shown).collect()
}

#[test]
fn columns_are_set_deleted_and_left_alone() {
    assert_eq!(edits(&[("v", text("a"))]), ["v = 'a'"]);
    assert_eq!(edits(&[("cdc$deleted_v", Value::Boolean(true))]), ["v deleted"]);
    assert_eq!(edits(&[]), Vec::<String>::new());
}

#[test]
fn collections_are_changed_in_part_or_as_a_whole() {
    let tags = |names: &[&str]| Value::Set(names.iter().map(|name| text(name)).collect());
    assert_eq!(edits(&[("tags", tags(&["a"]))]), ["tags + {'a'}"]);
    assert_eq!(edits(&[("cdc$deleted_elements_tags", tags(&["a"]))]), ["tags - {'a'}"]);
    let deleted = ("cdc$deleted_tags", Value::Boolean(true));
    assert_eq!(edits(&[("tags", tags(&["a"])), deleted.clone()]), ["tags = {'a'}"]);
    assert_eq!(edits(&[deleted]), ["tags deleted"]);
}

#[test]
fn a_list_is_shown_without_the_times_of_its_elements() {
    let at = |time| Value::Timeuuid(timeuuid::from_micros(time, 0, 0, [0; 6]));
    let items = Value::Map(vec![(at(1), Value::Int(7)), (at(2), Value::Int(8))]);
    assert_eq!(edits(&[("items", items)]), ["items + [7, 8]"]);
}

#[test]
fn fields_of_a_user_type_are_named() {
    let home = Value::UserType(vec![Some(text("Main St")), None]);
    assert!(edits(&[("home", home)])[0].starts_with("home + {street: 'Main St'"));
    let fields = Value::Set(vec![Value::Smallint(1), Value::Smallint(9)]);
    assert_eq!(edits(&[("cdc$deleted_elements_home", fields)]), ["home - {'\"City\"', '9'}"]);
}

#[test]
fn images_go_with_the_change_of_their_row() {
    let layout = layout();
    let row = |c, v: &str| vec![("p", Value::Int(1)), ("c", Value::Int(c)), ("v", text(v))];
    let entries = [
        entry(&layout, 1, 0, &row(1, "old")),
        entry(&layout, 1, 1, &row(1, "new")),
        entry(&layout, 1, 2, &row(2, "other")),
        entry(&layout, 1, 9, &row(1, "new")),
        entry(&layout, 1, 9, &row(2, "other")),
    ];
    let changes = changes(&entries);
    let shown: Vec<(Operation, Option<String>, Option<String>)> = changes
        .iter()
        .map(|change| {
            let first = |image: &Option<Vec<Field>>| image.as_ref().map(|fields| fields[0].literal());
            (change.operation, first(&change.before), first(&change.after))
        })
        .collect();
    let quoted = |text: &str| Some(format!("'{text}'"));
    assert_eq!(
        shown,
        [(Operation::Update, quoted("old"), quoted("new")), (Operation::Insert, None, quoted("other")),]
    );
}

#[test]
fn images_without_a_change_are_shown_alone() {
    let layout = layout();
    let row = [("p", Value::Int(1)), ("c", Value::Int(1)), ("v", text("a"))];
    // Of another statement than the image behind it.
    let changes =
        changes(&[entry(&layout, 1, 0, &row), entry(&layout, 2, 9, &row), entry(&layout, 3, 3, &row[..2])]);
    let operations: Vec<Operation> = changes.iter().map(|change| change.operation).collect();
    assert_eq!(operations, [Operation::PreImage, Operation::PostImage, Operation::DeleteRow]);
}

#[test]
fn two_ends_are_one_range() {
    let layout = layout();
    let end = |c| vec![("p", Value::Int(1)), ("c", Value::Int(c))];
    let open = vec![("p", Value::Int(1))];
    let of = |entries: &[Entry]| {
        changes(entries)
            .into_iter()
            .map(|change| {
                let bound = |bound: Option<Bound>| {
                    bound.map(|bound| (bound.fields.first().map(Field::literal), bound.is_inclusive))
                };
                (change.key.len(), bound(change.from), bound(change.to))
            })
            .collect::<Vec<_>>()
    };
    let number = |number: i32| Some(number.to_string());
    assert_eq!(
        of(&[
            entry(&layout, 1, 5, &end(1)),
            entry(&layout, 1, 8, &end(3)),
            entry(&layout, 1, 6, &end(5)),
            entry(&layout, 1, 7, &open),
        ]),
        [
            (1, Some((number(1), true)), Some((number(3), false))),
            (1, Some((number(5), false)), Some((None, true))),
        ]
    );
}

#[test]
fn entries_are_ordered_by_time_and_their_number() {
    let layout = layout();
    let at = |at, sequence| Entry { sequence, ..entry(&layout, at, 1, &[]) };
    let mut entries = [at(2, 0), at(1, 1), at(1, 0)];
    entries.sort_by(Entry::order);
    let order: Vec<_> =
        entries.iter().map(|entry| (timeuuid::unix_micros(&entry.time), entry.sequence)).collect();
    assert_eq!(order, [(1, 0), (1, 1), (2, 0)]);
}
