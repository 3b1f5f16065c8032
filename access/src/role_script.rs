//! The statements that make roles again: a copy of them that a person can read and a shell can run.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::Identifier;
use helenus_roles::{Resource, Role, Roles};

/// The statements that make all roles again in a cluster that has none of them, with their passwords (as hashes), memberships, permissions
/// and identities. Roles that are there already stay as they are and get what was granted. What roles are granted on has to exist before,
/// and so have the groups of networks, which no statement makes.
pub fn script(roles: &Roles) -> Vec<String> {
    let created = roles.iter().map(|(name, role)| create(name, role));
    let members = roles.iter().flat_map(|(name, role)| {
        role.member_of.iter().map(move |of| format!("GRANT {} TO {}", word(of), word(name)))
    });
    let grants = roles.iter().flat_map(|(name, role)| {
        role.grants.iter().flat_map(move |(resource, permissions)| {
            let (on, to) = (on(resource), word(name));
            permissions.iter().map(move |permission| format!("GRANT {} ON {on} TO {to}", permission.name()))
        })
    });
    let identities = roles.identities().map(|(identity, role)| {
        format!("ADD IDENTITY IF NOT EXISTS {} TO ROLE {}", string(identity), string(role))
    });
    created.chain(members).chain(grants).chain(identities).collect()
}

fn create(name: &str, role: &Role) -> String {
    let mut options =
        vec![format!("SUPERUSER = {}", role.is_superuser), format!("LOGIN = {}", role.can_login)];
    options
        .extend(role.salted_hash.as_ref().map(|hash| format!("HASHED PASSWORD = {}", string(hash.as_str()))));
    options.extend(role.datacenters.as_ref().map(|names| format!("ACCESS TO DATACENTERS {}", set(names))));
    options.extend(role.cidr_groups.as_ref().map(|names| format!("ACCESS FROM CIDRS {}", set(names))));
    format!("CREATE ROLE IF NOT EXISTS {} WITH {}", word(name), options.join(" AND "))
}

fn on(resource: &Resource) -> String {
    match resource {
        Resource::AllKeyspaces => "ALL KEYSPACES".to_owned(),
        Resource::Keyspace(keyspace) => format!("KEYSPACE {}", word(keyspace)),
        Resource::AllTables(keyspace) => format!("ALL TABLES IN KEYSPACE {}", word(keyspace)),
        Resource::Table { keyspace, table } => format!("TABLE {}.{}", word(keyspace), word(table)),
        Resource::AllFunctions => "ALL FUNCTIONS".to_owned(),
        Resource::FunctionsOf(keyspace) => format!("ALL FUNCTIONS IN KEYSPACE {}", word(keyspace)),
        Resource::Function(function) => {
            let (keyspace, name) = (word(&function.keyspace), word(&function.name));
            format!("FUNCTION {keyspace}.{name}({})", function.argument_types.join(", "))
        }
        Resource::AllRoles => "ALL ROLES".to_owned(),
        Resource::Role(role) => format!("ROLE {}", word(role)),
        Resource::AllMbeans => "ALL MBEANS".to_owned(),
        Resource::Mbean(name) => format!("MBEANS {}", string(name)),
    }
}

/// A name, in quotes where it needs them.
fn word(name: &str) -> String {
    Identifier::quoted(name).to_string()
}

