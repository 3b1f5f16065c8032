//! Whether a client that is logged in may still send requests: its role may have been dropped ([`super::dropped_roles`]), or locked, or bound
//! to other addresses. The texts are Cassandra's. Data centers are left to the authorisation of statements: some may be executed in any.
//!
//! The answer holds as long as the roles are the same and new enough, so that a request costs comparisons of numbers.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use helenus_config::{CidrAuthorizer, CidrAuthorizerMode, Config};
use helenus_query::error::{RequestError, Result};
use helenus_roles::Roles;

use crate::cluster::confirmation;
use helenus_execution::shard::context::ShardContext;

/// Remembers on a connection that its client may send requests.
#[derive(Debug, Default)]
pub struct Admission {
    /// The version of the roles that this holds for.
    version: Cell<Option<u64>>,
    /// The role that its client logged in as is gone.
    has_ended: Cell<bool>,
}

impl Admission {
    /// Refuses all requests from now on: the role that the client logged in as is gone.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.version.set(None);
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Refuses the requests of a client whose role may not send them. `role`: `None` for clients that need not log in. `now`: when the
    /// request began, monotonic time. Returns whether roles have changed since it was asked last.
    #[inline]
    pub fn check(
        &self,
        context: &ShardContext,
        role: Option<&str>,
        peer: IpAddr,
        now: Duration,
    ) -> Result<bool> {
        let Some(role) = role else { return Ok(false) };
        confirmation::check_at(context, now)?;
        let roles = context.roles_view();
        if self.version.get() == Some(roles.version()) {
            return Ok(false);
        }
        if self.has_ended() {
            return Err(not_logged_in());
        }
        check(&roles, &context.node.config, role, peer)?;
        self.version.set(Some(roles.version()));
        Ok(true)
    }
}

fn not_logged_in() -> RequestError {
    RequestError::Unauthorized("You have not logged in".to_owned())
}

/// Checks a role and the address of its client.
#[cold]
fn check(roles: &Roles, config: &Config, name: &str, peer: IpAddr) -> Result<()> {
    let unauthorized = |message: String| Err(RequestError::Unauthorized(message));
    let Some(role) = roles.role(name) else { return Err(not_logged_in()) };
    if !role.can_login {
        return unauthorized(format!("{name} is not permitted to log in"));
    }
    if config.cidr_authorizer == CidrAuthorizer::CassandraCIDRAuthorizer
        && (config.cidr_checks_for_superusers || !roles.is_superuser(name))
        && let Some(allowed) = &role.cidr_groups
        && !roles.groups_of(peer).any(|group| allowed.contains(group))
    {
        if config.cidr_authorizer_mode == CidrAuthorizerMode::Enforce {
            return unauthorized(format!("You do not have access from this IP {peer}"));
        }
        tracing::warn!(role = name, %peer, "a role came from an address that it may not come from");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use helenus_roles::{Access, Alteration, RoleChange};

    use super::*;

    fn roles(properties: Alteration) -> Roles {
        let networks = BTreeSet::from(["10.0.0.0/8".parse().unwrap()]);
        let changes = [
            RoleChange::SetCidrGroup { group: "office".to_owned(), networks },
            RoleChange::Create { role: "ann".to_owned(), properties, if_not_exists: false, creator: None },
        ];
        let mut roles = Roles::default();
        for (index, change) in changes.iter().enumerate() {
            roles = roles.changed(1 + index as u64, change).unwrap().unwrap();
        }
        roles
    }

    fn allowed() -> Alteration {
        Alteration { can_login: Some(true), ..Alteration::default() }
    }

    fn config() -> Config {
        Config {
            cidr_authorizer: CidrAuthorizer::CassandraCIDRAuthorizer,
            cidr_authorizer_mode: CidrAuthorizerMode::Enforce,
            ..Config::default()
        }
    }

    /// The text of the refusal; empty: it is none.
    fn refusal(roles: &Roles, config: &Config, peer: &str) -> String {
        check(roles, config, "ann", peer.parse().unwrap())
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    fn only(names: &[&str]) -> Access {
        Access::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_role_that_is_gone_or_locked_is_refused() {
        assert_eq!(refusal(&Roles::default(), &config(), "10.0.0.1"), "You have not logged in");
        assert_eq!(refusal(&roles(allowed()), &config(), "10.0.0.1"), "");
        let locked = Alteration { can_login: Some(false), ..Alteration::default() };
        assert_eq!(refusal(&roles(locked), &config(), "10.0.0.1"), "ann is not permitted to log in");
    }

    #[test]
    fn a_role_is_bound_to_its_addresses() {
        let bound = roles(Alteration { cidr_groups: Some(only(&["office"])), ..allowed() });
        assert_eq!(refusal(&bound, &config(), "10.9.9.9"), "");
        let text = "You do not have access from this IP 11.0.0.1";
        assert_eq!(refusal(&bound, &config(), "11.0.0.1"), text);
        let monitored = Config { cidr_authorizer_mode: CidrAuthorizerMode::Monitor, ..config() };
        assert_eq!(refusal(&bound, &monitored, "11.0.0.1"), "");
        let superuser =
            Alteration { is_superuser: Some(true), cidr_groups: Some(only(&["office"])), ..allowed() };
        assert_eq!(refusal(&roles(superuser.clone()), &config(), "11.0.0.1"), text);
        let unchecked = Config { cidr_checks_for_superusers: false, ..config() };
        assert_eq!(refusal(&roles(superuser), &unchecked, "11.0.0.1"), "");
    }
}
