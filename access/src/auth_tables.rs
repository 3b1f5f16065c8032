//! The rows of the tables of `system_auth`, as Cassandra has them.

use std::collections::{BTreeMap, BTreeSet};

use cql_lite::types::codec::{encode_elements, write_element};
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::virtual_tables::{IntoWire, Row, RowWriter};
use helenus_roles::{Network, Roles};

use crate::resources::stored_name;

/// The rows of a table. Empty for a table of another keyspace.
pub fn rows(table: &Table, roles: &Roles, catalog: &Catalog) -> Vec<Row> {
    let mut writer = RowWriter::new(table);
    match table.name.as_str() {
        "roles" => {
            for (name, role) in roles.iter() {
                let mut row = writer.row();
                row.set("role", name);
                row.set("can_login", role.can_login).set("is_superuser", role.is_superuser);
                if let Some(hash) = &role.salted_hash {
                    row.set("salted_hash", hash.as_str());
                }
                if !role.member_of.is_empty() {
                    row.set("member_of", Texts(&role.member_of));
                }
            }
        }
        "role_members" => {
            let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for (name, role) in roles.iter() {
                for granted in &role.member_of {
                    members.entry(granted).or_default().insert(name);
                }
            }
            for (role, members) in members {
                for member in members {
                    writer.row().set("role", role).set("member", member);
                }
            }
        }
        "role_permissions" => {
            for (role, resources) in permissions(roles, catalog) {
                for (resource, names) in resources {
                    let mut row = writer.row();
                    row.set("role", role).set("resource", resource).set("permissions", Texts(&names));
                }
            }
        }
        "resource_role_permissons_index" => {
            let mut index: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
            for (role, resources) in permissions(roles, catalog) {
                for resource in resources.into_keys() {
                    index.entry(resource).or_default().insert(role);
                }
            }
            for (resource, roles) in index {
                for role in roles {
                    writer.row().set("resource", resource.as_str()).set("role", role);
                }
            }
        }
        "network_permissions" => {
            for (name, role) in roles.iter() {
                if let Some(names) = &role.datacenters {
                    writer.row().set("role", format!("roles/{name}")).set("dcs", Texts(names));
                }
            }
        }
        "cidr_permissions" => {
            for (name, role) in roles.iter() {
                if let Some(groups) = &role.cidr_groups {
                    writer.row().set("role", name).set("cidr_groups", Texts(groups));
                }
            }
        }
        "cidr_groups" => {
            for (group, networks) in roles.cidr_groups() {
                writer.row().set("cidr_group", group).set("cidrs", Networks(networks));
            }
        }
        "identity_to_role" => {
            for (identity, role) in roles.identities() {
                writer.row().set("identity", identity).set("role", role);
            }
        }
        _ => {}
    }
    writer.finish()
}

/// The names of the permissions of each role by the stored names of resources.
fn permissions<'r>(
    roles: &'r Roles,
    catalog: &Catalog,
) -> Vec<(&'r str, BTreeMap<String, BTreeSet<String>>)> {
    let of = |role: &helenus_roles::Role| {
        let grants = role.grants.iter();
        let named = grants.map(|(resource, permissions)| {
            let names = permissions.iter().map(|permission| permission.name().to_owned()).collect();
            (stored_name(resource, catalog), names)
        });
        named.collect()
    };
    roles.iter().map(|(name, role)| (name, of(role))).collect()
}

/// A set of texts.
struct Texts<'a>(&'a BTreeSet<String>);

impl IntoWire for Texts<'_> {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_elements(self.0.iter().map(String::as_bytes)))
    }
}

/// A set of pairs of an address and the length of a prefix.
struct Networks<'a>(&'a BTreeSet<Network>);

impl IntoWire for Networks<'_> {
    fn into_wire(self) -> Option<Vec<u8>> {
        let pair = |network: &Network| {
            let mut fields = Vec::new();
            if let Some(address) = network.address().into_wire() {
                write_element(&address, &mut fields);
            }
            write_element(&i16::from(network.prefix_bits()).to_be_bytes(), &mut fields);
            fields
        };
        let mut pairs: Vec<Vec<u8>> = self.0.iter().map(pair).collect();
        pairs.sort();
        Some(encode_elements(pairs.iter().map(Vec::as_slice)))
    }
}