fn string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn set(names: &BTreeSet<String>) -> String {
    let names: Vec<String> = names.iter().map(|name| string(name)).collect();
    format!("{{{}}}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use cql_lite::syntax::parse;
    use helenus_query::schema::test_catalog::catalog_of;
    use helenus_roles::{
        Access, Alteration, FunctionSignature, Network, Permission, PermissionSet, RoleChange, SaltedHash,
    };

    use super::*;
    use crate::{RolesContext, Subject, plan_change};

    const SCHEMA: &[&str] = &[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE KEYSPACE \"Shop\" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (k int PRIMARY KEY)",
        "CREATE TABLE shop.\"select\" (k int PRIMARY KEY)",
        "CREATE FUNCTION \"Shop\".total (a list<int>, b text) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 1'",
    ];
    const HASH: &str = "$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG";

    fn changed(roles: &Roles, change: &RoleChange) -> Roles {
        roles.changed(roles.version() + 1, change).unwrap().unwrap_or_else(|| roles.clone())
    }

    fn create(role: &str, properties: Alteration) -> RoleChange {
        RoleChange::Create { role: role.to_owned(), properties, if_not_exists: false, creator: None }
    }

    /// A cluster with a superuser only.
    fn empty() -> Roles {
        let properties =
            Alteration { is_superuser: Some(true), can_login: Some(true), ..Alteration::default() };
        let network: Network = "10.0.0.0/8".parse().unwrap();
        let group =
            RoleChange::SetCidrGroup { group: "office".to_owned(), networks: BTreeSet::from([network]) };
        changed(&changed(&Roles::default(), &create("keeper", properties)), &group)
    }

    fn filled() -> Roles {
        let only = |name: &str| Some(Access::Only(BTreeSet::from([name.to_owned()])));
        let named = Alteration {
            is_superuser: Some(false),
            can_login: Some(true),
            salted_hash: Some(SaltedHash::new(HASH)),
            datacenters: only("north's"),
            cidr_groups: only("office"),
        };
        let function = FunctionSignature {
            keyspace: "Shop".to_owned(),
            name: "total".to_owned(),
            argument_types: vec!["list<int>".to_owned(), "text".to_owned()],
        };
        let resources = [
            Resource::AllKeyspaces,
            Resource::Keyspace("Shop".to_owned()),
            Resource::AllTables("shop".to_owned()),
            Resource::table("shop", "select"),
            Resource::AllFunctions,
            Resource::FunctionsOf("shop".to_owned()),
            Resource::Function(function),
            Resource::AllRoles,
            Resource::Role("it's \"Anna\"".to_owned()),
            Resource::AllMbeans,
            Resource::Mbean("org.example:type=*".to_owned()),
        ];
        let grants = resources.into_iter().map(|resource| RoleChange::Grant {
            permissions: resource.applicable(),
            resource,
            grantee: "readers".to_owned(),
        });
        let (anna, readers) = ("it's \"Anna\"".to_owned(), "readers".to_owned());
        let changes = [
            create(&anna, named),
            create(&readers, Alteration::default()),
            RoleChange::GrantRole { role: readers.clone(), grantee: anna.clone() },
            RoleChange::Grant {
                permissions: PermissionSet::of(&[Permission::Modify]),
                resource: Resource::table("shop", "orders"),
                grantee: anna.clone(),
            },
            RoleChange::AddIdentity {
                identity: "spiffe://o'k/anna".to_owned(),
                role: anna,
                if_not_exists: false,
            },
        ];
        changes.into_iter().chain(grants).fold(empty(), |roles, change| changed(&roles, &change))
    }

    #[test]
    fn the_statements_make_the_same_roles_again() {
        let wanted = filled();
        let (catalog, data_centers) = (catalog_of(SCHEMA), BTreeSet::from(["north's".to_owned()]));
        let mut made = empty();
        for statement in script(&wanted) {
            let parsed = parse(&statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
            let subject = Subject { roles: &made, user: Some("keeper"), is_enforced: true };
            let context = RolesContext {
                subject,
                catalog: &catalog.catalog,
                keyspace: None,
                data_centers: &data_centers,
                has_logins: true,
                data_center: Some("north's"),
                restricts_networks: true,
            };
            let planned =
                plan_change(&parsed, &context).unwrap_or_else(|error| panic!("{statement}: {error}"));
            let Some(planned) = planned else { continue };
            made = changed(&made, &planned.change);
        }
        // Who makes roles gets permissions on them.
        let others = |roles: &Roles| -> Vec<String> {
            script(roles).into_iter().filter(|statement| !statement.ends_with(" TO keeper")).collect()
        };
        assert_eq!(others(&made), others(&wanted));
    }
}
