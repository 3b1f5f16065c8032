//! Prints every import that runs against the order of the layers, every circle of files, and every crate that is too large.
//! Ends with status 1 if there is one.
//!
//! Usage: `cargo run -p helenus-layers`. The order stands in `docs/layers.txt`; [`order`] says how it is written.

mod circles;
mod error;
mod graph;
mod items;
mod order;
mod size;
mod source;

use std::path::Path;
use std::process::ExitCode;

use crate::error::CheckError;

/// What is wrong with the tree below `root`, a line each.
fn complaints(root: &Path) -> Result<Vec<String>, CheckError> {
    let order = order::read(root)?;
    let read = |layer: &order::CrateOrder| source::read(root, &layer.name, &layer.folder);
    let crates = order.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let imports = graph::imports(&crates);
    let mut complaints = Vec::new();
    for (layer, read) in order.iter().zip(&crates) {
        complaints.extend(order::unlisted(layer, read));
    }
    complaints.extend(order::against(&order, &imports));
    complaints.extend(circles::describe(&imports));
    complaints.extend(size::too_large(root)?);
    Ok(complaints)
}

fn main() -> ExitCode {
    match complaints(Path::new(".")) {
        Ok(complaints) if complaints.is_empty() => {
            println!(
                "no import runs against the order of the layers, no files import each other in a circle, \
                 and no crate is too large"
            );
            ExitCode::SUCCESS
        }
        Ok(complaints) => {
            for complaint in &complaints {
                println!("{complaint}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;
