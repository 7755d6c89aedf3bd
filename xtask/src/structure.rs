//! The structure of the crates: which modules depend on each other in cycles.
//!
//! `cargo xtask structure` prints, for each crate, the strongly connected components of its module graph that have more
//! than [`ALLOWED`] modules. Such modules cannot be read, tested or moved one at a time. The components that exist are
//! listed in `xtask/structure.txt`, each with the reason why it stays; the suite `structure` fails when a component grows
//! or a new one appears, so the list only shrinks. `cargo xtask structure --write` writes the list again. A line of the list
//! that ends in `::*` is a family, such as one file for each kind of kernel: another member is no growth.
//!
//! A module depends on the module that defines what it names: `pub use` is followed and is no dependency itself. Code
//! under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree};

use crate::device_lines;
use crate::outcome::Outcome;

/// Components of up to so many modules are not listed: a family with a shared helper.
const ALLOWED: usize = 3;

const LIST: &str = "xtask/structure.txt";

/// The path of a module in its crate; the crate's root is empty.
type ModulePath = Vec<String>;

/// What is known of one module.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// What `use` brings in: a name, and the path that it stands for.
    imports: BTreeMap<String, ModulePath>,
    /// Names of other modules' items that occur in it, as absolute paths.
    mentions: BTreeSet<ModulePath>,
}

/// The modules of one crate.
#[derive(Default)]
struct Modules(BTreeMap<ModulePath, Module>);

/// A cycle: the crate and its modules, sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Component {
    package: String,
    modules: BTreeSet<String>,
}

/// Prints the components, or writes the list.
pub fn task(write: bool) -> Result<bool, String> {
    let found = components()?;
    if write {
        let text = list(&found, &committed()?);
        return fs::write(crate::root().join(LIST), text).map(|()| true).map_err(|e| format!("{LIST}: {e}"));
    }
    for component in &found {
        println!("{}: {} modules in a cycle", component.package, component.modules.len());
        component.modules.iter().for_each(|module| println!("    {module}"));
    }
    device_lines::report()?.iter().for_each(|line| println!("{line}"));
    Ok(true)
}

/// The suite: nothing is in a cycle that the list does not name, and no device has more lines than it may.
pub fn run() -> Outcome {
    let cycles = components().and_then(|found| committed().map(|listed| growth(&found, &listed)));
    match cycles.and_then(|cycles| Ok([cycles, device_lines::growth()?].concat())) {
        Ok(growth) if growth.is_empty() => Outcome::pass(),
        Ok(growth) => Outcome::fail(format!(
            "{}\nsee `cargo xtask structure`; move what several need into a module, or for devices into `rlx-gpu`",
            growth.join("\n")
        )),
        Err(e) => Outcome::fail(e),
    }
}

/// A component as it was committed: its lines may be families, and it has the reason why it stays.
struct Listed {
    component: Component,
    reason: String,
}

impl Listed {
    /// The line that names this module, alone or as one of a family.
    fn line(&self, module: &str) -> Option<&str> {
        let names = |line: &&String| match line.strip_suffix('*') {
            Some(family) => module.starts_with(family),
            None => *line == module,
        };
        self.component.modules.iter().find(names).map(String::as_str)
    }

    /// How many of the component's modules it names.
    fn shared(&self, new: &Component) -> usize {
        if self.component.package != new.package {
            return 0;
        }
        new.modules.iter().filter(|module| self.line(module).is_some()).count()
    }
}

/// The committed component that has most modules of this one.
fn nearest<'a>(new: &Component, listed: &'a [Listed]) -> Option<&'a Listed> {
    listed.iter().filter(|old| old.shared(new) > 0).max_by_key(|old| old.shared(new))
}

/// What is in a cycle now and was not when the list was written.
fn growth(found: &[Component], listed: &[Listed]) -> Vec<String> {
    let describe = |new: &Component| {
        let old = nearest(new, listed);
        let is_known = |module: &String| old.is_some_and(|old| old.line(module).is_some());
        let added: Vec<&str> = new.modules.iter().filter(|m| !is_known(m)).map(String::as_str).collect();
        let of = new.modules.len();
        (!added.is_empty()).then(|| format!("{}: new in a cycle of {of}: {}", new.package, added.join(", ")))
    };
    found.iter().filter_map(describe).collect()
}

