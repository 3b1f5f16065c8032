//! Statements that define the schema, and TRUNCATE.

use super::{
    expression::{Expression, Literal},
    identifier::{FunctionName, Identifier, QualifiedName},
    select::{Comparison, Direction, Relation, SelectClause},
    types::CqlTypeName,
};

/// `name = value` of a WITH clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The name.
    pub name: Identifier,
    /// The value.
    pub value: PropertyValue,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant; an unquoted word is kept as a string. Never NULL.
    Literal(Literal),
    /// `{key: value, …}`. Never NULL inside; keys do not repeat.
    Map(Vec<(Literal, Literal)>),
}

/// `CREATE KEYSPACE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKeyspace {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The keyspace.
    pub keyspace: Identifier,
    /// `WITH …`; at least one.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterKeyspace {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The keyspace.
    pub keyspace: Identifier,
    /// `WITH …`; at least one.
    pub properties: Vec<Property>,
}

/// `DROP KEYSPACE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropKeyspace {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The keyspace.
    pub keyspace: Identifier,
}

/// `CREATE TABLE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTable {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The columns in the order written.
    pub columns: Vec<ColumnDefinition>,
    /// Every PRIMARY KEY, after a column or as an item. The parser accepts any number; the planner requires one.
    pub primary_keys: Vec<PrimaryKey>,
    /// `WITH …`
    pub options: TableOptions,
}

/// `CREATE TABLE … LIKE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTable {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The new table.
    pub table: QualifiedName,
    /// The table that it is like.
    pub source: QualifiedName,
    /// `WITH INDEXES`
    pub with_indexes: bool,
    /// The other parts of `WITH …`
    pub properties: Vec<Property>,
}

/// The definition of a column, also in ALTER TABLE … ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The column.
    pub name: Identifier,
    /// Its type.
    pub type_name: CqlTypeName,
    /// `STATIC`
    pub is_static: bool,
    /// `NOT NULL`
    pub is_not_null: bool,
    /// `MASKED WITH …`
    pub mask: Option<ColumnMask>,
    /// `CHECK …`
    pub constraints: Vec<ColumnConstraint>,
}

/// One constraint after `CHECK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnConstraint {
    /// `NOT NULL`
    NotNull,
    /// `column < 5`
    Value {
        /// The column.
        column: Identifier,
        /// The operator.
        comparison: Comparison,
        /// The right side.
        term: Literal,
    },
    /// `function`, `function(arguments)`, `function(arguments) < 5`
    Function {
        /// The function.
        name: Identifier,
        /// Its arguments.
        arguments: Vec<Literal>,
        /// What its value is compared with.
        relation: Option<(Comparison, Literal)>,
    },
}

/// `MASKED WITH …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnMask {
    /// `DEFAULT`
    Default,
    /// `function(arguments)`
    Function {
        /// The function.
        name: FunctionName,
        /// Its arguments after the column.
        arguments: Vec<Expression>,
    },
}

/// `PRIMARY KEY ((partition), clustering)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    /// The columns of the partition key; at least one.
    pub partition: Vec<Identifier>,
    /// The clustering columns.
    pub clustering: Vec<Identifier>,
}

/// The WITH clause of CREATE TABLE and CREATE MATERIALIZED VIEW.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// `CLUSTERING ORDER BY (…)`
    pub clustering_order: Vec<(Identifier, Direction)>,
    /// `COMPACT STORAGE`; never in a view.
    pub compact_storage: bool,
    /// The other properties.
    pub properties: Vec<Property>,
}

/// `ALTER TABLE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterTable {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The alteration.
    pub operation: AlterTableOperation,
}

/// The operation of an ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTableOperation {
    /// `ADD …`
    AddColumns {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The columns; at least one.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP …`
    DropColumns {
        /// `IF EXISTS`
        if_exists: bool,
        /// The columns; at least one.
        columns: Vec<Identifier>,
        /// `USING TIMESTAMP`, in microseconds since the epoch.
        timestamp: Option<i64>,
    },
    /// `RENAME a TO b AND …`
    RenameColumns {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names; at least one pair.
        renames: Vec<(Identifier, Identifier)>,
    },
    /// `ALTER column TYPE type`
    AlterColumnType {
        /// The column.
        column: Identifier,
        /// Its new type.
        type_name: CqlTypeName,
    },
    /// `ALTER column MASKED WITH …` (`Some`) and `ALTER column DROP MASKED` (`None`).
    AlterColumnMask {
        /// `IF EXISTS`
        if_exists: bool,
        /// The column.
        column: Identifier,
        /// The new mask.
        mask: Option<ColumnMask>,
    },
    /// `ALTER column CHECK …`, and `ALTER column DROP CHECK` without constraints.
    AlterColumnConstraints {
        /// `IF EXISTS`
        if_exists: bool,
        /// The column.
        column: Identifier,
        /// The new constraints.
        constraints: Vec<ColumnConstraint>,
    },
    /// `DROP COMPACT STORAGE`
    DropCompactStorage,
    /// `WITH …`; at least one.
    SetProperties(Vec<Property>),
}

/// `DROP TABLE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTable {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
}

/// `TRUNCATE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The table.
    pub table: QualifiedName,
}

/// `CREATE TYPE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateType {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// Its fields; at least one.
    pub fields: Vec<(Identifier, CqlTypeName)>,
}

