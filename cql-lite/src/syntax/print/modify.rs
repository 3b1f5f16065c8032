//! INSERT, UPDATE, DELETE and BATCH.

use std::fmt::{self, Display, Formatter};

use super::{
    select::write_where,
    write::{If, List, Quoted, write_separated},
};
use crate::syntax::ast::{
    Assignment, AssignmentOperation, Batch, BatchKind, Condition, ConditionSubject, ConditionTest, Delete,
    Deletion, Expression, IfClause, Insert, InsertSource, JsonDefault, JsonValue, Update, Using,
};

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {} {}", self.table, self.source)?;
        f.write_str(If(self.if_not_exists, " IF NOT EXISTS").text())?;
        self.using.fmt(f)
    }
}

impl Display for InsertSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InsertSource::Values { columns, values } => {
                write!(f, "({}) VALUES ({})", List(columns), List(values))
            }
            InsertSource::Json { value, default } => {
                match value {
                    JsonValue::Text(text) => write!(f, "JSON {}", Quoted(text))?,
                    JsonValue::Marker(marker) => write!(f, "JSON {marker}")?,
                }
                f.write_str(If(*default == JsonDefault::Unset, " DEFAULT UNSET").text())
            }
        }
    }
}

/// Prints ` USING …`, if not empty, with the bind markers in their order.
impl Display for Using {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<(&str, &Expression)> = Vec::with_capacity(3);
        parts.extend(self.timestamp.as_ref().map(|timestamp| ("TIMESTAMP", timestamp)));
        parts.extend(self.time_to_live.as_ref().map(|time_to_live| ("TTL", time_to_live)));
        parts.extend(self.timeout.as_ref().map(|timeout| ("TIMEOUT", timeout)));
        parts.sort_by_key(|(_, value)| match value {
            Expression::Marker(marker) => marker.index,
            _ => 0,
        });
        for (at, (name, value)) in parts.into_iter().enumerate() {
            write!(f, " {} {name} {value}", if at == 0 { "USING" } else { "AND" })?;
        }
        Ok(())
    }
}

impl Display for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "UPDATE {}{} SET {}", self.table, self.using, List(&self.assignments))?;
        write_where(f, &self.relations)?;
        write_condition(f, self.condition.as_ref())
    }
}

impl Display for Assignment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let column = &self.column;
        match &self.operation {
            AssignmentOperation::Set(value) => write!(f, "{column} = {value}"),
            AssignmentOperation::Add(value) => write!(f, "{column} = {column} + {value}"),
            AssignmentOperation::Prepend(value) => write!(f, "{column} = {value} + {column}"),
            AssignmentOperation::Subtract(value) => write!(f, "{column} = {column} - {value}"),
            AssignmentOperation::SetElement { key, value } => write!(f, "{column}[{key}] = {value}"),
            AssignmentOperation::SetField { field, value } => write!(f, "{column}.{field} = {value}"),
        }
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DELETE ")?;
        if !self.deletions.is_empty() {
            write!(f, "{} ", List(&self.deletions))?;
        }
        write!(f, "FROM {}{}", self.table, self.using)?;
        write_where(f, &self.relations)?;
        write_condition(f, self.condition.as_ref())
    }
}

impl Display for Deletion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Deletion::Column(column) => column.fmt(f),
            Deletion::Element { column, key } => write!(f, "{column}[{key}]"),
            Deletion::Field { column, field } => write!(f, "{column}.{field}"),
        }
    }
}

fn write_condition(f: &mut Formatter<'_>, condition: Option<&IfClause>) -> fmt::Result {
    match condition {
        None => Ok(()),
        Some(IfClause::Exists) => f.write_str(" IF EXISTS"),
        Some(IfClause::Conditions(conditions)) => {
            f.write_str(" IF ")?;
            write_separated(f, " AND ", conditions, |f, condition| condition.fmt(f))
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.test)
    }
}

impl Display for ConditionSubject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConditionSubject::Column(column) => column.fmt(f),
            ConditionSubject::Element { column, key } => write!(f, "{column}[{key}]"),
            ConditionSubject::Field { column, field } => write!(f, "{column}.{field}"),
        }
    }
}

impl Display for ConditionTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConditionTest::Compare(operator, value) => write!(f, "{} {value}", operator.symbol()),
            ConditionTest::In(values) => write!(f, "IN {values}"),
            ConditionTest::Contains { key, value } => write!(f, "CONTAINS {}{value}", If(*key, "KEY ")),
        }
    }
}

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        })?;
        self.using.fmt(f)?;
        for statement in &self.statements {
            write!(f, " {statement};")?;
        }
        f.write_str(" APPLY BATCH")
    }
}
