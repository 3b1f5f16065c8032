//! The abstract syntax tree of CQL (the grammar of Cassandra 5.0).
//!
//! The tree represents the text: names are not resolved, types are not checked, literals keep their source text. Every
//! node prints as CQL (`Display`, in `syntax::print`) that parses to an equal node.
//!
//! * [`Statement`] has one variant for each kind of statement.
//! * [`Expression`] is shared by all clauses.
//! * Bind markers are numbered from 0 in the order of the text.

mod describe;
mod explain;
mod expression;
mod identifier;
mod modify;
mod roles;
mod schema;
mod select;
mod transaction;
mod types;

pub use self::{
    describe::{Describe, DescribeTarget},
    explain::Explain,
    expression::{
        ArithmeticOperator, BindMarker, Expression, Literal, ReferencePart, RowReference, WriteMetadata,
    },
    identifier::{FunctionName, Identifier, QualifiedName},
    modify::{
        Assignment, AssignmentOperation, Batch, BatchKind, Condition, ConditionSubject, ConditionTest,
        Delete, Deletion, IfClause, Insert, InsertSource, JsonDefault, JsonValue, Modification, Update,
        Using,
    },
    roles::{
        AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, Grant, GrantRole, GrantedPermission,
        GrantedPermissions, ListPermissions, ListRoles, Permission, PermissionSet, Resource, Revoke,
        RevokeRole, RoleOption, RoleSpelling,
    },
    schema::{
        AlterKeyspace, AlterTable, AlterTableOperation, AlterType, AlterTypeOperation, AlterView, CheckView,
        ColumnConstraint, ColumnDefinition, ColumnMask, CopyTable, CreateAggregate, CreateFunction,
        CreateIndex, CreateKeyspace, CreateTable, CreateTrigger, CreateType, CreateView, DropFunction,
        DropIndex, DropKeyspace, DropTable, DropTrigger, DropType, DropView, IndexTarget, PrimaryKey,
        Property, PropertyValue, TableOptions, Truncate, ViewJoin, ViewKind,
    },
    select::{
        Comparison, Direction, InValues, OrderBy, Relation, Select, SelectClause, SelectedItem, Subject,
    },
    transaction::{NamedRow, Place, Returning, Transaction, TransactionCondition},
    types::{CqlTypeName, NativeType},
};

/// One CQL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `USE keyspace`
    Use(Identifier),
    /// `SELECT …`
    Select(Select),
    /// `INSERT INTO …`
    Insert(Insert),
    /// `UPDATE …`
    Update(Update),
    /// `DELETE …`
    Delete(Delete),
    /// `BEGIN BATCH … APPLY BATCH`
    Batch(Batch),
    /// `BEGIN TRANSACTION … COMMIT TRANSACTION`
    Transaction(Transaction),
    /// `CREATE KEYSPACE …`
    CreateKeyspace(CreateKeyspace),
    /// `ALTER KEYSPACE …`
    AlterKeyspace(AlterKeyspace),
    /// `DROP KEYSPACE …`
    DropKeyspace(DropKeyspace),
    /// `CREATE TABLE …`
    CreateTable(CreateTable),
    /// `CREATE TABLE … LIKE …`
    CopyTable(CopyTable),
    /// `ALTER TABLE …`
    AlterTable(AlterTable),
    /// `DROP TABLE …`
    DropTable(DropTable),
    /// `TRUNCATE …`
    Truncate(Truncate),
    /// `CREATE TYPE …`
    CreateType(CreateType),
    /// `ALTER TYPE …`
    AlterType(AlterType),
    /// `DROP TYPE …`
    DropType(DropType),
    /// `CREATE [CUSTOM] INDEX …`
    CreateIndex(CreateIndex),
    /// `DROP INDEX …`
    DropIndex(DropIndex),
    /// `CREATE MATERIALIZED VIEW …` or `CREATE PROJECTION …`
    CreateView(CreateView),
    /// `ALTER MATERIALIZED VIEW …` or `ALTER PROJECTION …`
    AlterView(AlterView),
    /// `DROP MATERIALIZED VIEW …` or `DROP PROJECTION …`
    DropView(DropView),
    /// `CHECK PROJECTION …`
    CheckView(CheckView),
    /// `CREATE FUNCTION …`
    CreateFunction(CreateFunction),
    /// `DROP FUNCTION …`
    DropFunction(DropFunction),
    /// `CREATE AGGREGATE …`
    CreateAggregate(CreateAggregate),
    /// `DROP AGGREGATE …`
    DropAggregate(DropFunction),
    /// `CREATE TRIGGER …`
    CreateTrigger(CreateTrigger),
    /// `DROP TRIGGER …`
    DropTrigger(DropTrigger),
    /// `CREATE ROLE …` and `CREATE USER …`
    CreateRole(CreateRole),
    /// `ALTER ROLE …` and `ALTER USER …`
    AlterRole(AlterRole),
    /// `DROP ROLE …` and `DROP USER …`
    DropRole(DropRole),
    /// `GRANT role TO role`
    GrantRole(GrantRole),
    /// `REVOKE role FROM role`
    RevokeRole(RevokeRole),
    /// `LIST ROLES …`
    ListRoles(ListRoles),
    /// `LIST USERS`
    ListUsers,
    /// `LIST SUPERUSERS`
    ListSuperusers,
    /// `GRANT permission ON resource TO role`
    Grant(Grant),
    /// `REVOKE permission ON resource FROM role`
    Revoke(Revoke),
    /// `LIST permission …`
    ListPermissions(ListPermissions),
    /// `ADD IDENTITY …`
    AddIdentity(AddIdentity),
    /// `DROP IDENTITY …`
    DropIdentity(DropIdentity),
    /// `DESCRIBE …`
    Describe(Describe),
    /// `EXPLAIN …`
    Explain(Explain),
}
