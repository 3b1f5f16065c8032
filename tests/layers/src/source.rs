//! The files of a crate: which module each is, what it defines, what it re-exports, and which paths it names.
//!
//! Invariant: what is compiled for tests only is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::Item;

use crate::error::CheckError;
use crate::items::{self, Named};

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

/// The text of a file; its path is from the root of the tree.
pub fn text(root: &Path, path: &Path) -> Result<String, CheckError> {
    std::fs::read_to_string(root.join(path)).map_err(|error| CheckError::read(path, error))
}

/// The text of a file of Rust, and its items.
pub fn parse(root: &Path, path: &Path) -> Result<(String, syn::File), CheckError> {
    let text = text(root, path)?;
    let parsed = syn::parse_file(&text)
        .map_err(|error| CheckError::Parse { path: path.display().to_string(), error })?;
    Ok((text, parsed))
}

/// Reads the crate with this name in `use`, and this folder.
pub fn read(root: &Path, name: &str, folder: &str) -> Result<Crate, CheckError> {
    let mut read = Crate { name: name.to_owned(), files: BTreeMap::new() };
    let folder = Path::new(folder);
    // A program alone has no library, and one among several of a package has no `src`.
    let (sources, file) = [("src", "lib.rs"), ("src", "main.rs"), ("", "main.rs")]
        .map(|(sources, file)| (folder.join(sources), file))
        .into_iter()
        .find(|(sources, file)| root.join(sources).join(file).exists())
        .unwrap_or_else(|| (folder.join("src"), "lib.rs"));
    read_file(root, &mut read, &sources.join(file), Vec::new(), &sources)?;
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
    let (_, parsed) = parse(root, path)?;
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
