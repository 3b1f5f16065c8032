//! Which file imports what from which file.
//!
//! Invariant: an import belongs to the file that defines the item, not to one that re-exports it. A re-export is no import.
//! To name a module is none either; what is named behind it is.

use std::collections::BTreeMap;

use crate::source::{Crate, File, Module};

/// One file names an item of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub from: Module,
    pub to: Module,
    pub name: String,
    pub line: usize,
}

/// The longest chain of re-exports that is followed.
const HOPS_MAX: usize = 16;

/// All imports among the files of these crates, each pair of files once.
pub fn imports(crates: &[Crate]) -> Vec<Import> {
    let graph = Graph { crates: crates.iter().map(|read| (read.name.as_str(), read)).collect() };
    let mut found: BTreeMap<(Module, Module), Import> = BTreeMap::new();
    for read in crates {
        for file in read.files.values() {
            let imported = file.imported.iter().filter(|named| !named.is_public);
            for named in imported.chain(&file.paths) {
                if let Some(to) = graph.resolve(file, &named.path, HOPS_MAX)
                    && to.module != file.module
                {
                    let import = Import {
                        from: file.module.clone(),
                        to: to.module.clone(),
                        name: named.name.clone(),
                        line: named.line,
                    };
                    found.entry((file.module.clone(), to.module.clone())).or_insert(import);
                }
            }
        }
    }
    found.into_values().collect()
}

struct Graph<'a> {
    crates: BTreeMap<&'a str, &'a Crate>,
}

impl<'a> Graph<'a> {
    /// The file that defines what a path in `file` stands for; none for what is of other crates, and for modules.
    fn resolve(&self, file: &'a File, path: &[String], hops: usize) -> Option<&'a File> {
        let hops = hops.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let own = *self.crates.get(file.module.crate_name.as_str())?;
        match first.as_str() {
            "crate" => self.descend(own, Vec::new(), rest, hops),
            "self" => self.descend(own, file.module.names.clone(), rest, hops),
            "super" => {
                let mut module = file.module.names.clone();
                module.pop()?;
                let mut rest = rest;
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
                self.descend(own, module, rest, hops)
            }
            "Self" | "std" | "core" | "alloc" => None,
            name if file.children.contains(name) => {
                let mut module = file.module.names.clone();
                module.push(name.to_owned());
                self.descend(own, module, rest, hops)
            }
            // An item of this file, or an associated item of one.
            name if file.defined.contains(name) => Some(file),
            name => {
                let alias = file.imported.iter().find(|named| named.name == name && named.path != path);
                if let Some(alias) = alias {
                    let full: Vec<String> = alias.path.iter().chain(rest).cloned().collect();
                    return self.resolve(file, &full, hops);
                }
                let other = *self.crates.get(name)?;
                self.descend(other, Vec::new(), rest, hops)
            }
        }
    }

    /// Goes from a module down a path.
    fn descend(
        &self,
        of: &'a Crate,
        mut module: Vec<String>,
        path: &[String],
        hops: usize,
    ) -> Option<&'a File> {
        let mut rest = path;
        loop {
            let file = of.files.get(&module)?;
            let Some((name, further)) = rest.split_first() else {
                // A module by itself.
                return None;
            };
            if file.children.contains(name) {
                module.push(name.clone());
                rest = further;
                continue;
            }
            if file.defined.contains(name) {
                return Some(file);
            }
            let exported = file.imported.iter().filter(|named| named.is_public);
            for named in exported {
                if named.name == *name {
                    let full: Vec<String> = named.path.iter().chain(further).cloned().collect();
                    return self.resolve(file, &full, hops);
                }
                if named.name == "*" {
                    let full: Vec<String> = named.path.iter().chain(rest).cloned().collect();
                    if let Some(found) = self.resolve(file, &full, hops) {
                        return Some(found);
                    }
                }
            }
            return None;
        }
    }
}
