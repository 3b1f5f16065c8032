//! What operators change of roles without logging in: the first superuser, which is also the way back after a lost password, and groups
//! of networks. Whoever may use the node's Unix socket may do so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use helenus_execution::shard::context::run_on;
use helenus_observe::AdminError;
use helenus_query::error::{RequestError, Result as RequestResult};
use helenus_roles::{Network, RoleChange, Roles};

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
        let made: LocalBoxFuture<'static, _> =
            Box::pin(async move { roles::make_superuser(&context, name, password, resets).await });
        made
    });
    outcome(made.await.map_err(|error| failed(&error))?)
}

/// Makes a group of networks, or gives it other networks.
pub(super) async fn update_cidr_group(
    admin: &NodeAdmin,
    group: String,
    networks: Vec<String>,
) -> Result<(), AdminError> {
    let networks =
        networks.iter().map(|network| network.parse::<Network>()).collect::<Result<BTreeSet<_>, _>>();
    let networks = networks.map_err(|error| AdminError::Failed(error.to_string()))?;
    change(admin, RoleChange::SetCidrGroup { group, networks }).await
}

/// Removes a group of networks.
pub(super) async fn drop_cidr_group(admin: &NodeAdmin, group: String) -> Result<(), AdminError> {
    change(admin, RoleChange::DropCidrGroup { group }).await
}

/// The networks of each group.
pub(super) async fn cidr_groups(admin: &NodeAdmin) -> Result<BTreeMap<String, Vec<String>>, AdminError> {
    let present = present(admin).await?;
    let texts = |networks: &BTreeSet<Network>| networks.iter().map(ToString::to_string).collect();
    Ok(present.cidr_groups().map(|(group, networks)| (group.to_owned(), texts(networks))).collect())
}

/// The statements that make all roles again.
pub(super) async fn statements(admin: &NodeAdmin) -> Result<Vec<String>, AdminError> {
    helenus_access::script(&*present(admin).await?).map_err(|error| AdminError::Failed(error.to_string()))
}

async fn present(admin: &NodeAdmin) -> Result<Arc<Roles>, AdminError> {
    let present = run_on(&admin.node.links[0], |context| {
        let present: LocalBoxFuture<'static, _> = Box::pin(std::future::ready(context.roles()));
        present
    });
    present.await.map_err(|error| failed(&error))
}

async fn change(admin: &NodeAdmin, change: RoleChange) -> Result<(), AdminError> {
    let changed = run_on(&admin.node.links[0], move |context| {
        let changed: LocalBoxFuture<'static, _> =
            Box::pin(async move { roles::apply(&context, change).await });
        changed
    });
    outcome(changed.await.map_err(|error| failed(&error))?)
}

fn outcome(outcome: RequestResult<()>) -> Result<(), AdminError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(RequestError::Invalid(refusal)) => Err(AdminError::Failed(refusal)),
        Err(error) => Err(failed(&error)),
    }
}
