//! Materialized views and projections.

use std::fmt::{self, Display, Formatter};

use super::{
    schema::write_with,
    select::{write_group_by, write_where},
    write::{IF_EXISTS, IF_NOT_EXISTS, If, write_separated},
};
use crate::syntax::ast::{AlterView, CheckView, CreateView, DropView, Identifier, ViewJoin, ViewKind};

impl Display for ViewKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViewKind::Materialized => "MATERIALIZED VIEW",
            ViewKind::Projection => "PROJECTION",
        })
    }
}

/// Writes ` AS alias`, if there is one.
fn write_alias(f: &mut Formatter<'_>, alias: Option<&Identifier>) -> fmt::Result {
    alias.map_or(Ok(()), |alias| write!(f, " AS {alias}"))
}

impl Display for CreateView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE {} {}{}", self.kind, If(self.if_not_exists, IF_NOT_EXISTS), self.name)?;
        write!(f, " AS SELECT {} FROM {}", self.clause, self.from)?;
        write_alias(f, self.alias.as_ref())?;
        if let Some(join) = &self.join {
            write!(f, " {join}")?;
        }
        write_where(f, &self.relations)?;
        write_group_by(f, &self.group_by)?;
        write!(f, " {}{}", self.primary_key, self.options)
    }
}

impl Display for ViewJoin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "JOIN {}", self.table)?;
        write_alias(f, self.alias.as_ref())?;
        f.write_str(" ON ")?;
        write_separated(f, " AND ", &self.on, |f, (left, right)| write!(f, "{left} = {right}"))
    }
}

impl Display for AlterView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER {} {}{}", self.kind, If(self.if_exists, IF_EXISTS), self.name)?;
        write_with(f, &self.properties)
    }
}

impl Display for DropView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP {} {}{}", self.kind, If(self.if_exists, IF_EXISTS), self.name)
    }
}

impl Display for CheckView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CHECK PROJECTION {}{}", self.name, If(self.repair, " REPAIR"))
    }
}
