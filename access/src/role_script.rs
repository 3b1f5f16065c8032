//! The statements that make roles again: a copy of them that a person can read and a shell can run.

use std::collections::BTreeSet;

use cql_lite::syntax::SyntaxError;
use cql_lite::syntax::ast::{
    AddIdentity, CreateRole, Grant, GrantRole, Identifier, Literal, RoleOption, RoleSpelling,
};
use helenus_roles::{Role, Roles};

use crate::resources::named;

/// The statements that make all roles again in a cluster that has none of them, with their passwords (as hashes), memberships, permissions
/// and identities. Roles that are there already stay as they are and get what was granted. What roles are granted on has to exist before,
/// and so have the groups of networks, which no statement makes. An error: the type of an argument of a function is not CQL's.
pub fn script(roles: &Roles) -> Result<Vec<String>, SyntaxError> {
    let mut statements: Vec<String> =
        roles.iter().map(|(name, role)| create(name, role).to_string()).collect();
    for (name, role) in roles.iter() {
        let grantee = || Identifier::quoted(name);
        statements.extend(
            role.member_of.iter().map(|of| {
                GrantRole { role: Identifier::quoted(of.as_str()), grantee: grantee() }.to_string()
            }),
        );
    }
    for (name, role) in roles.iter() {
        for (resource, permissions) in &role.grants {
            let (permissions, resource) = named(resource, *permissions)?;
            let grant = Grant { permissions, resource, grantee: Identifier::quoted(name) };
            statements.push(grant.to_string());
        }
    }
    statements.extend(roles.identities().map(|(identity, role)| {
        AddIdentity { if_not_exists: true, identity: identity.to_owned(), role: role.to_owned() }.to_string()
    }));
    Ok(statements)
}

fn create(name: &str, role: &Role) -> CreateRole {
    let mut options = vec![RoleOption::Superuser(role.is_superuser), RoleOption::Login(role.can_login)];
    options
        .extend(role.salted_hash.as_ref().map(|hash| RoleOption::HashedPassword(hash.as_str().to_owned())));
    let listed = |names: &BTreeSet<String>| Some(names.iter().cloned().collect());
    options.extend(role.datacenters.as_ref().map(|names| RoleOption::Datacenters(listed(names))));
    options.extend(role.cidr_groups.as_ref().map(|names| RoleOption::Cidrs(listed(names))));
    if !role.options.is_empty() {
        let literal = |text: String| Literal::String(text);
        let entries = role.options.to_map().into_iter();
        let entries = entries.map(|(name, value)| (literal(name.to_owned()), literal(value)));
        options.push(RoleOption::Options(entries.collect()));
    }
    CreateRole { spelling: RoleSpelling::Role, if_not_exists: true, role: Identifier::quoted(name), options }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cql_lite::syntax::parse;
    use helenus_query::schema::test_catalog::catalog_of;
    use helenus_roles::{
        Access, Alteration, FunctionSignature, Network, Permission, PermissionSet, Resource, RoleChange,
        RoleOptions, SaltedHash,
    };

    use super::*;
    use crate::{RolesContext, Subject, plan_change};

    const SCHEMA: &[&str] = &[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE KEYSPACE \"Shop\" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (k int PRIMARY KEY)",
        "CREATE TABLE shop.\"select\" (k int PRIMARY KEY, \"Total \"\"net\"\"\" int)",
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
            options: Some(RoleOptions {
                shares: Some(300),
                requests_per_second_max: Some(0),
                max_charge: Some(9),
            }),
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
            Resource::column("shop", "select", "Total \"net\""),
            Resource::AllFunctions,
            Resource::FunctionsOf("shop".to_owned()),
            Resource::Function(function),
            Resource::AllRoles,
            Resource::Role("it's \"Anna\"".to_owned()),
            Resource::AllMbeans,
            Resource::Mbean("org.example:type=*".to_owned()),
        ];
        let grants = resources.map(|resource| (resource.clone(), resource.applicable()));
        let granted = RoleChange::Grant { grants: grants.into(), grantee: "readers".to_owned() };
        let (anna, readers) = ("it's \"Anna\"".to_owned(), "readers".to_owned());
        let changes = [
            create(&anna, named),
            create(&readers, Alteration::default()),
            RoleChange::GrantRole { role: readers.clone(), grantee: anna.clone() },
            RoleChange::Grant {
                grants: BTreeMap::from([(
                    Resource::table("shop", "orders"),
                    PermissionSet::of(&[Permission::Modify]),
                )]),
                grantee: anna.clone(),
            },
            RoleChange::AddIdentity {
                identity: "spiffe://o'k/anna".to_owned(),
                role: anna,
                if_not_exists: false,
            },
        ];
        changes.into_iter().chain([granted]).fold(empty(), |roles, change| changed(&roles, &change))
    }

    #[test]
    fn the_statements_make_the_same_roles_again() {
        let wanted = filled();
        let (catalog, data_centers) = (catalog_of(SCHEMA), BTreeSet::from(["north's".to_owned()]));
        let mut made = empty();
        for statement in script(&wanted).unwrap() {
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
            script(roles)
                .unwrap()
                .into_iter()
                .filter(|statement| !statement.ends_with(" TO keeper"))
                .collect()
        };
        assert_eq!(others(&made), others(&wanted));
    }
}
