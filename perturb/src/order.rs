//! Tests that a module uses only modules above it in the list of `lib.rs`. So no modules use each other in a
//! circle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The modules that a source names, by `crate::name` or `crate::{name, ...}`.
fn named(source: &str) -> Vec<String> {
    let code: Vec<&str> =
        source.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect()
    };
    let mut found = Vec::new();
    for rest in code.join("\n").split("crate::").skip(1) {
        match rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
            Some((list, _)) => found.extend(list.split(',').map(name)),
            None => found.push(name(rest)),
        }
    }
    found
}

/// The uses of a module that stands below the user in `list`, and how many uses there are.
fn wrong(list: &str, files: &[(String, String)]) -> (Vec<String>, usize) {
    let modules = list.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let rank: BTreeMap<&str, usize> =
        modules.enumerate().map(|(place, name)| (name, place)).collect();
    let (mut found, mut count) = (Vec::new(), 0);
    for (module, source) in files {
        for other in named(source) {
            let Some(place) = rank.get(other.as_str()) else { continue };
            count += 1;
            if rank.get(module.as_str()).is_none_or(|own| place > own) {
                found.push(std::format!("{module} uses {other}"));
            }
        }
    }
    (found, count)
}

#[test]
fn a_module_uses_only_those_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let files: Vec<(String, String)> = paths
        .iter()
        .filter(|path| !path.ends_with("lib.rs") && !path.ends_with("order.rs"))
        .map(|path| {
            let inside = path.strip_prefix(&root).unwrap().with_extension("");
            let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
            (module.to_string(), fs::read_to_string(path).unwrap())
        })
        .collect();
    let list = fs::read_to_string(root.join("lib.rs")).unwrap();
    let (found, count) = wrong(&list, &files);
    assert!(count > 100, "only {count} uses found: does the search still see them?");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_search_sees_a_use_of_a_module_below() {
    let list = "mod low;\nmod high;\n";
    for back in ["use crate::high::Name;", "use crate::{low, high};", "crate::high::call()"] {
        let files = [("low".to_string(), back.to_string())];
        assert_eq!(wrong(list, &files).0, ["low uses high"], "{back}");
    }
    let right = [("high".to_string(), "use crate::low::Name; // crate::ways".to_string())];
    assert_eq!(wrong(list, &right), (Vec::new(), 1));
}
