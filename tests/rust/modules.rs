//! A module uses only those above it in the list of `src/lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The names after `crate::` in a source, the braces of a `use crate::{a, b}` opened.
fn used(source: &str) -> Vec<String> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n");
    let name = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let mut names = Vec::new();
    for after in code.split("crate::").skip(1) {
        if let Some(list) = after.strip_prefix('{') {
            let list = list.split("};").next().unwrap_or("");
            names.extend(list.split(',').map(|item| name(item.trim())));
        } else {
            names.push(name(after));
        }
    }
    names
}

#[test]
fn a_module_uses_only_those_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = fs::read_to_string(root.join("lib.rs")).unwrap();
    let order = listed(&list);
    assert!(order.len() > 8, "the module list of src/lib.rs: {order:?}");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut checked = 0;
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let module = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs")
            .to_owned();
        if module == "lib" {
            continue;
        }
        let rank = order.iter().position(|name| *name == module);
        let rank =
            rank.unwrap_or_else(|| panic!("{} is not in the list of src/lib.rs", inside.display()));
        for name in used(&fs::read_to_string(&file).unwrap()) {
            let Some(other) = order.iter().position(|known| *known == name) else { continue };
            assert!(other <= rank, "{} uses crate::{name}, which is below it", inside.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} uses found: does the search still see them?");
}

/// The modules that a file of `module` uses by `crate::` or `super::`, of those that there are.
fn neighbours(source: &str, module: &[String], is_folder: bool, all: &[String]) -> Vec<String> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or("").trim())
        .collect::<Vec<_>>()
        .join(" ");
    let mut found = Vec::new();
    for after in code.split("use ").skip(1) {
        let path = after.split(';').next().unwrap_or("");
        let (base, items) = path.split_once("::{").unwrap_or((path, ""));
        for item in items.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
            let mut parts: Vec<&str> = base.split("::").chain(item.split("::")).collect();
            let mut from: Vec<String> = match parts.remove(0) {
                "crate" => Vec::new(),
                "super" => module[..module.len() - 1].to_vec(),
                "self" if is_folder => module.to_vec(),
                _ => continue,
            };
            from.extend(parts.into_iter().filter(|part| !part.is_empty()).map(str::to_owned));
            while !from.is_empty() && !all.contains(&from.join("::")) {
                from.pop();
            }
            found.push(from.join("::"));
        }
    }
    found
}

/// The names that a source lists as `mod name;`.
fn listed(source: &str) -> Vec<String> {
    let visible =
        |line: &str| line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").to_owned();
    let rest =
        |line: &str| Some(visible(line).strip_prefix("mod ")?.trim_end_matches(';').to_owned());
    source.lines().filter_map(rest).filter(|name| !name.contains(' ')).collect()
}

/// The modules of `src/py`, and those that each uses.
fn modules_of_py() -> Vec<(Vec<String>, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root.join("py"), &mut files);
    let named = |file: &PathBuf| -> Vec<String> {
        let inside = file.strip_prefix(&root).unwrap().with_extension("");
        let parts = inside.components().map(|part| part.as_os_str().to_str().unwrap().to_owned());
        parts.filter(|part| part != "mod").collect()
    };
    let all: Vec<String> = files.iter().map(|file| named(file).join("::")).collect();
    let uses = |file: &PathBuf| {
        let (module, is_folder) = (named(file), file.ends_with("mod.rs"));
        let mut uses = neighbours(&fs::read_to_string(file).unwrap(), &module, is_folder, &all);
        uses.retain(|other| !other.is_empty() && *other != module.join("::"));
        (module, uses)
    };
    let found: Vec<_> = files.iter().map(uses).collect();
    let edges: usize = found.iter().map(|(_, uses)| uses.len()).sum();
    assert!(edges > 100, "only {edges} uses found: does the search still see them?");
    found
}

#[test]
fn a_module_of_src_py_uses_only_those_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = listed(&fs::read_to_string(root.join("py/mod.rs")).unwrap());
    assert!(order.len() > 15, "the module list of src/py/mod.rs: {order:?}");
    let rank = |module: &str| order.iter().position(|name| name == module);
    for (module, uses) in modules_of_py().into_iter().filter(|(module, _)| module.len() > 1) {
        let own = rank(&module[1]).unwrap_or_else(|| panic!("{module:?} is not in the list"));
        for other in uses {
            let Some(inside) = other.strip_prefix("py::") else { continue };
            let room = inside.split("::").next().unwrap();
            assert!(
                rank(room) <= Some(own),
                "{} uses {other}, which is below it",
                module.join("::")
            );
        }
    }
}

#[test]
fn no_files_of_src_py_use_each_other_in_a_circle() {
    let mut left = modules_of_py();
    // Those that use nobody who is left go, until there are none.
    loop {
        let names: Vec<String> = left.iter().map(|(name, _)| name.join("::")).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.iter().any(|other| names.contains(other)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "in or above a circle: {left:#?}");
}
