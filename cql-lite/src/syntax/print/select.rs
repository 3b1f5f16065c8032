//! SELECT and relations.

use std::fmt::{self, Display, Formatter, Write};

use super::write::{If, List, write_separated};
use crate::syntax::ast::{
    Direction, Expression, InValues, OrderBy, Relation, Select, SelectClause, SelectedItem, Subject,
};

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (json, distinct) = (If(self.json, "JSON "), If(self.distinct, "DISTINCT "));
        write!(f, "SELECT {json}{distinct}{} FROM {}", self.clause, self.from)?;
        write_where(f, &self.relations)?;
        write_group_by(f, &self.group_by)?;
        if !self.order_by.is_empty() {
            write!(f, " ORDER BY {}", List(&self.order_by))?;
        }
        if let Some(limit) = &self.per_partition_limit {
            write!(f, " PER PARTITION LIMIT {limit}")?;
        }
        if let Some(limit) = &self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        f.write_str(If(self.allow_filtering, " ALLOW FILTERING").text())?;
        f.write_str(If(self.bypass_cache, " BYPASS CACHE").text())?;
        if let Some(timeout) = &self.timeout {
            write!(f, " USING TIMEOUT {timeout}")?;
        }
        if let Some(freshness) = &self.freshness {
            write!(f, " WITH FRESHNESS {freshness}")?;
        }
        Ok(())
    }
}

/// Writes ` WHERE …`, if there are relations.
pub(super) fn write_where(f: &mut Formatter<'_>, relations: &[Relation]) -> fmt::Result {
    if relations.is_empty() {
        return Ok(());
    }
    f.write_str(" WHERE ")?;
    write_separated(f, " AND ", relations, |f, relation| relation.fmt(f))
}

/// Writes ` GROUP BY …`, if there are expressions.
pub(super) fn write_group_by(f: &mut Formatter<'_>, group_by: &[Expression]) -> fmt::Result {
    if group_by.is_empty() {
        return Ok(());
    }
    write!(f, " GROUP BY {}", List(group_by))
}

impl Display for SelectClause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SelectClause::All => f.write_char('*'),
            SelectClause::Items(items) => List(items).fmt(f),
        }
    }
}

impl Display for SelectedItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {alias}"),
            None => Ok(()),
        }
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Column(column) => column.fmt(f),
            Subject::Columns(columns) => write!(f, "({})", List(columns)),
            Subject::Token(columns) => write!(f, "token({})", List(columns)),
            Subject::Element { column, key } => write!(f, "{column}[{key}]"),
        }
    }
}

impl Display for InValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InValues::Values(values) => write!(f, "({})", List(values)),
            InValues::Marker(marker) => marker.fmt(f),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Relation::Compare { subject, operator, value } => {
                write!(f, "{subject} {} {value}", operator.symbol())
            }
            Relation::Between { subject, from, to } => write!(f, "{subject} BETWEEN {from} AND {to}"),
            Relation::In { subject, negated, values } => {
                write!(f, "{subject} {}IN {values}", If(*negated, "NOT "))
            }
            Relation::Contains { column, key, negated, value } => {
                let (negated, key) = (If(*negated, "NOT "), If(*key, "KEY "));
                write!(f, "{column} {negated}CONTAINS {key}{value}")
            }
            Relation::Like { column, pattern } => write!(f, "{column} LIKE {pattern}"),
            Relation::IsNotNull { column } => write!(f, "{column} IS NOT NULL"),
            Relation::CustomIndex { index, value } => write!(f, "expr({index}, {value})"),
            Relation::Qualified { table, relation } => write!(f, "{table}.{relation}"),
        }
    }
}

impl Display for Direction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Ascending => "ASC",
            Direction::Descending => "DESC",
        })
    }
}

impl Display for OrderBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.column.fmt(f)?;
        if let Some(vector) = &self.nearest_to {
            write!(f, " ANN OF {vector}")?;
        }
        write!(f, " {}", self.direction)
    }
}
