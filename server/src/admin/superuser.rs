//! The first superuser, made by whoever may use the node's Unix socket. Also the way back after a lost password.

use helenus_observe::AdminError;

use super::NodeAdmin;

/// Makes a role that may log in and do everything, with this password. Without `resets` only while there is no such role.
pub(super) async fn create_superuser(
    _admin: &NodeAdmin,
    _name: String,
    _password: String,
    _resets: bool,
) -> Result<(), AdminError> {
    Err(AdminError::Failed("this node has no roles: a superuser cannot be made".to_owned()))
}
