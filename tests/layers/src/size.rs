//! How many lines of Rust a crate has outside of tests: a crate that grows beyond the limit must be split.
//!
//! All files below `src` count, whole: blank lines and comments, too. Not counted is what is compiled for tests, be it a module
//! with files of its own or an item within a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::Item;
use syn::spanned::Spanned;

use crate::error::CheckError;
use crate::items;
use crate::source;

/// A crate has fewer lines.
const LINES_LIMIT: usize = 25_000;

/// A line for each crate of the workspace that is too large.
pub fn too_large(root: &Path) -> Result<Vec<String>, CheckError> {
    let mut complaints = Vec::new();
    for folder in members(root)? {
        let folder = Path::new(&folder);
        let lines = count(root, &folder.join("src"))?;
        if lines >= LINES_LIMIT {
            let name = package_name(root, folder)?;
            complaints.push(format!(
                "the crate {name} has {lines} lines outside of tests, and must have fewer than {LINES_LIMIT}"
            ));
        }
    }
    Ok(complaints)
}

/// The folders of the crates of the workspace.
fn members(root: &Path) -> Result<Vec<String>, CheckError> {
    let list = between(root, Path::new("Cargo.toml"), "\nmembers = [", ']')?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// The name of the crate of a folder.
fn package_name(root: &Path, folder: &Path) -> Result<String, CheckError> {
    between(root, &folder.join("Cargo.toml"), "\nname = \"", '"')
}

/// What stands in a manifest between these.
fn between(root: &Path, path: &Path, start: &'static str, end: char) -> Result<String, CheckError> {
    let text = source::text(root, path)?;
    let found = text.split_once(start).and_then(|(_, rest)| rest.split_once(end));
    found.map(|(between, _)| between.to_owned()).ok_or_else(|| CheckError::Manifest {
        path: path.display().to_string(),
        expected: start.trim_start(),
    })
}

/// The lines of the files below a folder that are not compiled for tests.
fn count(root: &Path, folder: &Path) -> Result<usize, CheckError> {
    let mut paths = Vec::new();
    find_files(root, folder, &mut paths)?;
    let mut counts = Vec::new();
    let mut test_modules = Vec::new();
    for path in &paths {
        let (text, parsed) = source::parse(root, path)?;
        let mut test_lines = BTreeSet::new();
        for item in parsed.items.iter().filter(|item| items::serves_tests(items::attributes(item))) {
            let span = item.span();
            test_lines.extend(span.start().line..=span.end().line);
            if let Item::Mod(declared) = item {
                test_modules.push(children_folder(path).join(declared.ident.to_string()));
            }
        }
        counts.push(text.lines().count() - test_lines.len());
    }
    let counted = paths.iter().zip(counts).filter(|(path, _)| {
        let module = path.with_extension("");
        !test_modules.iter().any(|tests| module.starts_with(tests))
    });
    Ok(counted.map(|(_, lines)| lines).sum())
}

/// Where the modules that a file declares have their files.
fn children_folder(path: &Path) -> PathBuf {
    let module = path.with_extension("");
    if ["lib", "main", "mod"].iter().any(|root| module.ends_with(root)) {
        module.parent().map(Path::to_path_buf).unwrap_or_default()
    } else {
        module
    }
}

/// Gathers the files of Rust below a folder.
fn find_files(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), CheckError> {
    let failed = |error| CheckError::read(folder, error);
    for entry in std::fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            find_files(root, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
