//! The order of the layers, as `docs/layers.txt` has it.
//!
//! A line without indentation names a crate: its name in `use`, and its folder. Its files are in `src` of that folder, or in
//! the folder itself. The indented lines below name its top modules, lowest first; modules of one line do not import each
//! other. What follows a `#` is a remark.
//!
//! ```text
//! helenus_ring ring
//!     member
//!     topology placement
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::CheckError;
use crate::graph::Import;
use crate::source::{self, Crate};

/// A crate with its top modules.
#[derive(Debug, Clone)]
pub struct CrateOrder {
    /// As in `use`.
    pub name: String,
    /// Its folder, from the root of the tree.
    pub folder: String,
    /// Lowest first; the modules of a line are side by side.
    pub lines: Vec<Vec<String>>,
}

/// Reads the file.
pub fn read(root: &Path) -> Result<Vec<CrateOrder>, CheckError> {
    parse(&source::text(root, Path::new("docs/layers.txt"))?)
}

fn parse(text: &str) -> Result<Vec<CrateOrder>, CheckError> {
    let mut crates: Vec<CrateOrder> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        let words: Vec<String> = content.split_whitespace().map(str::to_owned).collect();
        let failed = |reason: &str| CheckError::Order { line, reason: reason.to_owned() };
        if words.is_empty() {
            continue;
        }
        if content.starts_with(' ') {
            let last = crates.last_mut().ok_or_else(|| failed("modules without a crate"))?;
            last.lines.push(words);
        } else {
            let [name, folder] = &words[..] else { return Err(failed("a crate is a name and a folder")) };
            crates.push(CrateOrder { name: name.clone(), folder: folder.clone(), lines: Vec::new() });
        }
    }
    Ok(crates)
}

/// Top modules that the file does not name, and names that no module has.
pub fn unlisted(order: &CrateOrder, read: &Crate) -> Vec<String> {
    let named: Vec<&String> = order.lines.iter().flatten().collect();
    let top = read.top_modules();
    let missing = top
        .iter()
        .filter(|module| !named.contains(module))
        .map(|module| format!("docs/layers.txt: {} does not say where module {module} stands", order.name));
    let gone = named
        .iter()
        .filter(|name| !top.contains(**name))
        .map(|name| format!("docs/layers.txt: {} has no module {name}", order.name));
    missing.chain(gone).collect()
}

/// Imports that run against the order.
pub fn against(crates: &[CrateOrder], imports: &[Import]) -> Vec<String> {
    let mut rank = BTreeMap::new();
    let mut lines = 0_usize;
    for order in crates {
        for line in &order.lines {
            for module in line {
                rank.insert((order.name.as_str(), module.as_str()), lines);
            }
            lines += 1;
        }
    }
    let mut complaints = Vec::new();
    for import in imports {
        let from = (import.from.crate_name.as_str(), import.from.top_module());
        let to = (import.to.crate_name.as_str(), import.to.top_module());
        if from == to {
            continue;
        }
        // The root of a crate gathers its modules and stands above them; no module may reach back to it.
        let is_against = match (rank.get(&from), rank.get(&to)) {
            (Some(from), Some(to)) => from <= to,
            (Some(_), None) => from.0 == to.0,
            (None, _) => false,
        };
        if is_against {
            complaints.push(format!(
                "{}:{} imports {} from {}, which stands above it or beside it",
                import.from.path, import.line, import.name, import.to.path
            ));
        }
    }
    complaints
}
