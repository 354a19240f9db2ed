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
    let order: Vec<String> = list
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .map(|rest| rest.trim_end_matches(';').to_owned())
        .collect();
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
