//! What permissions are granted on, with Cassandra's names and texts.
//!
//! A resource has a parent, up to a root. What is granted on a resource holds for everything below it.

use std::fmt;

use cql_lite::syntax::ast::Permission;
use serde::{Deserialize, Serialize};

use crate::permission::PermissionSet;

/// A function or an aggregate of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionSignature {
    pub keyspace: String,
    pub name: String,
    /// The types of the arguments as CQL has them.
    pub argument_types: Vec<String>,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    AllKeyspaces,
    Keyspace(String),
    /// All tables of a keyspace.
    AllTables(String),
    Table {
        keyspace: String,
        table: String,
    },
    /// One column of a table. Cassandra has no such resource.
    Column {
        keyspace: String,
        table: String,
        column: String,
    },
    AllFunctions,
    /// All functions of a keyspace.
    FunctionsOf(String),
    Function(FunctionSignature),
    AllRoles,
    Role(String),
    /// Cassandra's interfaces for managing a node. Helenus has none of them: what is granted on them is kept and has no effect.
    AllMbeans,
    /// One by its name, or several by a pattern.
    Mbean(String),
}

const DATA: PermissionSet = PermissionSet::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Unmask,
    Permission::SelectMasked,
]);
const COLUMN: PermissionSet = PermissionSet::of(&[Permission::Select, Permission::Modify]);
const CREATE: PermissionSet = PermissionSet::of(&[Permission::Create]);
const FUNCTION: PermissionSet =
    PermissionSet::of(&[Permission::Alter, Permission::Drop, Permission::Authorize, Permission::Execute]);
const ROLE: PermissionSet =
    PermissionSet::of(&[Permission::Alter, Permission::Drop, Permission::Authorize, Permission::Describe]);
const MBEAN: PermissionSet = PermissionSet::of(&[
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Describe,
    Permission::Execute,
]);

impl Resource {
    pub fn table(keyspace: &str, table: &str) -> Self {
        Self::Table { keyspace: keyspace.to_owned(), table: table.to_owned() }
    }

    pub fn column(keyspace: &str, table: &str, column: &str) -> Self {
        Self::Column { keyspace: keyspace.to_owned(), table: table.to_owned(), column: column.to_owned() }
    }

    /// The resource that contains this one; `None`: it is a root.
    pub fn parent(&self) -> Option<Self> {
        match self {
            Self::AllKeyspaces | Self::AllFunctions | Self::AllRoles | Self::AllMbeans => None,
            Self::Keyspace(_) => Some(Self::AllKeyspaces),
            Self::AllTables(keyspace) => Some(Self::Keyspace(keyspace.clone())),
            Self::Table { keyspace, .. } => Some(Self::AllTables(keyspace.clone())),
            Self::Column { keyspace, table, .. } => Some(Self::table(keyspace, table)),
            Self::FunctionsOf(_) => Some(Self::AllFunctions),
            Self::Function(function) => Some(Self::FunctionsOf(function.keyspace.clone())),
            Self::Role(_) => Some(Self::AllRoles),
            Self::Mbean(_) => Some(Self::AllMbeans),
        }
    }

    /// The permissions that can be granted on it.
    pub fn applicable(&self) -> PermissionSet {
        match self {
            Self::AllKeyspaces | Self::Keyspace(_) | Self::AllTables(_) => DATA.union(CREATE),
            Self::Table { .. } => DATA,
            Self::Column { .. } => COLUMN,
            Self::AllFunctions | Self::FunctionsOf(_) => FUNCTION.union(CREATE),
            Self::Function(_) => FUNCTION,
            Self::AllRoles => ROLE.union(CREATE),
            Self::Role(_) => ROLE,
            Self::AllMbeans | Self::Mbean(_) => MBEAN,
        }
    }

    /// The keyspace that it is or that it belongs to.
    pub fn keyspace(&self) -> Option<&str> {
        match self {
            Self::Keyspace(keyspace) | Self::AllTables(keyspace) | Self::FunctionsOf(keyspace) => {
                Some(keyspace)
            }
            Self::Table { keyspace, .. } | Self::Column { keyspace, .. } => Some(keyspace),
            Self::Function(function) => Some(&function.keyspace),
            Self::AllKeyspaces
            | Self::AllFunctions
            | Self::AllRoles
            | Self::Role(_)
            | Self::AllMbeans
            | Self::Mbean(_) => None,
        }
    }

    /// The name in Cassandra's tables, such as `data/shop/orders`. `class_name` makes Cassandra's name of a type of CQL: the types of a
    /// function's arguments have these there.
    pub fn name(&self, class_name: impl Fn(&str) -> String) -> String {
        match self {
            Self::AllKeyspaces => "data".to_owned(),
            Self::Keyspace(keyspace) => format!("data/{keyspace}"),
            Self::AllTables(keyspace) => format!("data/{keyspace}/*"),
            Self::Table { keyspace, table } => format!("data/{keyspace}/{table}"),
            Self::Column { keyspace, table, column } => format!("data/{keyspace}/{table}/{column}"),
            Self::AllFunctions => "functions".to_owned(),
            Self::FunctionsOf(keyspace) => format!("functions/{keyspace}"),
            Self::Function(FunctionSignature { keyspace, name, argument_types }) => {
                let classes: Vec<String> = argument_types.iter().map(|name| class_name(name)).collect();
                format!("functions/{keyspace}/{name}[{}]", classes.join("^"))
            }
            Self::AllRoles => "roles".to_owned(),
            Self::Role(role) => format!("roles/{role}"),
            Self::AllMbeans => "mbean".to_owned(),
            Self::Mbean(name) => format!("mbean/{name}"),
        }
    }
}

/// Cassandra's text, such as `<table shop.orders>`.
impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllKeyspaces => write!(formatter, "<all keyspaces>"),
            Self::Keyspace(keyspace) => write!(formatter, "<keyspace {keyspace}>"),
            Self::AllTables(keyspace) => write!(formatter, "<all tables in {keyspace}>"),
            Self::Table { keyspace, table } => write!(formatter, "<table {keyspace}.{table}>"),
            Self::Column { keyspace, table, column } => {
                write!(formatter, "<column {keyspace}.{table}.{column}>")
            }
            Self::AllFunctions => write!(formatter, "<all functions>"),
            Self::FunctionsOf(keyspace) => write!(formatter, "<all functions in {keyspace}>"),
            Self::Function(FunctionSignature { keyspace, name, argument_types }) => {
                write!(formatter, "<function {keyspace}.{name}({})>", argument_types.join(", "))
            }
            Self::AllRoles => write!(formatter, "<all roles>"),
            Self::Role(role) => write!(formatter, "<role {role}>"),
            Self::AllMbeans => write!(formatter, "<all mbeans>"),
            Self::Mbean(name) => write!(formatter, "<mbean {name}>"),
        }
    }
}
