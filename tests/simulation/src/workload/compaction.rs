//! Compactions that a load asks for.

use helenus_engine::TableId;
use helenus_engine::io::SplitMix64;

use crate::world::World;

/// Merges the files of a table on all shards of some members. Deletions that are old enough are purged.
pub async fn compact(world: &World, random: &mut SplitMix64, table: &'static str) {
    for machine in world.members() {
        if !random.chance(1, 2) {
            continue;
        }
        for context in machine.contexts() {
            let compacted = machine.run(async move {
                let id = context.catalog().table("sim", table).map(|table| TableId(*table.id.as_bytes()));
                match id {
                    Some(id) => context.shard.compact(id).await.map_err(|error| error.to_string()),
                    None => Err("the table is not known yet".to_owned()),
                }
            });
            match compacted.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => {
                    world.trace.note(format!("n{} does not compact: {error}", machine.index));
                }
            }
        }
    }
}