/// `ALTER TYPE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterType {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// The alteration.
    pub operation: AlterTypeOperation,
}

/// The operation of an ALTER TYPE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTypeOperation {
    /// `ADD field type`
    AddField {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The field.
        field: Identifier,
        /// Its type.
        type_name: CqlTypeName,
    },
    /// `RENAME a TO b AND …`
    RenameFields {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names; at least one pair.
        renames: Vec<(Identifier, Identifier)>,
    },
    /// `ALTER field TYPE type`
    AlterField {
        /// The field.
        field: Identifier,
        /// Its new type.
        type_name: CqlTypeName,
    },
}

/// `DROP TYPE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropType {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
}

/// `CREATE [CUSTOM] INDEX …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndex {
    /// `CUSTOM`
    pub custom: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The index, if named; always without a keyspace.
    pub name: Option<Identifier>,
    /// The table.
    pub table: QualifiedName,
    /// The indexed columns; can be empty for a custom index.
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`
    pub class: Option<String>,
    /// `WITH …`
    pub properties: Vec<Property>,
}

/// The target of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexTarget {
    /// `column`
    Simple(Identifier),
    /// `VALUES(column)`
    Values(Identifier),
    /// `KEYS(column)`
    Keys(Identifier),
    /// `ENTRIES(column)`
    Entries(Identifier),
    /// `FULL(column)`
    Full(Identifier),
}

impl IndexTarget {
    /// The column.
    pub fn column(&self) -> &Identifier {
        match self {
            IndexTarget::Simple(column)
            | IndexTarget::Values(column)
            | IndexTarget::Keys(column)
            | IndexTarget::Entries(column)
            | IndexTarget::Full(column) => column,
        }
    }
}

/// `DROP INDEX …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIndex {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The index.
    pub name: QualifiedName,
}

/// What a view is called in CQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// `MATERIALIZED VIEW`
    Materialized,
    /// `PROJECTION`
    Projection,
}

impl ViewKind {
    /// Its name in messages, as the first words of a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            ViewKind::Materialized => "Materialized view",
            ViewKind::Projection => "Projection",
        }
    }
}

/// `JOIN table alias ON …`: the table in which columns are looked up by its whole primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewJoin {
    /// The table.
    pub table: QualifiedName,
    /// Another name of the table in this statement.
    pub alias: Option<Identifier>,
    /// The sides of the equalities, joined by AND, as they are written; at least one.
    pub on: Vec<(Expression, Expression)>,
}

/// `CREATE MATERIALIZED VIEW …` or `CREATE PROJECTION …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateView {
    /// What is created.
    pub kind: ViewKind,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// The selected expressions.
    pub clause: SelectClause,
    /// The base table.
    pub from: QualifiedName,
    /// Another name of the base table in this statement; only of a projection.
    pub alias: Option<Identifier>,
    /// `JOIN …`; only of a projection.
    pub join: Option<ViewJoin>,
    /// `WHERE …`
    pub relations: Vec<Relation>,
    /// `GROUP BY …`; only of a projection.
    pub group_by: Vec<Expression>,
    /// The primary key.
    pub primary_key: PrimaryKey,
    /// `WITH …`
    pub options: TableOptions,
}

/// `ALTER MATERIALIZED VIEW …` or `ALTER PROJECTION …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterView {
    /// What is altered.
    pub kind: ViewKind,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// `WITH …`; at least one.
    pub properties: Vec<Property>,
}

/// `DROP MATERIALIZED VIEW …` or `DROP PROJECTION …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropView {
    /// What is dropped.
    pub kind: ViewKind,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
}

/// `CHECK PROJECTION …`: compares a view with what it is computed of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// The view.
    pub name: QualifiedName,
    /// `REPAIR`: rows that differ are computed again.
    pub repair: bool,
}

/// `CREATE FUNCTION …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFunction {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The function.
    pub name: FunctionName,
    /// Names and types of the arguments.
    pub arguments: Vec<(Identifier, CqlTypeName)>,
    /// `CALLED ON NULL INPUT` instead of `RETURNS NULL ON NULL INPUT`.
    pub called_on_null_input: bool,
    /// `RETURNS`
    pub return_type: CqlTypeName,
    /// `LANGUAGE`, in lower case.
    pub language: Identifier,
    /// `AS`
    pub body: String,
}

/// `CREATE AGGREGATE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAggregate {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: FunctionName,
    /// Types of the arguments.
    pub argument_types: Vec<CqlTypeName>,
    /// `SFUNC`
    pub state_function: Identifier,
    /// `STYPE`
    pub state_type: CqlTypeName,
    /// `FINALFUNC`
    pub final_function: Option<Identifier>,
    /// `INITCOND`
    pub initial_condition: Option<Expression>,
}

/// `DROP FUNCTION …` and `DROP AGGREGATE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropFunction {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The function or aggregate.
    pub name: FunctionName,
    /// Types of the arguments, if written.
    pub argument_types: Option<Vec<CqlTypeName>>,
}

/// `CREATE TRIGGER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTrigger {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The trigger.
    pub name: Identifier,
    /// Its table.
    pub table: QualifiedName,
    /// `USING 'class'`
    pub class: String,
}

/// `DROP TRIGGER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTrigger {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The trigger.
    pub name: Identifier,
    /// Its table.
    pub table: QualifiedName,
}
