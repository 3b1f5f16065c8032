//! The files of a crate: which module each is, what it defines, what it re-exports, and which paths it names.
//!
//! Invariant: what is compiled for tests only is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::Item;

use crate::CheckError;
use crate::items::{self, Named};
use crate::order::CrateOrder;

/// A module path within a crate: empty for its root.
pub type ModulePath = Vec<String>;

/// A file that is a module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    pub crate_name: String,
    /// Empty for the root of the crate.
    pub names: ModulePath,
    /// From the root of the tree.
    pub path: String,
}

impl Module {
    /// The first part of the module path; empty for the root of the crate.
    pub fn top_module(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// What a file holds.
#[derive(Debug)]
pub struct File {
    pub module: Module,
    /// Names of what it defines, inline modules included.
    pub defined: BTreeSet<String>,
    /// Modules below it.
    pub children: BTreeSet<String>,
    /// Names that `use` brings in, with what they stand for. Globs have the name `*`.
    pub imported: Vec<Named>,
    /// Other paths in it.
    pub paths: Vec<Named>,
}

/// A crate.
#[derive(Debug)]
pub struct Crate {
    pub name: String,
    pub files: BTreeMap<ModulePath, File>,
}

impl Crate {
    /// The modules of the root.
    pub fn top_modules(&self) -> BTreeSet<String> {
        self.files.get(&Vec::new()).map(|root| root.children.clone()).unwrap_or_default()
    }
}

/// Reads the crate of a line of the order.
pub fn read(root: &Path, order: &CrateOrder) -> Result<Crate, CheckError> {
    let mut read = Crate { name: order.name.clone(), files: BTreeMap::new() };
    let folder = Path::new(&order.folder).join("src");
    // A program alone has no library.
    let file =
        ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|file| root.join(file).exists());
    let file = file.unwrap_or_else(|| folder.join("lib.rs"));
    read_file(root, &mut read, &file, Vec::new(), &folder)?;
    Ok(read)
}

/// Reads a file and the modules that it declares, which lie in `folder`.
fn read_file(
    root: &Path,
    read: &mut Crate,
    path: &Path,
    module: ModulePath,
    folder: &Path,
) -> Result<(), CheckError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(root.join(path))
        .map_err(|error| CheckError::Read { path: shown.clone(), error })?;
    let parsed = syn::parse_file(&text).map_err(|error| CheckError::Parse { path: shown.clone(), error })?;
    let found = items::find(&parsed);
    let mut children = BTreeSet::new();
    for item in &parsed.items {
        let Item::Mod(declared) = item else { continue };
        if declared.content.is_some() || items::is_for_tests(&declared.attrs) {
            continue;
        }
        let name = declared.ident.to_string();
        let candidates: [PathBuf; 2] = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        let Some(file) = candidates.into_iter().find(|candidate| root.join(candidate).exists()) else {
            return Err(CheckError::NoFile { path: shown, module: name });
        };
        let mut child = module.clone();
        child.push(name.clone());
        read_file(root, read, &file, child, &folder.join(&name))?;
        children.insert(name);
    }
    let file = File {
        module: Module { crate_name: read.name.clone(), names: module.clone(), path: shown },
        defined: found.defined,
        children,
        imported: found.imported,
        paths: found.paths,
    };
    read.files.insert(module, file);
    Ok(())
}
