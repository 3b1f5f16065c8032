//! DESCRIBE.

use std::fmt::{self, Display, Formatter};

use super::{
    types::UserTypeName,
    write::{If, write_quoted},
};
use crate::syntax::{
    ast::{Describe, DescribeTarget, QualifiedName},
    keyword::Keyword,
};

impl Display for Describe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DESCRIBE ")?;
        match &self.target {
            DescribeTarget::Cluster => f.write_str("CLUSTER")?,
            DescribeTarget::Schema { full } => write!(f, "{}SCHEMA", If(*full, "FULL "))?,
            DescribeTarget::Keyspaces => f.write_str("KEYSPACES")?,
            DescribeTarget::Keyspace { only, name } => {
                write!(f, "{}KEYSPACE", If(*only, "ONLY "))?;
                if let Some(name) = name {
                    write!(f, " {name}")?;
                }
            }
            DescribeTarget::Tables => f.write_str("TABLES")?,
            DescribeTarget::Table(name) => write!(f, "TABLE {name}")?,
            DescribeTarget::Index(name) => write!(f, "INDEX {name}")?,
            DescribeTarget::View { kind, name } => write!(f, "{kind} {name}")?,
            DescribeTarget::Types => f.write_str("TYPES")?,
            DescribeTarget::Type(name) => write!(f, "TYPE {}", UserTypeName(name))?,
            DescribeTarget::Functions => f.write_str("FUNCTIONS")?,
            DescribeTarget::Function(name) => write!(f, "FUNCTION {name}")?,
            DescribeTarget::Aggregates => f.write_str("AGGREGATES")?,
            DescribeTarget::Aggregate(name) => write!(f, "AGGREGATE {name}")?,
            DescribeTarget::Name(QualifiedName { keyspace: None, name })
                if Keyword::find(name.as_str()).is_some() =>
            {
                write_quoted(f, name.as_str())?;
            }
            DescribeTarget::Name(name) => name.fmt(f)?,
        }
        f.write_str(If(self.with_internals, " WITH INTERNALS").text())
    }
}
