//! DESCRIBE: the rows of its answers, as in Cassandra 5.0.
//!
//! Functions over the catalog without side effects. Elements are listed in an order in which their CREATE statements
//! can be executed: a keyspace, its types (each after the types that it contains), its functions and aggregates, its tables by name, each
//! with its indexes and the views of which it is the base table; at last the views with a join. What is kept beside views is not shown.

mod create_text;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::syntax::ast::{Describe, DescribeTarget, FunctionName, Identifier, QualifiedName, ViewKind};
use cql_lite::types::value::Value;
use cql_lite::types::{CqlType, UserType};

use self::create_text::quoted;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::user::{UserAggregate, UserFunction};
use helenus_query::schema::catalog::{Catalog, Keyspace, Table};
use helenus_query::schema::index::Index;
use helenus_query::schema::system_keyspaces;
use helenus_query::schema::type_order::{types_in_order, types_of_table};

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Names and types of the columns.
    pub columns: Vec<(&'static str, CqlType)>,
    /// A value for each column.
    pub rows: Vec<Vec<Value>>,
}

/// The summary of the cluster for DESCRIBE CLUSTER.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSummary<'a> {
    pub name: &'a str,
    /// Class name without its package: `Murmur3Partitioner`.
    pub partitioner: &'a str,
    /// Class name without its package: `SimpleSnitch`.
    pub snitch: &'a str,
    /// The replicas (addresses) of each token range, by the last token of the range, for the session's keyspace.
    pub range_ownership: &'a BTreeMap<String, Vec<String>>,
}

/// Executes a DESCRIBE. `current`: the session's keyspace.
pub fn describe(
    catalog: &Catalog,
    current: Option<&str>,
    cluster: ClusterSummary<'_>,
    statement: &Describe,
) -> Result<Description> {
    let scope = DescribeScope { catalog, current, with_internals: statement.with_internals };
    match &statement.target {
        DescribeTarget::Cluster => Ok(scope.cluster(cluster)),
        DescribeTarget::Keyspaces => {
            Ok(names(catalog.keyspaces.values().map(|keyspace| Element::Keyspace(keyspace))))
        }
        DescribeTarget::Tables => scope.list(|keyspace| tables(keyspace).collect()),
        DescribeTarget::Types => {
            scope.list(|keyspace| keyspace.types.values().map(|user_type| Element::Type(user_type)).collect())
        }
        DescribeTarget::Functions => scope.list(|keyspace| functions(keyspace).collect()),
        DescribeTarget::Aggregates => scope.list(|keyspace| aggregates(keyspace).collect()),
        DescribeTarget::Schema { full } => Ok(scope.schema(*full)),
        DescribeTarget::Keyspace { only, name } => {
            let keyspace = scope.keyspace(name.as_ref())?;
            Ok(scope.elements(if *only {
                vec![Element::Keyspace(keyspace)]
            } else {
                keyspace_elements(keyspace)
            }))
        }
        DescribeTarget::Table(name) => {
            scope.table(scope.keyspace(name.keyspace.as_ref())?, name.name.as_str())
        }
        DescribeTarget::Index(name) => {
            scope.index(scope.keyspace(name.keyspace.as_ref())?, name.name.as_str())
        }
        DescribeTarget::View { kind, name } => scope.view(*kind, name),
        DescribeTarget::Type(name) => scope.user_type(name),
        DescribeTarget::Function(name) => scope.overloads(
            "User defined function",
            name,
            |element, name| matches!(element, Element::Function(function) if function.name == name),
        ),
        DescribeTarget::Aggregate(name) => scope.overloads(
            "User defined aggregate",
            name,
            |element, name| matches!(element, Element::Aggregate(aggregate) if aggregate.name == name),
        ),
        DescribeTarget::Name(name) => scope.name(name),
    }
}

