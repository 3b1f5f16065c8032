//! Prints every import that runs against the order of the layers, and every circle of files. Ends with status 1 if there is
//! one.
//!
//! Usage: `cargo run -p helenus-layers`. The order stands in `docs/layers.txt`; [`order`] says how it is written.

mod circles;
mod graph;
mod items;
mod order;
mod source;

use std::path::Path;
use std::process::ExitCode;

/// Why the check could not be made.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("{path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("{path}: {error}")]
    Parse { path: String, error: syn::Error },
    #[error("docs/layers.txt line {line}: {reason}")]
    Order { line: usize, reason: String },
    #[error("{path}: the module {module} has no file")]
    NoFile { path: String, module: String },
}

/// What is wrong with the tree below `root`, a line each.
fn complaints(root: &Path) -> Result<Vec<String>, CheckError> {
    let order = order::read(&root.join("docs/layers.txt"))?;
    let crates = order.iter().map(|layer| source::read(root, layer)).collect::<Result<Vec<_>, _>>()?;
    let imports = graph::imports(&crates);
    let mut complaints = Vec::new();
    for (layer, read) in order.iter().zip(&crates) {
        complaints.extend(order::unlisted(layer, read));
    }
    complaints.extend(order::against(&order, &imports));
    complaints.extend(circles::describe(&imports));
    Ok(complaints)
}

fn main() -> ExitCode {
    match complaints(Path::new(".")) {
        Ok(complaints) if complaints.is_empty() => {
            println!(
                "no import runs against the order of the layers, and no files import each other in a circle"
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
