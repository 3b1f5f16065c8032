//! Statements about roles: decided on the newest roles that this node knows, put into the metadata log, and acknowledged when every live
//! member has applied the change, or has had ten seconds to. So what is revoked is revoked on all of them, but for those that are cut off.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::syntax::ast;
use cql_lite::types::codec;
use helenus_access::{
    Listed, NewPassword, PlannedChange, RolesContext, Subject, authorize, generated_password, list,
    plan_change,
};
use helenus_config::{Authorizer, CidrAuthorizer, NetworkAuthorizer};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::select::ResultPage;
use helenus_query::schema::system_keyspaces::SYSTEM_AUTH;
use helenus_query::statement::Prepared;
use helenus_ring::metadata::Command;
use helenus_roles::password_policy::PolicyError;
use helenus_roles::{RoleChange, SaltedHash};

use crate::cluster;
use crate::cluster::agreed_change::{self, AGREEMENT_PATIENCE};
use helenus_execution::coordinator::Outcome;
use helenus_execution::shard::context::ShardContext;
use helenus_passwords::pool::{HashingPool, PoolFull};
use helenus_tls::source::Source;

/// Time to wait for the newest roles before a statement is refused or found to have no effect.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(2);

/// Executes a statement about roles for the role of a client; `None`: it is anonymous.
pub async fn execute(
    context: Rc<ShardContext>,
    statement: Arc<Prepared<ast::Statement>>,
    user: Option<Rc<str>>,
) -> Result<Outcome> {
    let user = user.map(|user| user.to_string());
    context.run_on(0, move |context| Box::pin(execute_here(context, statement, user))).await?
}

async fn execute_here(
    context: Rc<ShardContext>,
    statement: Arc<Prepared<ast::Statement>>,
    user: Option<String>,
) -> Result<Outcome> {
    let mut decided = decide(&context, &statement, user.as_deref());
    if !matches!(decided, Ok(Decided::Rows(_) | Decided::Change(_))) {
        // Nothing would be proposed, so the log cannot confirm that these are the newest roles.
        let caught_up = cluster::catch_up_with_leader(&context, CATCH_UP_DEADLINE).await;
        decided = decide(&context, &statement, user.as_deref());
        // A refusal promises nothing. That what was asked for is there already does.
        if let Ok(Decided::Nothing(_)) = decided {
            caught_up?;
            let version = cluster::applied_version(&context);
            cluster::wait_applied_everywhere(&context, version, AGREEMENT_PATIENCE).await;
        }
    }
    match decided? {
        Decided::Rows(rows) => Ok(rows),
        Decided::Nothing(warnings) if warnings.is_empty() => Ok(Outcome::Void),
        Decided::Nothing(warnings) => Ok(Outcome::Warned(warnings)),
        Decided::Change(planned) => carry_out(&context, planned, user.as_deref()).await,
    }
}

/// What a statement comes to.
enum Decided {
    Rows(Outcome),
    /// What was asked for is there already; with warnings for the client.
    Nothing(Vec<String>),
    Change(PlannedChange),
}

fn decide(
    context: &ShardContext,
    statement: &Prepared<ast::Statement>,
    user: Option<&str>,
) -> Result<Decided> {
    let (roles, catalog) = (context.roles(), context.catalog());
    let config = &context.node.config;
    let data_centers: BTreeSet<String> = context.cluster_view().topology.data_centers().into_keys().collect();
    let roles_context = RolesContext {
        subject: Subject {
            roles: &roles,
            user,
            is_enforced: config.authorizer == Authorizer::CassandraAuthorizer,
        },
        catalog: &catalog,
        keyspace: statement.keyspace.as_deref(),
        data_centers: &data_centers,
        has_logins: config.authenticator.requires_login(),
        data_center: (config.network_authorizer == NetworkAuthorizer::CassandraNetworkAuthorizer)
            .then_some(config.data_center.as_str()),
        restricts_networks: config.cidr_authorizer == CidrAuthorizer::CassandraCIDRAuthorizer,
    };
    authorize(&statement.plan, &roles_context)?;
    if let Some(planned) = plan_change(&statement.plan, &roles_context)? {
        // The log decides. A change that it would refuse now fails here, before a password is hashed.
        let changed = roles.changed(roles.version(), &planned.change);
        let changed = changed.map_err(|error| RequestError::invalid(error.to_string()))?;
        return Ok(match changed {
            Some(_) => Decided::Change(planned),
            // With a password the hash is another one each time.
            None if planned.password.is_some() && is_alteration(&planned.change) => Decided::Change(planned),
            None => Decided::Nothing(planned.warnings),
        });
    }
    Ok(match list(&statement.plan, &roles_context)? {
        Some(listed) => Decided::Rows(rows(listed)),
        None => Decided::Rows(Outcome::Void),
    })
}

