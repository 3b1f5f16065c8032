//! Statements that define the schema.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    name::write_function_name,
    types::UserTypeName,
    write::{IF_EXISTS, IF_NOT_EXISTS, If, List, Quoted, write_separated},
};
use crate::syntax::ast::{
    AlterKeyspace, AlterTable, AlterTableOperation, AlterType, AlterTypeOperation, ColumnConstraint,
    ColumnDefinition, ColumnMask, CopyTable, CqlTypeName, CreateAggregate, CreateFunction, CreateIndex,
    CreateKeyspace, CreateTable, CreateTrigger, CreateType, DropFunction, DropIndex, DropKeyspace, DropTable,
    DropTrigger, DropType, Identifier, IndexTarget, Literal, PrimaryKey, Property, PropertyValue,
    TableOptions,
};

impl Display for Property {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)
    }
}

impl Display for PropertyValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PropertyValue::Literal(literal) => literal.fmt(f),
            PropertyValue::Map(entries) => write_property_map(f, entries),
        }
    }
}

pub(super) fn write_property_map(f: &mut Formatter<'_>, entries: &[(Literal, Literal)]) -> fmt::Result {
    f.write_char('{')?;
    write_separated(f, ", ", entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
    f.write_char('}')
}

/// Writes ` WITH …`, if there are properties.
pub(super) fn write_with(f: &mut Formatter<'_>, properties: &[Property]) -> fmt::Result {
    if properties.is_empty() {
        return Ok(());
    }
    f.write_str(" WITH ")?;
    write_separated(f, " AND ", properties, |f, property| property.fmt(f))
}

impl Display for CreateKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE KEYSPACE {}{}", If(self.if_not_exists, IF_NOT_EXISTS), self.keyspace)?;
        write_with(f, &self.properties)
    }
}

impl Display for AlterKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER KEYSPACE {}{}", If(self.if_exists, IF_EXISTS), self.keyspace)?;
        write_with(f, &self.properties)
    }
}

impl Display for DropKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP KEYSPACE {}{}", If(self.if_exists, IF_EXISTS), self.keyspace)
    }
}

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE TABLE {}{} (", If(self.if_not_exists, IF_NOT_EXISTS), self.table)?;
        List(&self.columns).fmt(f)?;
        f.write_str(If(!self.columns.is_empty() && !self.primary_keys.is_empty(), ", ").text())?;
        write!(f, "{}){}", List(&self.primary_keys), self.options)
    }
}

impl Display for CopyTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = If(self.if_not_exists, IF_NOT_EXISTS);
        write!(f, "CREATE TABLE {if_not_exists}{} LIKE {}", self.table, self.source)?;
        let mut separator = " WITH ";
        if self.with_indexes {
            write!(f, "{separator}INDEXES")?;
            separator = " AND ";
        }
        for property in &self.properties {
            write!(f, "{separator}{property}")?;
            separator = " AND ";
        }
        Ok(())
    }
}

impl Display for ColumnDefinition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.name, self.type_name, If(self.is_static, " STATIC"))?;
        f.write_str(If(self.is_not_null, " NOT NULL").text())?;
        if let Some(mask) = &self.mask {
            write!(f, " {mask}")?;
        }
        if self.constraints.is_empty() {
            return Ok(());
        }
        f.write_char(' ')?;
        write_check(f, &self.constraints)
    }
}

fn write_check(f: &mut Formatter<'_>, constraints: &[ColumnConstraint]) -> fmt::Result {
    f.write_str("CHECK ")?;
    write_separated(f, " AND ", constraints, |f, constraint| constraint.fmt(f))
}

impl Display for ColumnConstraint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ColumnConstraint::NotNull => f.write_str("NOT NULL"),
            ColumnConstraint::Value { column, comparison, term } => {
                write!(f, "{column} {} {term}", comparison.symbol())
            }
            ColumnConstraint::Function { name, arguments, relation } => {
                write!(f, "{name}({})", List(arguments))?;
                match relation {
                    Some((comparison, term)) => write!(f, " {} {term}", comparison.symbol()),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Display for ColumnMask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ColumnMask::Default => f.write_str("MASKED WITH DEFAULT"),
            ColumnMask::Function { name, arguments } => write!(f, "MASKED WITH {name}({})", List(arguments)),
        }
    }
}

