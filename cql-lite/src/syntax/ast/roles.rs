//! Roles, users and permissions.
//!
//! The name of a role is an [`Identifier`]. A name in single quotes is case-sensitive, like one in double quotes.

use super::{
    expression::Literal,
    identifier::{FunctionName, Identifier, QualifiedName},
    types::CqlTypeName,
};

/// The keyword for a role. The two differ in defaults and in syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleSpelling {
    /// `ROLE`
    Role,
    /// `USER`: LOGIN by default. The name is a word or a string in single quotes.
    User,
}

/// One option of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleOption {
    /// `PASSWORD = '…'`
    Password(String),
    /// `HASHED PASSWORD = '…'`
    HashedPassword(String),
    /// `GENERATED PASSWORD`: the node makes one and answers with it.
    GeneratedPassword,
    /// `OPTIONS = {…}`
    Options(Vec<(Literal, Literal)>),
    /// `SUPERUSER = true`
    Superuser(bool),
    /// `LOGIN = true`
    Login(bool),
    /// `ACCESS TO ALL DATACENTERS` (`None`) or `ACCESS TO DATACENTERS {…}`.
    Datacenters(Option<Vec<String>>),
    /// `ACCESS FROM ALL CIDRS` (`None`) or `ACCESS FROM CIDRS {…}`.
    Cidrs(Option<Vec<String>>),
}

/// `CREATE ROLE …`, `CREATE USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRole {
    /// `ROLE` or `USER`
    pub spelling: RoleSpelling,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The role.
    pub role: Identifier,
    /// The options in the order written; with `USER` only a password and superuser.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE …`, `ALTER USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterRole {
    /// `ROLE` or `USER`
    pub spelling: RoleSpelling,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The role.
    pub role: Identifier,
    /// The options in the order written.
    pub options: Vec<RoleOption>,
}

/// `DROP ROLE …`, `DROP USER …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRole {
    /// `ROLE` or `USER`
    pub spelling: RoleSpelling,
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The role.
    pub role: Identifier,
}

/// `GRANT role TO grantee`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRole {
    /// The role that is granted.
    pub role: Identifier,
    /// The role that receives it.
    pub grantee: Identifier,
}

/// `REVOKE role FROM grantee`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeRole {
    /// The role that is revoked.
    pub role: Identifier,
    /// The role that loses it.
    pub grantee: Identifier,
}

/// `LIST ROLES …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRoles {
    /// `OF role`
    pub of: Option<Identifier>,
    /// `NORECURSIVE` was not written.
    pub recursive: bool,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    /// `CREATE`
    Create,
    /// `ALTER`
    Alter,
    /// `DROP`
    Drop,
    /// `SELECT`
    Select,
    /// `MODIFY`
    Modify,
    /// `AUTHORIZE`
    Authorize,
    /// `DESCRIBE`
    Describe,
    /// `EXECUTE`
    Execute,
    /// `UNMASK`
    Unmask,
    /// `SELECT_MASKED`
    SelectMasked,
}

impl Permission {
    /// The permission as written.
    pub const fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }
}

/// The permissions of a LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionSet {
    /// `ALL [PERMISSIONS]`
    All,
    /// A list; at least one.
    Some(Vec<Permission>),
}

/// A permission of a GRANT or REVOKE: `SELECT`, or `SELECT (a, b)` for single columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedPermission {
    /// The permission.
    pub permission: Permission,
    /// The columns; none: it is for the resource as a whole.
    pub columns: Vec<Identifier>,
}

impl GrantedPermission {
    /// Whether a permission may be for single columns.
    pub const fn takes_columns(permission: Permission) -> bool {
        matches!(permission, Permission::Select | Permission::Modify)
    }
}

/// The permissions of a GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantedPermissions {
    /// `ALL [PERMISSIONS]`
    All,
    /// A list; at least one. Only with a table are there columns.
    Some(Vec<GrantedPermission>),
}

/// The resource of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `ALL KEYSPACES`
    AllKeyspaces,
    /// `KEYSPACE name`
    Keyspace(Identifier),
    /// `ALL TABLES IN KEYSPACE name`
    AllTables(Identifier),
    /// `[TABLE] name`
    Table(QualifiedName),
    /// `ALL ROLES`
    AllRoles,
    /// `ROLE name`
    Role(Identifier),
    /// `ALL FUNCTIONS`
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE name`
    AllFunctionsIn(Identifier),
    /// `FUNCTION name(types)`
    Function {
        /// The function.
        name: FunctionName,
        /// Types of its arguments.
        argument_types: Vec<CqlTypeName>,
    },
    /// `ALL MBEANS`
    AllMbeans,
    /// `MBEAN 'name'`
    Mbean(String),
    /// `MBEANS 'pattern'`
    Mbeans(String),
}

/// `GRANT permissions ON resource TO grantee`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The permissions.
    pub permissions: GrantedPermissions,
    /// The resource.
    pub resource: Resource,
    /// The role that receives them.
    pub grantee: Identifier,
}

/// `REVOKE permissions ON resource FROM grantee`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// The permissions.
    pub permissions: GrantedPermissions,
    /// The resource.
    pub resource: Resource,
    /// The role that loses them.
    pub grantee: Identifier,
}

/// `LIST permissions …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPermissions {
    /// The permissions.
    pub permissions: PermissionSet,
    /// `ON resource`
    pub resource: Option<Resource>,
    /// `OF role`
    pub of: Option<Identifier>,
    /// `NORECURSIVE` was not written.
    pub recursive: bool,
}

/// `ADD IDENTITY …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddIdentity {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The identity.
    pub identity: String,
    /// The role it is for.
    pub role: String,
}

/// `DROP IDENTITY …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIdentity {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The identity.
    pub identity: String,
}

impl RoleOption {
    /// The option's name in lower case, for error messages.
    pub const fn name(&self) -> &'static str {
        match self {
            RoleOption::Password(_) => "password",
            RoleOption::HashedPassword(_) => "hashed password",
            RoleOption::GeneratedPassword => "generated password",
            RoleOption::Options(_) => "options",
            RoleOption::Superuser(_) => "superuser",
            RoleOption::Login(_) => "login",
            RoleOption::Datacenters(_) => "access to datacenters",
            RoleOption::Cidrs(_) => "access from cidrs",
        }
    }
}