/// The text of the list: families and reasons stay as they were written.
fn list(found: &[Component], listed: &[Listed]) -> String {
    let mut text = format!(
        "# Cycles of more than {ALLOWED} modules, made by `cargo xtask structure --write`: the crate and why the cycle stays, then its\n\
         # modules; `::*` is a family, which may gain members. Otherwise the list only shrinks. Reasons and families are written by hand.\n"
    );
    for component in found {
        let old = nearest(component, listed);
        let reason = old.map_or("to be separated", |old| old.reason.as_str());
        let line = |module: &String| old.and_then(|old| old.line(module)).unwrap_or(module).to_owned();
        let lines: BTreeSet<String> = component.modules.iter().map(line).collect();
        text.push_str(&format!("\n{}: {reason}\n", component.package));
        lines.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// The committed list, with the reasons.
fn committed() -> Result<Vec<Listed>, String> {
    let text = match fs::read_to_string(crate::root().join(LIST)) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(format!("{LIST}: {e}")),
    };
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Listed>, String> {
    let mut listed: Vec<Listed> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("    "), listed.last_mut()) {
            (Some(module), Some(last)) => {
                last.component.modules.insert(module.to_owned());
            }
            (Some(_), None) => return Err(format!("{LIST}: a module before any crate: {line:?}")),
            (None, _) => {
                let (package, reason) =
                    line.split_once(": ").ok_or(format!("{LIST}: no reason: {line:?}"))?;
                let component = Component { package: package.to_owned(), modules: BTreeSet::new() };
                listed.push(Listed { component, reason: reason.to_owned() });
            }
        }
    }
    Ok(listed)
}

/// The cycles of more than [`ALLOWED`] modules of every crate.
fn components() -> Result<Vec<Component>, String> {
    let folder = crate::root().join("crates");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut packages: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    packages.sort();
    let mut found = Vec::new();
    for package in packages.iter().filter(|path| path.join("src/lib.rs").is_file()) {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let modules = Modules::read(&package.join("src"))?;
        for component in modules.components().into_iter().filter(|c| c.len() > ALLOWED) {
            let modules = component.iter().map(|path| display(path)).collect();
            found.push(Component { package: name.clone(), modules });
        }
    }
    found.sort();
    Ok(found)
}

fn display(path: &[String]) -> String {
    if path.is_empty() { "(root)".to_owned() } else { path.join("::") }
}

impl Modules {
    fn read(src: &Path) -> Result<Modules, String> {
        let mut modules = Modules::default();
        modules.read_file(&src.join("lib.rs"), src, Vec::new())?;
        Ok(modules)
    }

