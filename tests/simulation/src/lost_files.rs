//! Table files that a machine loses while it is switched off, and gets back while its node runs.
//!
//! What must hold meanwhile is what holds without: no client reads fewer rows than it may. The node answers with errors, and others
//! answer in its place.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use helenus_engine::TableId;
use helenus_engine::io::SplitMix64;
use helenus_engine::shard::{Examination, FileOutcome};

use crate::machine::Machine;
use crate::world::World;

/// The directory of the files of the metadata log. A node does not start without one of them, and says so.
const METADATA: TableId = TableId(*b"helenus-metadata");

fn is_table_file(path: &Path) -> bool {
    let metadata = METADATA.to_string();
    let is_there = |name: &str| path.components().any(|part| part.as_os_str() == name);
    is_there("tables") && !is_there(&metadata) && path.to_string_lossy().ends_with("-data.sst")
}

/// Removes, cuts or flips a bit of one table file of a machine that is switched off, if it has any.
pub fn lose(world: &World, machine: &Machine, random: &mut SplitMix64) {
    let files: Vec<(PathBuf, Vec<u8>)> =
        machine.disk.files().into_iter().filter(|(path, _)| is_table_file(path)).collect();
    if files.is_empty() {
        return;
    }
    let (path, contents) = files[random.below(files.len() as u64) as usize].clone();
    let (what, harmed) = match random.below(3) {
        0 => ("loses", None),
        1 => ("has a part of", Some(contents[..random.below(contents.len() as u64) as usize].to_vec())),
        _ => {
            let mut flipped = contents.clone();
            let place = random.below(contents.len() as u64) as usize;
            flipped[place] ^= 1 << random.below(8);
            ("has a flipped bit in", Some(flipped))
        }
    };
    world.trace.note(format!("n{} {what} {}", machine.index, path.display()));
    machine.disk.set_at_rest(&path, harmed.as_deref());
    let mut lost = machine.lost_files.borrow_mut();
    // The first contents are the right ones.
    if lost.iter().all(|(known, _)| *known != path) {
        lost.push((path, contents));
    }
}

/// Gives a running machine all files back that its node still needs, and lets it look at them. Returns whether all files of the node can
/// be read.
pub async fn put_back(world: &World, machine: &Rc<Machine>) -> bool {
    for context in machine.contexts() {
        let tables = context.shard.table_ids();
        let has_damage = tables.iter().any(|table| {
            context.shard.statistics(*table).is_ok_and(|statistics| statistics.damaged_files > 0)
        });
        if !has_damage && machine.lost_files.borrow().is_empty() {
            continue;
        }
        let Ok(found) = context.shard.examine(&tables, Examination::Verify).await else { return false };
        for (path, contents) in machine.lost_files.borrow().iter() {
            // One that a truncation or a drop has removed is not needed.
            if found.iter().any(|finding| finding.path == *path) {
                world.trace.note(format!("n{} gets {} back", machine.index, path.display()));
                machine.disk.set_at_rest(path, Some(contents));
            }
        }
        if found.is_empty() {
            continue;
        }
        match context.shard.examine(&tables, Examination::Scrub).await {
            Ok(found) if found.iter().all(|finding| finding.outcome != FileOutcome::Damaged) => {}
            _ => return false,
        }
    }
    machine.lost_files.borrow_mut().clear();
    true
}