/// A schema element with a name and a CREATE statement.
#[derive(Clone, Copy)]
enum Element<'a> {
    Keyspace(&'a Keyspace),
    Type(&'a UserType),
    Function(&'a UserFunction),
    Aggregate(&'a UserAggregate),
    Table(&'a Keyspace, &'a Table),
    Index(&'a Table, &'a Index),
}

impl Element<'_> {
    /// Keyspace, kind and name, for the answers.
    fn names(self) -> [String; 3] {
        let (keyspace, kind, name) = match self {
            Element::Keyspace(keyspace) => (keyspace.name.as_str(), "keyspace", quoted(&keyspace.name)),
            Element::Type(user_type) => (&*user_type.keyspace, "type", quoted(&user_type.name)),
            Element::Function(function) => {
                let signature = create_text::signature(&function.name, &function.argument_types);
                (function.keyspace.as_str(), "function", signature)
            }
            Element::Aggregate(aggregate) => {
                let signature = create_text::signature(&aggregate.name, &aggregate.argument_types);
                (aggregate.keyspace.as_str(), "aggregate", signature)
            }
            Element::Table(_, table) => {
                let kind = match table.view.as_ref().map(|view| view.statement.kind) {
                    Some(ViewKind::Materialized) => "materialized_view",
                    Some(ViewKind::Projection) => "projection",
                    None => "table",
                };
                (table.keyspace.as_str(), kind, quoted(&table.name))
            }
            Element::Index(table, index) => (table.keyspace.as_str(), "index", quoted(&index.name)),
        };
        [quoted(keyspace), kind.to_owned(), name]
    }

    fn create_text(self, with_internals: bool) -> String {
        match self {
            Element::Keyspace(keyspace) => create_text::keyspace(keyspace),
            Element::Type(user_type) => create_text::user_type(user_type),
            Element::Function(function) => create_text::function(function),
            Element::Aggregate(aggregate) => create_text::aggregate(aggregate),
            Element::Table(keyspace, table) => create_text::table(keyspace, table, with_internals),
            Element::Index(table, index) => create_text::index(table, index),
        }
    }
}

/// The scope of a DESCRIBE.
struct DescribeScope<'a> {
    catalog: &'a Catalog,
    current: Option<&'a str>,
    with_internals: bool,
}

impl<'a> DescribeScope<'a> {
    /// The keyspace of that name, or else the session's.
    fn keyspace(&self, name: Option<&Identifier>) -> Result<&'a Keyspace> {
        match name.map(Identifier::as_str).or(self.current) {
            Some(name) => self.keyspace_named(name),
            None => Err(RequestError::invalid("No keyspace specified and no current keyspace")),
        }
    }

    fn keyspace_named(&self, name: &str) -> Result<&'a Keyspace> {
        match self.catalog.keyspaces.get(name) {
            Some(keyspace) => Ok(keyspace),
            None => Err(RequestError::invalid(format!("'{name}' not found in keyspaces"))),
        }
    }

    fn cluster(&self, summary: ClusterSummary<'_>) -> Description {
        let mut columns =
            vec![("cluster", CqlType::Text), ("partitioner", CqlType::Text), ("snitch", CqlType::Text)];
        let mut row = vec![text(summary.name), text(summary.partitioner), text(summary.snitch)];
        if self.current.is_some_and(|keyspace| !system_keyspaces::is_system(keyspace)) {
            let addresses = CqlType::list(CqlType::Text, false);
            columns.push(("range_ownership", CqlType::map(CqlType::Text, addresses, false)));
            let entries = summary.range_ownership.iter().map(|(token, addresses)| {
                (text(token), Value::List(addresses.iter().map(|address| text(address)).collect()))
            });
            row.push(Value::Map(entries.collect()));
        }
        Description { columns, rows: vec![row] }
    }

    /// The names of elements in the session's keyspace, or else in all keyspaces.
    fn list(&self, elements: impl Fn(&'a Keyspace) -> Vec<Element<'a>>) -> Result<Description> {
        Ok(match self.current {
            Some(name) => names(elements(self.keyspace_named(name)?)),
            None => names(self.catalog.keyspaces.values().flat_map(|keyspace| elements(keyspace))),
        })
    }

    fn schema(&self, with_system: bool) -> Description {
        let keyspaces = self.catalog.keyspaces.values();
        let shown = keyspaces.filter(|keyspace| with_system || !system_keyspaces::is_system(&keyspace.name));
        self.elements(joins_last(shown.flat_map(|keyspace| keyspace_elements(keyspace)).collect()))
    }

    fn table(&self, keyspace: &'a Keyspace, name: &str) -> Result<Description> {
        match keyspace.tables.get(name).filter(|table| table.view.is_none() && !table.is_hidden()) {
            Some(table) => Ok(self.elements(table_elements(keyspace, table))),
            None => Err(RequestError::invalid(format!(
                "Table '{name}' not found in keyspace '{}'",
                keyspace.name
            ))),
        }
    }

    fn view(&self, kind: ViewKind, name: &QualifiedName) -> Result<Description> {
        let keyspace = self.keyspace(name.keyspace.as_ref())?;
        let table = keyspace.tables.get(name.name.as_str());
        let is_kind =
            |table: &&Arc<Table>| table.view.as_ref().is_some_and(|view| view.statement.kind == kind);
        match table.filter(is_kind) {
            Some(view) => Ok(self.elements([Element::Table(keyspace, view)])),
            None => self.absent(kind.title(), name.keyspace.as_ref(), &name.name),
        }
    }

    fn index(&self, keyspace: &'a Keyspace, name: &str) -> Result<Description> {
        match keyspace.index(name) {
            Some((table, index)) => Ok(self.elements([Element::Index(table, index)])),
            None => Err(RequestError::invalid(format!(
                "Table for existing index '{name}' not found in '{}'",
                keyspace.name
            ))),
        }
    }

    fn user_type(&self, name: &QualifiedName) -> Result<Description> {
        let keyspace = self.keyspace(name.keyspace.as_ref())?;
        match keyspace.user_type(name.name.as_str()) {
            Some(user_type) => Ok(self.elements([Element::Type(user_type)])),
            None => self.absent("User defined type", name.keyspace.as_ref(), &name.name),
        }
    }

    /// The functions or aggregates of a name.
    fn overloads(
        &self,
        kind: &str,
        name: &FunctionName,
        is_named: impl Fn(Element<'_>, &str) -> bool,
    ) -> Result<Description> {
        let keyspace = self.keyspace(name.keyspace.as_ref())?;
        let of_keyspace = functions(keyspace).chain(aggregates(keyspace));
        let found: Vec<_> = of_keyspace.filter(|element| is_named(*element, name.name.as_str())).collect();
        if found.is_empty() {
            return self.absent(kind, name.keyspace.as_ref(), &name.name);
        }
        Ok(self.elements(found))
    }

    /// The error for an element that the keyspace does not have.
    fn absent(&self, kind: &str, keyspace: Option<&Identifier>, name: &Identifier) -> Result<Description> {
        let keyspace = self.keyspace(keyspace)?;
        let name = name.as_str();
        Err(RequestError::invalid(format!("{kind} '{name}' not found in '{}'", keyspace.name)))
    }

    /// A keyspace, a table or an index, searched in this order.
    fn name(&self, qualified: &QualifiedName) -> Result<Description> {
        let name = qualified.name.as_str();
        if qualified.keyspace.is_none()
            && let Some(keyspace) = self.catalog.keyspaces.get(name)
        {
            return Ok(self.elements(keyspace_elements(keyspace)));
        }
        let keyspace = match &qualified.keyspace {
            Some(keyspace) => self.keyspace_named(keyspace.as_str())?,
            None => self.keyspace_named(self.current.unwrap_or(name))?,
        };
        if let Some(view) = keyspace.tables.get(name).filter(|table| table.view.is_some()) {
            return Ok(self.elements([Element::Table(keyspace, view)]));
        }
        if keyspace.tables.contains_key(name) {
            return self.table(keyspace, name);
        }
        if keyspace.index(name).is_some() {
            return self.index(keyspace, name);
        }
        Err(RequestError::invalid(format!("'{name}' not found in keyspace '{}'", keyspace.name)))
    }

    /// The elements with their CREATE statements.
    fn elements(&self, elements: impl IntoIterator<Item = Element<'a>>) -> Description {
        let row = |element: Element<'_>| {
            let mut row: Vec<Value> = element.names().into_iter().map(Value::Text).collect();
            row.push(Value::Text(element.create_text(self.with_internals)));
            row
        };
        let mut columns = name_columns();
        columns.push(("create_statement", CqlType::Text));
        Description { columns, rows: elements.into_iter().map(row).collect() }
    }
}

