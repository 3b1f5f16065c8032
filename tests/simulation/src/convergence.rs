//! Checks that the replicas of every partition hold equal data, read from their own engines.

use std::collections::BTreeMap;
use std::rc::Rc;

use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{TableId, transcode};
use helenus_execution::shard::context::ShardContext;

use crate::world::World;

/// The keyspace of the load.
const KEYSPACE: &str = "sim";

/// The bytes of a row, by node.
type Copies = BTreeMap<usize, Vec<u8>>;

/// The existing tables of the load.
pub fn tables(world: &World) -> Vec<String> {
    let context = world.members().iter().find_map(|machine| machine.context(0));
    let keyspace = context.and_then(|context| context.catalog().keyspaces.get(KEYSPACE).cloned());
    keyspace.map_or_else(Vec::new, |keyspace| keyspace.tables.keys().cloned().collect())
}

/// A description of the first difference between replicas in these tables; `None`: there is none.
pub fn difference(world: &World, tables: &[String]) -> Option<String> {
    for table in tables {
        let mut rows: BTreeMap<(i64, Vec<u8>), Copies> = BTreeMap::new();
        let members = world.members();
        for machine in &members {
            for context in machine.contexts() {
                if let Err(error) = collect(&context, table, machine.index, &mut rows) {
                    return Some(format!("n{} cannot read {table}: {error}", machine.index));
                }
            }
        }
        let Some(context) = members.iter().find_map(|machine| machine.context(0)) else {
            return Some("no node is up".to_owned());
        };
        let cluster = context.cluster();
        let Some(placement) = cluster.placement(KEYSPACE) else {
            return Some(format!("the keyspace {KEYSPACE} has no placement"));
        };
        for ((token, key), copies) in &rows {
            let replicas = placement.replicas(*token);
            let held: Vec<(usize, Option<&Vec<u8>>)> = members
                .iter()
                .filter(|machine| replicas.read.iter().any(|member| member.host_id == machine.host_id))
                .map(|machine| (machine.index, copies.get(&machine.index)))
                .collect();
            if held.windows(2).any(|pair| pair[0].1 != pair[1].1) {
                let lengths: Vec<(usize, Option<u32>)> =
                    held.iter().map(|(node, row)| (*node, row.map(|row| crc32fast::hash(row)))).collect();
                return Some(format!("{table}: row {key:02x?} differs: (node, checksum) {lengths:?}"));
            }
        }
    }
    None
}

fn collect(
    context: &Rc<ShardContext>,
    table: &str,
    node: usize,
    rows: &mut BTreeMap<(i64, Vec<u8>), Copies>,
) -> Result<(), String> {
    let catalog = context.catalog();
    let Some(definition) = catalog.keyspaces.get(KEYSPACE).and_then(|keyspace| keyspace.tables.get(table))
    else {
        return Err("there is no such table".to_owned());
    };
    let mut scan = context
        .shard
        .scan(&ScanRequest {
            table: TableId(*definition.id.as_bytes()),
            start: &[],
            end: &[0xFF; 9],
            reversed: false,
            now_seconds: context.now_seconds(),
            budget: Budget::UNLIMITED,
        })
        .map_err(|error| error.to_string())?;
    while let Step::Row(view) = scan.next().map_err(|error| error.to_string())? {
        let mut row = Vec::new();
        transcode(view.row, 0, &mut row).map_err(|error| error.to_string())?;
        rows.entry((view.token, view.key.to_vec())).or_default().insert(node, row);
    }
    Ok(())
}