    /// Reads a module's file and those of its children; `folder` is where these are.
    fn read_file(&mut self, file: &Path, folder: &Path, path: ModulePath) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        self.read_items(&parsed.items, folder, path)
    }

    fn read_items(&mut self, items: &[Item], folder: &Path, path: ModulePath) -> Result<(), String> {
        let mut module = Module::default();
        let items: Vec<&Item> = items.iter().filter(|item| !is_test(attributes(item))).collect();
        for item in &items {
            if let Item::Mod(child) = item {
                module.children.insert(child.ident.to_string());
            }
        }
        for item in &items {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let inner: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
                    let inner_folder = folder.join(&name);
                    match &child.content {
                        Some((_, items)) => self.read_items(items, &inner_folder, inner)?,
                        None => {
                            let flat = folder.join(format!("{name}.rs"));
                            let file = if flat.is_file() { flat } else { inner_folder.join("mod.rs") };
                            self.read_file(&file, &inner_folder, inner)?;
                        }
                    }
                }
                Item::Use(item) => {
                    let mut names = Vec::new();
                    leaves(&item.tree, &mut Vec::new(), &mut names);
                    for (name, segments) in names {
                        let Some(target) = absolute(&segments, &path, &module.children) else { continue };
                        if matches!(item.vis, syn::Visibility::Inherited) {
                            module.mentions.insert(target.clone());
                        }
                        module.imports.insert(name, target);
                    }
                }
                item => {
                    let mut visitor =
                        Paths { path: &path, children: &module.children, found: BTreeSet::new() };
                    visitor.visit_item(item);
                    module.mentions.extend(visitor.found);
                }
            }
        }
        self.0.insert(path, module);
        Ok(())
    }

    /// The module that defines what an absolute path names: re-exports are followed.
    fn defines(&self, path: &[String]) -> Option<ModulePath> {
        let mut path = path.to_vec();
        // A chain of re-exports is short; a cycle of them ends here.
        for _ in 0..16 {
            let known = (0..=path.len()).rev().find(|&n| self.0.contains_key(&path[..n]))?;
            let module = &self.0[&path[..known]];
            match path.get(known).and_then(|name| module.imports.get(name)) {
                Some(target) => path = target.iter().chain(&path[known + 1..]).cloned().collect(),
                None => return Some(path[..known].to_vec()),
            }
        }
        None
    }

    /// The strongly connected components, by Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972).
    fn components(&self) -> Vec<Vec<ModulePath>> {
        let names: Vec<&ModulePath> = self.0.keys().collect();
        let number: BTreeMap<&ModulePath, usize> = names.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let edges: Vec<BTreeSet<usize>> = names
            .iter()
            .map(|&name| {
                let targets = self.0[name].mentions.iter().filter_map(|path| self.defines(path));
                targets.filter(|target| target != name).filter_map(|t| number.get(&t).copied()).collect()
            })
            .collect();
        let mut search = Search { edges: &edges, order: vec![0; edges.len()], ..Search::default() };
        (0..edges.len()).for_each(|at| search.visit(at));
        let named = |component: Vec<usize>| component.into_iter().map(|i| names[i].clone()).collect();
        search.components.into_iter().map(named).collect()
    }
}

/// The state of Tarjan's search.
#[derive(Default)]
struct Search<'a> {
    edges: &'a [BTreeSet<usize>],
    /// When each was visited first, from 1; 0 before.
    order: Vec<usize>,
    visited: usize,
    stack: Vec<usize>,
    components: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits what is reachable; gives the smallest order that is still on the stack and reachable.
    fn low(&mut self, at: usize) -> usize {
        self.visited += 1;
        let own = self.visited;
        self.order[at] = own;
        self.stack.push(at);
        let mut low = own;
        for &next in &self.edges[at] {
            if self.order[next] == 0 {
                low = low.min(self.low(next));
            } else if self.stack.contains(&next) {
                low = low.min(self.order[next]);
            }
        }
        if low == own {
            let from = self.stack.iter().position(|&i| i == at).unwrap_or_default();
            self.components.push(self.stack.split_off(from));
        }
        low
    }

    fn visit(&mut self, at: usize) {
        if self.order[at] == 0 {
            self.low(at);
        }
    }
}

/// Collects the paths in code, those in macro calls too.
struct Paths<'a> {
    path: &'a [String],
    children: &'a BTreeSet<String>,
    found: BTreeSet<ModulePath>,
}

