//! Who may do what: roles, what is granted to them, and on what.
//!
//! All members agree on one [`Roles`], as they do on the schema: it is a part of the metadata log, and a [`RoleChange`] is one of its
//! commands. So no replication factor can lock anyone out, and what is revoked is revoked on every node that applies the log.

pub mod change;
mod decision;
mod document;
mod error;
mod network;
mod options;
pub mod password;
pub mod password_policy;
mod permission;
mod resource;
mod role;
mod roles;

pub use self::change::{Access, Alteration, RoleChange};
pub use self::document::RolesDocument;
pub use self::error::RoleError;
pub use self::network::{Network, NetworkError};
pub use self::options::RoleOptions;
pub use self::permission::PermissionSet;
pub use self::resource::{FunctionSignature, Resource};
pub use self::role::{Grants, Role, SaltedHash};
pub use self::roles::{Fate, Roles, RolesStep};
pub use cql_lite::syntax::ast::Permission;