/// The statements that create a table again, as a snapshot keeps them (Cassandra's `schema.cql`): the user types that the table uses, the
/// table with its id and its dropped columns, and its indexes. The statement of the keyspace stands before them in a comment.
pub fn snapshot_schema(keyspace: &Keyspace, table: &Table) -> String {
    let mut text = format!("-- {}\n", create_text::keyspace(keyspace));
    for user_type in types_of_table(keyspace, table) {
        text += &create_text::user_type(user_type);
        text += "\n";
    }
    text += &create_text::table_statements(keyspace, table, true);
    text += "\n";
    for index in &table.indexes {
        text += &create_text::index(table, index);
        text += "\n";
    }
    text
}

/// The statement that creates a view again, with its options.
pub fn view_statement(keyspace: &Keyspace, view: &Table) -> String {
    create_text::table_statements(keyspace, view, false)
}

/// The elements without their CREATE statements.
fn names<'a>(elements: impl IntoIterator<Item = Element<'a>>) -> Description {
    let rows = elements.into_iter().map(|element| element.names().into_iter().map(Value::Text).collect());
    Description { columns: name_columns(), rows: rows.collect() }
}

fn name_columns() -> Vec<(&'static str, CqlType)> {
    ["keyspace_name", "type", "name"].into_iter().map(|name| (name, CqlType::Text)).collect()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A keyspace and all its elements.
fn keyspace_elements(keyspace: &Keyspace) -> Vec<Element<'_>> {
    let mut elements = vec![Element::Keyspace(keyspace)];
    elements.extend(types_in_order(keyspace).into_iter().map(Element::Type));
    elements.extend(functions(keyspace).chain(aggregates(keyspace)));
    let tables = keyspace.tables.values().filter(|table| table.view.is_none() && !table.is_hidden());
    elements.extend(tables.flat_map(|table| table_elements(keyspace, table)));
    joins_last(elements)
}

