//! Checks that all members agree on members, schema and roles, version by version.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use helenus_query::schema::catalog::Catalog;
use helenus_ring::topology::Topology;
use helenus_roles::Roles;

use crate::world::{World, pause_ms};

/// Interval between checks of all nodes, in virtual milliseconds.
const PERIOD_MS: u64 = 500;

/// The state of the first node that was seen at a version.
struct Known {
    node: usize,
    topology: Arc<Topology>,
    catalog: Arc<Catalog>,
    roles: Arc<Roles>,
}

/// Checks all shards of all nodes until the load is over: nodes at one version must have equal members, schema and roles.
pub async fn watch(world: Rc<World>) {
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    while !world.is_load_over.get() {
        look(&world, &mut known);
        pause_ms(PERIOD_MS).await;
    }
}

fn look(world: &World, known: &mut BTreeMap<u64, Known>) {
    for machine in &world.machines {
        for context in machine.contexts() {
            let (topology, catalog) = (context.cluster().topology.clone(), context.catalog());
            let roles = context.roles();
            if topology.version == 0 {
                continue;
            }
            let version = topology.version;
            let node = machine.index;
            let first = known.entry(version).or_insert_with(|| Known {
                node,
                topology: topology.clone(),
                catalog: catalog.clone(),
                roles: roles.clone(),
            });
            if first.catalog.version != catalog.version
                || *first.topology != *topology
                || *first.roles != *roles
            {
                world.violation(format!(
                    "n{} and n{node} disagree on version {version} of the cluster",
                    first.node
                ));
                return;
            }
        }
    }
}

/// A description of the first difference between members; `None`: they agree.
pub fn difference(world: &World) -> Option<String> {
    let members = world.members();
    let views: Vec<_> = members
        .iter()
        .flat_map(|machine| machine.contexts().into_iter().map(|context| (machine.index, context)))
        .map(|(node, context)| (node, context.cluster().topology.clone(), context.catalog(), context.roles()))
        .collect();
    for pair in views.windows(2) {
        let [(one, topology, catalog, roles), (other, other_topology, other_catalog, other_roles)] = pair
        else {
            continue;
        };
        if topology != other_topology {
            return Some(format!("n{one} and n{other} have other members: {topology:?}, {other_topology:?}"));
        }
        if format!("{catalog:?}") != format!("{other_catalog:?}") {
            return Some(format!("n{one} and n{other} have different schemas"));
        }
        if roles != other_roles {
            return Some(format!("n{one} and n{other} have different roles"));
        }
    }
    None
}