impl Paths<'_> {
    fn add(&mut self, segments: &[String]) {
        if segments.len() > 1 {
            self.found.extend(absolute(segments, self.path, self.children));
        }
    }

    /// Words joined by `::` in the tokens of a macro call.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut segments, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(word) if segments.is_empty() || colons == 2 => {
                    segments.push(word.to_string())
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !segments.is_empty() => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.add(&std::mem::take(&mut segments));
                    match other {
                        TokenTree::Ident(word) => segments.push(word.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.add(&segments);
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut names = Vec::new();
        leaves(&item.tree, &mut Vec::new(), &mut names);
        names.iter().for_each(|(_, segments)| self.add(segments));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.add(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        syn::visit::visit_macro(self, call);
    }
}

/// The names that a `use` brings in, with the segments that each stands for.
fn leaves(tree: &UseTree, before: &mut Vec<String>, out: &mut Vec<(String, Vec<String>)>) {
    let with = |last: &syn::Ident, before: &[String]| -> Vec<String> {
        before.iter().cloned().chain([last.to_string()]).collect()
    };
    match tree {
        UseTree::Path(inner) => {
            before.push(inner.ident.to_string());
            leaves(&inner.tree, before, out);
            before.pop();
        }
        UseTree::Name(leaf) if leaf.ident == "self" => {
            let name = before.last().cloned().unwrap_or_default();
            out.push((name, before.clone()));
        }
        UseTree::Name(leaf) => out.push((leaf.ident.to_string(), with(&leaf.ident, before))),
        UseTree::Rename(leaf) if leaf.ident == "self" => out.push((leaf.rename.to_string(), before.clone())),
        UseTree::Rename(leaf) => out.push((leaf.rename.to_string(), with(&leaf.ident, before))),
        UseTree::Glob(_) => out.push(("*".to_owned(), before.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, out)),
    }
}

/// The path from the crate's root, of what is not in another crate.
fn absolute(segments: &[String], module: &[String], children: &BTreeSet<String>) -> Option<ModulePath> {
    let first = segments.first()?;
    let (base, skip): (&[String], usize) = match first.as_str() {
        "crate" => (&[], 1),
        "self" => (module, 1),
        "super" => {
            let supers = segments.iter().take_while(|s| *s == "super").count();
            (module.get(..module.len().checked_sub(supers)?)?, supers)
        }
        name if children.contains(name) => (module, 0),
        _ => return None,
    };
    Some(base.iter().chain(&segments[skip..]).cloned().collect())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether it is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => return false,
        };
        tokens == "test" || tokens.starts_with("all (test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of one file, as text.
    fn cycles(text: &str) -> Vec<Vec<String>> {
        let mut modules = Modules::default();
        let file = syn::parse_file(text).unwrap();
        modules.read_items(&file.items, Path::new(""), Vec::new()).unwrap();
        let mut found: Vec<Vec<String>> = modules
            .components()
            .into_iter()
            .filter(|c| c.len() > 1)
            .map(|c| c.iter().map(|p| display(p)).collect::<BTreeSet<_>>().into_iter().collect())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn modules_that_name_each_other_are_a_cycle() {
        let text = "mod a { use crate::b::B; } mod b { pub struct B; fn f() { crate::c::g() } } mod c { use super::a; }";
        assert_eq!(cycles(text), [["a", "b", "c"]]);
    }

    #[test]
    fn re_exports_are_followed_and_are_no_dependency() {
        let text = "pub use b::B; mod a { use crate::B; } mod b { pub struct B; } ";
        assert!(cycles(text).is_empty());
        let text =
            "pub use b::B; mod a { use crate::B; pub struct A; } mod b { pub struct B(crate::a::A); } ";
        assert_eq!(cycles(text), [["a", "b"]]);
    }

    #[test]
    fn macro_calls_count_and_tests_do_not() {
        let text = "mod a { fn f() { assert!(crate::b::g(1)); } } mod b { use crate::a; }";
        assert_eq!(cycles(text), [["a", "b"]]);
        let text = "mod a { #[cfg(test)] mod tests { use crate::b; } } mod b { use crate::a; }";
        assert!(cycles(text).is_empty());
    }

    #[test]
    fn the_list_may_shrink_and_not_grow_but_for_members_of_families() {
        let component = |modules: &[&str]| Component {
            package: "p".to_owned(),
            modules: modules.iter().map(|&m| m.to_owned()).collect(),
        };
        let listed = parse("# what\n\np: why\n    a\n    b\n    ops\n    ops::*\n").unwrap();
        assert!(growth(&[component(&["a", "ops", "ops::conv", "ops::new"])], &listed).is_empty());
        assert_eq!(growth(&[component(&["a", "b", "ops", "x"])], &listed), ["p: new in a cycle of 4: x"]);
        assert_eq!(growth(&[component(&["c", "d", "e", "f"])], &listed).len(), 1);
        let text = list(&[component(&["a", "ops", "ops::conv", "ops::pool"])], &listed);
        assert!(text.ends_with("\np: why\n    a\n    ops\n    ops::*\n"), "{text}");
    }
}
