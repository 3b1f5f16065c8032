//! What one file defines, imports and names.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, Path, Token, UseTree};

/// A path as it is written, and the name that it has in this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// For `use`: the name in this file, `*` for all names. Otherwise the last part of the path.
    pub name: String,
    pub path: Vec<String>,
    pub line: usize,
    /// Whether it is there for other files, too.
    pub is_public: bool,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Found {
    pub defined: BTreeSet<String>,
    pub imported: Vec<Named>,
    pub paths: Vec<Named>,
}

/// Whether an item is compiled for tests only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Whether an item is compiled for tests: for those of its crate, or by a feature for those of other crates as well.
pub fn serves_tests(attributes: &[Attribute]) -> bool {
    is_for_tests(attributes)
        || attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
            let Ok(Meta::List(any)) = attribute.parse_args::<Meta>() else { return false };
            let conditions = any.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            any.path.is_ident("any")
                && conditions.is_ok_and(|all| all.iter().any(|condition| condition.path().is_ident("test")))
        })
}

/// Looks through a file.
pub fn find(file: &syn::File) -> Found {
    let mut finder = Finder::default();
    for item in &file.items {
        if let Some(name) = defined_name(item)
            && !is_for_tests(attributes(item))
        {
            finder.found.defined.insert(name);
        }
    }
    finder.visit_file(file);
    finder.found
}

#[derive(Default)]
struct Finder {
    found: Found,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        // An inline module is a part of its file.
        if module.content.is_some() {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        let is_public = !matches!(import.vis, syn::Visibility::Inherited);
        flatten(&import.tree, &mut Vec::new(), is_public, &mut self.found.imported);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.found.paths.push(Named {
                name: parts.last().cloned().unwrap_or_default(),
                path: parts,
                line: path.span().start().line,
                is_public: false,
            });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        // What stands in a macro's arguments counts where it reads as expressions: `assert!`, `format!`, `select!` mostly do.
        let arguments = invoked.parse_body_with(Punctuated::<syn::Expr, Token![,]>::parse_terminated);
        if let Ok(arguments) = arguments {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        }
        visit::visit_macro(self, invoked);
    }
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, is_public: bool, out: &mut Vec<Named>) {
    let mut push = |name: String, path: Vec<String>, line: usize| {
        out.push(Named { name, path, line, is_public });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, is_public, out);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, is_public, out);
            }
        }
        UseTree::Glob(glob) => push("*".to_owned(), prefix.clone(), glob.span().start().line),
        UseTree::Name(name) if name.ident == "self" => {
            push(prefix.last().cloned().unwrap_or_default(), prefix.clone(), name.span().start().line);
        }
        UseTree::Name(name) => {
            let full = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
            push(name.ident.to_string(), full, name.span().start().line);
        }
        UseTree::Rename(rename) if rename.ident == "self" => {
            push(rename.rename.to_string(), prefix.clone(), rename.span().start().line);
        }
        UseTree::Rename(rename) => {
            let full = prefix.iter().cloned().chain([rename.ident.to_string()]).collect();
            push(rename.rename.to_string(), full, rename.span().start().line);
        }
    }
}

/// The attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) if item.content.is_some() => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