impl Display for PrimaryKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &*self.partition {
            [column] => write!(f, "PRIMARY KEY ({column}")?,
            columns => write!(f, "PRIMARY KEY (({})", List(columns))?,
        }
        f.write_str(If(!self.clustering.is_empty(), ", ").text())?;
        write!(f, "{})", List(&self.clustering))
    }
}

/// Prints ` WITH …`, if not empty.
impl Display for TableOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = " WITH ";
        if self.compact_storage {
            write!(f, "{separator}COMPACT STORAGE")?;
            separator = " AND ";
        }
        if !self.clustering_order.is_empty() {
            write!(f, "{separator}CLUSTERING ORDER BY (")?;
            write_separated(f, ", ", &self.clustering_order, |f, (column, direction)| {
                write!(f, "{column} {direction}")
            })?;
            f.write_char(')')?;
            separator = " AND ";
        }
        for property in &self.properties {
            write!(f, "{separator}{property}")?;
            separator = " AND ";
        }
        Ok(())
    }
}

impl Display for AlterTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER TABLE {}{}", If(self.if_exists, IF_EXISTS), self.table)?;
        self.operation.fmt(f)
    }
}

impl Display for AlterTableOperation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AlterTableOperation::AddColumns { if_not_exists, columns } => {
                write!(f, " ADD {}({})", If(*if_not_exists, IF_NOT_EXISTS), List(columns))
            }
            AlterTableOperation::DropColumns { if_exists, columns, timestamp } => {
                write!(f, " DROP {}({})", If(*if_exists, IF_EXISTS), List(columns))?;
                match timestamp {
                    Some(timestamp) => write!(f, " USING TIMESTAMP {timestamp}"),
                    None => Ok(()),
                }
            }
            AlterTableOperation::RenameColumns { if_exists, renames } => {
                write!(f, " RENAME {}", If(*if_exists, IF_EXISTS))?;
                write_renames(f, renames)
            }
            AlterTableOperation::AlterColumnType { column, type_name } => {
                write!(f, " ALTER {column} TYPE {type_name}")
            }
            AlterTableOperation::AlterColumnMask { if_exists, column, mask } => {
                write!(f, " ALTER {}{column} ", If(*if_exists, IF_EXISTS))?;
                match mask {
                    Some(mask) => mask.fmt(f),
                    None => f.write_str("DROP MASKED"),
                }
            }
            AlterTableOperation::AlterColumnConstraints { if_exists, column, constraints } => {
                write!(f, " ALTER {}{column} ", If(*if_exists, IF_EXISTS))?;
                if constraints.is_empty() { f.write_str("DROP CHECK") } else { write_check(f, constraints) }
            }
            AlterTableOperation::DropCompactStorage => f.write_str(" DROP COMPACT STORAGE"),
            AlterTableOperation::SetProperties(properties) => write_with(f, properties),
        }
    }
}

fn write_renames(f: &mut Formatter<'_>, renames: &[(Identifier, Identifier)]) -> fmt::Result {
    write_separated(f, " AND ", renames, |f, (from, to)| write!(f, "{from} TO {to}"))
}

impl Display for DropTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TABLE {}{}", If(self.if_exists, IF_EXISTS), self.table)
    }
}

impl Display for CreateType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE TYPE {}{} (", If(self.if_not_exists, IF_NOT_EXISTS), UserTypeName(&self.name))?;
        write_names_and_types(f, &self.fields)?;
        f.write_char(')')
    }
}

fn write_names_and_types(f: &mut Formatter<'_>, items: &[(Identifier, CqlTypeName)]) -> fmt::Result {
    write_separated(f, ", ", items, |f, (name, type_name)| write!(f, "{name} {type_name}"))
}