/// Views stand behind the tables that they join.
fn joins_last(mut elements: Vec<Element<'_>>) -> Vec<Element<'_>> {
    let joins = |element: &Element<'_>| match element {
        Element::Table(_, table) => table.view.as_ref().is_some_and(|view| view.joined.is_some()),
        _ => false,
    };
    elements.sort_by_key(joins);
    elements
}

/// A table, its indexes and its views.
fn table_elements<'a>(keyspace: &'a Keyspace, table: &'a Table) -> impl Iterator<Item = Element<'a>> {
    let indexes = table.indexes.iter().map(move |index| Element::Index(table, index));
    let views = keyspace.views_of(table).map(move |view| Element::Table(keyspace, view));
    std::iter::once(Element::Table(keyspace, table)).chain(indexes).chain(views)
}

fn functions(keyspace: &Keyspace) -> impl Iterator<Item = Element<'_>> {
    keyspace.user_functions.functions().iter().map(|function| Element::Function(function))
}

fn aggregates(keyspace: &Keyspace) -> impl Iterator<Item = Element<'_>> {
    keyspace.user_functions.aggregates().iter().map(|aggregate| Element::Aggregate(aggregate))
}

fn tables(keyspace: &Keyspace) -> impl Iterator<Item = Element<'_>> {
    let tables = keyspace.tables.values().filter(|table| table.view.is_none() && !table.is_hidden());
    tables.map(move |table| Element::Table(keyspace, table))
}