fn is_alteration(change: &RoleChange) -> bool {
    matches!(change, RoleChange::Alter { .. })
}

fn rows(listed: Listed) -> Outcome {
    let mut page = ResultPage { row_count: listed.rows.len(), ..ResultPage::default() };
    for value in listed.rows.iter().flatten() {
        codec::write_field(value.as_deref(), &mut page.rows);
    }
    let (keyspace, table) = (SYSTEM_AUTH.to_owned(), listed.table.to_owned());
    Outcome::OwnRows { keyspace, table, columns: listed.columns, page }
}

/// Sets the password that a change has, and carries the change out.
async fn carry_out(
    context: &Rc<ShardContext>,
    planned: PlannedChange,
    user: Option<&str>,
) -> Result<Outcome> {
    let PlannedChange { mut change, password, mut warnings } = planned;
    let mut generated = None;
    if let RoleChange::Create { role, properties, .. } | RoleChange::Alter { role, properties, .. } =
        &mut change
        && let Some(password) = password
    {
        let rules = &context.node.password_rules;
        let (password, is_generated) = match password {
            NewPassword::Given(password) => (password, false),
            NewPassword::Generated => (rules.generate().map_err(|error| of_policy(&error))?, true),
        };
        warnings
            .extend(rules.check(&password, context.is_superuser(user)).map_err(|error| of_policy(&error))?);
        let salted_hash = hash(context, &password).await?;
        properties.salted_hash = Some(salted_hash.clone());
        generated = is_generated.then(|| (role.clone(), salted_hash, password));
    }
    apply(context, change).await?;
    let Some((role, salted_hash, password)) = generated else {
        return Ok(if warnings.is_empty() { Outcome::Void } else { Outcome::Warned(warnings) });
    };
    // With IF NOT EXISTS another one may have made the role meanwhile, with another password.
    let has_it = context.roles_view().role(&role).is_some_and(|role| role.salted_hash == Some(salted_hash));
    Ok(if has_it { rows(generated_password(&password)) } else { Outcome::Void })
}

fn of_policy(error: &PolicyError) -> RequestError {
    match error {
        PolicyError::Failed(_) => RequestError::Server(error.to_string()),
        PolicyError::Refused(_) | PolicyError::NoGenerator | PolicyError::NoneFound => {
            RequestError::Invalid(error.to_string())
        }
    }
}

/// Hashes a new password, beside those of logins.
async fn hash(context: &ShardContext, password: &str) -> Result<SaltedHash> {
    let source = Source::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let full = |_| RequestError::Overloaded(PoolFull.to_string());
    let hashed = HashingPool::of(context).hash(source, password).map_err(full)?;
    let hashed = hashed.await.map_err(|_| RequestError::Overloaded(PoolFull.to_string()))?;
    hashed.map(SaltedHash::new).map_err(|error| RequestError::Server(error.to_string()))
}

/// Makes a role a superuser that can log in with a password. Unless `resets`, there must be no other one. Call on the first shard.
pub async fn make_superuser(
    context: &Rc<ShardContext>,
    role: String,
    password: String,
    resets: bool,
) -> Result<()> {
    context.node.password_rules.check(&password, true).map_err(|error| of_policy(&error))?;
    let salted_hash = hash(context, &password).await?;
    apply(context, RoleChange::SetSuperuser { role, salted_hash, resets }).await
}

/// Puts a change into the metadata log and waits until the live members have applied it.
pub async fn apply(context: &Rc<ShardContext>, change: RoleChange) -> Result<()> {
    let id = context.random_uuid();
    agreed_change::carry_out(context, Command::ChangeRoles { id, change }).await
}
