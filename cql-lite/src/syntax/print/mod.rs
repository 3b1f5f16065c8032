//! Prints the tree as CQL that parses to the same tree.
//!
//! Operators print without parentheses: the tree keeps written parentheses as tuples of one element.

mod describe;
mod explain;
mod expression;
mod modify;
mod name;
mod result_name;
mod roles;
mod schema;
mod select;
mod transaction;
mod types;
mod view;
mod write;

use std::fmt::{self, Display, Formatter};

use super::ast::{Modification, Statement};

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Use(keyspace) => write!(f, "USE {keyspace}"),
            Statement::Select(statement) => statement.fmt(f),
            Statement::Insert(statement) => statement.fmt(f),
            Statement::Update(statement) => statement.fmt(f),
            Statement::Delete(statement) => statement.fmt(f),
            Statement::Batch(statement) => statement.fmt(f),
            Statement::Transaction(statement) => statement.fmt(f),
            Statement::CreateKeyspace(statement) => statement.fmt(f),
            Statement::AlterKeyspace(statement) => statement.fmt(f),
            Statement::DropKeyspace(statement) => statement.fmt(f),
            Statement::CreateTable(statement) => statement.fmt(f),
            Statement::CopyTable(statement) => statement.fmt(f),
            Statement::AlterTable(statement) => statement.fmt(f),
            Statement::DropTable(statement) => statement.fmt(f),
            Statement::Truncate(statement) => write!(f, "TRUNCATE TABLE {}", statement.table),
            Statement::CreateType(statement) => statement.fmt(f),
            Statement::AlterType(statement) => statement.fmt(f),
            Statement::DropType(statement) => statement.fmt(f),
            Statement::CreateIndex(statement) => statement.fmt(f),
            Statement::DropIndex(statement) => statement.fmt(f),
            Statement::CreateView(statement) => statement.fmt(f),
            Statement::AlterView(statement) => statement.fmt(f),
            Statement::DropView(statement) => statement.fmt(f),
            Statement::CheckView(statement) => statement.fmt(f),
            Statement::CreateFunction(statement) => statement.fmt(f),
            Statement::DropFunction(statement) => schema::write_drop_function(f, "FUNCTION", statement),
            Statement::CreateAggregate(statement) => statement.fmt(f),
            Statement::DropAggregate(statement) => schema::write_drop_function(f, "AGGREGATE", statement),
            Statement::CreateTrigger(statement) => statement.fmt(f),
            Statement::DropTrigger(statement) => statement.fmt(f),
            Statement::CreateRole(statement) => statement.fmt(f),
            Statement::AlterRole(statement) => statement.fmt(f),
            Statement::DropRole(statement) => statement.fmt(f),
            Statement::GrantRole(statement) => statement.fmt(f),
            Statement::RevokeRole(statement) => statement.fmt(f),
            Statement::ListRoles(statement) => statement.fmt(f),
            Statement::ListUsers => f.write_str("LIST USERS"),
            Statement::ListSuperusers => f.write_str("LIST SUPERUSERS"),
            Statement::Grant(statement) => statement.fmt(f),
            Statement::Revoke(statement) => statement.fmt(f),
            Statement::ListPermissions(statement) => statement.fmt(f),
            Statement::AddIdentity(statement) => statement.fmt(f),
            Statement::DropIdentity(statement) => statement.fmt(f),
            Statement::Describe(statement) => statement.fmt(f),
            Statement::Explain(statement) => statement.fmt(f),
        }
    }
}

impl Display for Modification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Modification::Insert(statement) => statement.fmt(f),
            Modification::Update(statement) => statement.fmt(f),
            Modification::Delete(statement) => statement.fmt(f),
        }
    }
}
