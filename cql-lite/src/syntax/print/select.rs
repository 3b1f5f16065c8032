//! SELECT, selectors and relations.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    term::write_negation,
    write::{If, List, write_quoted, write_separated},
};
use crate::syntax::ast::{
    Direction, InValues, Literal, OrderBy, Relation, Select, SelectClause, SelectedItem, Selector, Subject,
    WriteMetadata,
};

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (json, distinct) = (If(self.json, "JSON "), If(self.distinct, "DISTINCT "));
        write!(f, "SELECT {json}{distinct}{} FROM {}", self.clause, self.from)?;
        write_where(f, &self.relations)?;
        if !self.group_by.is_empty() {
            write!(f, " GROUP BY {}", List(&self.group_by))?;
        }
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
        if let Some(timeout) = &self.timeout {
            write!(f, " USING TIMEOUT {timeout}")?;
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
        self.selector.fmt(f)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {alias}"),
            None => Ok(()),
        }
    }
}

impl WriteMetadata {
    /// The function's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            WriteMetadata::Writetime => "writetime",
            WriteMetadata::MaxWritetime => "maxwritetime",
            WriteMetadata::Ttl => "ttl",
        }
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            // After SELECT they would be read as keywords.
            Selector::Column(name) if matches!(name.as_str(), "json" | "distinct" | "as") => {
                write_quoted(f, name.as_str())
            }
            Selector::Column(name) => name.fmt(f),
            Selector::Literal(literal) => literal.fmt(f),
            Selector::Marker(marker) => marker.fmt(f),
            Selector::CountRows => f.write_str("count(*)"),
            Selector::WriteMetadata { kind, target } => write!(f, "{}({target})", kind.name()),
            Selector::Cast { selector, target } => write!(f, "CAST({selector} AS {target})"),
            Selector::Function { name, arguments } => write!(f, "{name}({})", List(arguments)),
            Selector::Field { selector, field } => {
                // A point would become part of the number.
                let blank = If(matches!(**selector, Selector::Literal(Literal::Integer(_))), " ");
                write!(f, "{selector}{blank}.{field}")
            }
            Selector::Element { selector, key } => write!(f, "{selector}[{key}]"),
            Selector::Slice { selector, from, to } => {
                write!(f, "{selector}[")?;
                if let Some(from) = from {
                    from.fmt(f)?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    to.fmt(f)?;
                }
                f.write_char(']')
            }
            Selector::TypeHint { type_name, selector } => write!(f, "({type_name}){selector}"),
            Selector::Arithmetic { left, operator, right } => {
                write!(f, "{left} {} {right}", operator.symbol())
            }
            Selector::Negation(selector) => write_negation(f, selector),
            Selector::List(elements) => write!(f, "[{}]", List(elements)),
            Selector::Set(elements) => write!(f, "{{{}}}", List(elements)),
            Selector::MapOrUserType(entries) => {
                f.write_char('{')?;
                write_separated(f, ", ", entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_char('}')
            }
            Selector::Tuple(elements) => write!(f, "({})", List(elements)),
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
            InValues::Terms(terms) => write!(f, "({})", List(terms)),
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
