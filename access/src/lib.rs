//! Authorisation: what each statement demands, whether a role has it, and the statements that change or list roles.
//!
//! Pure and synchronous: everything is decided on a [`helenus_roles::Roles`] and a catalog. Order and texts of refusals are Cassandra 5.0's.

pub mod auth_tables;
mod context;
mod demand;
mod demands;
mod listing;
mod resources;
mod role_script;
mod role_statements;
mod schema_demands;
mod subject;
mod view_demands;

pub use self::context::RolesContext;
pub use self::demand::Demand;
pub use self::demands::demands;
pub use self::listing::{Listed, generated_password, list};
pub use self::resources::{exists, fate};
pub use self::role_script::script;
pub use self::role_statements::{NewPassword, PlannedChange, authorize, plan_change};
pub use self::schema_demands::{created_resources, schema_demands};
pub use self::subject::{Subject, check_data_center};