impl Display for AlterType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER TYPE {}{} ", If(self.if_exists, IF_EXISTS), UserTypeName(&self.name))?;
        match &self.operation {
            AlterTypeOperation::AddField { if_not_exists, field, type_name } => {
                write!(f, "ADD {}{field} {type_name}", If(*if_not_exists, IF_NOT_EXISTS))
            }
            AlterTypeOperation::RenameFields { if_exists, renames } => {
                write!(f, "RENAME {}", If(*if_exists, IF_EXISTS))?;
                write_renames(f, renames)
            }
            AlterTypeOperation::AlterField { field, type_name } => {
                write!(f, "ALTER {field} TYPE {type_name}")
            }
        }
    }
}

impl Display for DropType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TYPE {}{}", If(self.if_exists, IF_EXISTS), UserTypeName(&self.name))
    }
}

impl Display for CreateIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (custom, if_not_exists) = (If(self.custom, "CUSTOM "), If(self.if_not_exists, IF_NOT_EXISTS));
        write!(f, "CREATE {custom}INDEX {if_not_exists}")?;
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "ON {} ({})", self.table, List(&self.targets))?;
        if let Some(class) = &self.class {
            write!(f, " USING {}", Quoted(class))?;
        }
        write_with(f, &self.properties)
    }
}

impl Display for IndexTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            IndexTarget::Simple(column) => column.fmt(f),
            IndexTarget::Values(column) => write!(f, "values({column})"),
            IndexTarget::Keys(column) => write!(f, "keys({column})"),
            IndexTarget::Entries(column) => write!(f, "entries({column})"),
            IndexTarget::Full(column) => write!(f, "full({column})"),
        }
    }
}

impl Display for DropIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP INDEX {}{}", If(self.if_exists, IF_EXISTS), self.name)
    }
}

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (or_replace, if_not_exists) =
            (If(self.or_replace, "OR REPLACE "), If(self.if_not_exists, IF_NOT_EXISTS));
        write!(f, "CREATE {or_replace}FUNCTION {if_not_exists}{}(", self.name)?;
        write_names_and_types(f, &self.arguments)?;
        let null = if self.called_on_null_input { "CALLED" } else { "RETURNS NULL" };
        write!(f, ") {null} ON NULL INPUT RETURNS {}", self.return_type)?;
        write!(f, " LANGUAGE {} AS {}", self.language, Quoted(&self.body))
    }
}

impl Display for CreateAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (or_replace, if_not_exists) =
            (If(self.or_replace, "OR REPLACE "), If(self.if_not_exists, IF_NOT_EXISTS));
        write!(f, "CREATE {or_replace}AGGREGATE {if_not_exists}{}", self.name)?;
        write!(f, "({}) SFUNC ", List(&self.argument_types))?;
        write_function_name(f, &self.state_function)?;
        write!(f, " STYPE {}", self.state_type)?;
        if let Some(function) = &self.final_function {
            f.write_str(" FINALFUNC ")?;
            write_function_name(f, function)?;
        }
        if let Some(condition) = &self.initial_condition {
            write!(f, " INITCOND {condition}")?;
        }
        Ok(())
    }
}

pub(super) fn write_drop_function(
    f: &mut Formatter<'_>,
    kind: &str,
    statement: &DropFunction,
) -> fmt::Result {
    write!(f, "DROP {kind} {}{}", If(statement.if_exists, IF_EXISTS), statement.name)?;
    match &statement.argument_types {
        Some(types) => write!(f, "({})", List(types)),
        None => Ok(()),
    }
}

impl Display for CreateTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = If(self.if_not_exists, IF_NOT_EXISTS);
        write!(
            f,
            "CREATE TRIGGER {if_not_exists}{} ON {} USING {}",
            self.name,
            self.table,
            Quoted(&self.class)
        )
    }
}

impl Display for DropTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TRIGGER {}{} ON {}", If(self.if_exists, IF_EXISTS), self.name, self.table)
    }
}
