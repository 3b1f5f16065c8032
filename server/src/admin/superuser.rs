//! The first superuser, made by whoever may use the node's Unix socket. Also the way back after a lost password.

use helenus_execution::shard::context::run_on;
use helenus_observe::AdminError;
use helenus_query::error::RequestError;

use super::{NodeAdmin, failed};
use crate::cluster::roles;

/// Makes a role that may log in and do everything, with this password. Without `resets` only while there is no such role.
pub(super) async fn create_superuser(
    admin: &NodeAdmin,
    name: String,
    password: String,
    resets: bool,
) -> Result<(), AdminError> {
    if name.is_empty() || password.is_empty() {
        return Err(AdminError::Failed("a superuser needs a name and a password".to_owned()));
    }
    let made = run_on(&admin.node.links[0], move |context| {
        Box::pin(async move { roles::make_superuser(&context, name, password, resets).await })
    });
    match made.await.map_err(|error| failed(&error))? {
        Ok(()) => Ok(()),
        Err(RequestError::Invalid(refusal)) => Err(AdminError::Failed(refusal)),
        Err(error) => Err(failed(&error)),
    }
}
