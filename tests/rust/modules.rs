//! A module uses only those above it in the list of `src/lib.rs`, no files use each other in a circle, and no file but a
//! library's own names it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of a path, such as `crate::driver::Handle`.
type Names = Vec<String>;

/// Only this module's own file may use files that use it. Its device has their types as fields, and the work
/// that they queue takes the device.
const DEVICE: [&str; 2] = ["driver", "simulated"];

/// What a file of `src` names.
#[derive(Default)]
struct File {
    /// What its `use` lines name, by the names that it has in the file, and whether the line is for others.
    imports: Vec<(String, Names, bool)>,
    /// The paths in its code.
    paths: Vec<Names>,
    /// The single names in its code.
    words: HashSet<String>,
}

/// The files of `src`, by their modules.
type Files = HashMap<Names, File>;

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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The module of a file; none for `lib.rs`.
fn module_of(file: &Path) -> Names {
    let inside = file.strip_prefix(root()).unwrap().with_extension("");
    let parts = inside.components().map(|part| part.as_os_str().to_str().unwrap().to_owned());
    parts.filter(|part| part != "mod" && part != "lib").collect()
}

/// A line without what says who may see it; whether there is such a thing.
fn without_visibility(line: &str) -> (&str, bool) {
    let line = line.trim_start();
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => {
            (rest.split_once(") ").map_or("", |(_, it)| it), true)
        }
        Some(rest) if rest.starts_with(' ') => (&rest[1..], true),
        _ => (line, false),
    }
}

/// The names that a source lists as `mod name;`.
fn listed(source: &str) -> Names {
    let name = |line| without_visibility(line).0.strip_prefix("mod ")?.strip_suffix(';');
    source.lines().filter_map(name).map(str::to_owned).collect()
}

fn names(path: &str) -> Names {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// `path`, as the file of `module` writes it, from the crate's root; `None` for another crate's.
fn from_root(module: &Names, path: &[String], all: &HashSet<Names>) -> Option<Names> {
    let mut base = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => drop(base.pop()),
        child => {
            base.push(child.to_owned());
            if !all.contains(&base) {
                return None;
            }
        }
    }
    rest = &rest[1..];
    while rest.first().is_some_and(|name| name == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend(rest.iter().filter(|name| *name != "self").cloned());
    Some(base)
}

/// Finds what the source of `module` names.
fn read(source: &str, module: &Names, all: &HashSet<Names>) -> File {
    let code: Vec<&str> = source.lines().map(|line| line.split("//").next().unwrap()).collect();
    let mut file = File::default();
    let mut rest = String::new();
    for statement in code.join("\n").split(';') {
        let lines: Vec<&str> = statement.lines().collect();
        let is_use = |line: &&str| without_visibility(line).0.starts_with("use ");
        let begin = lines.iter().rposition(is_use).unwrap_or(lines.len());
        rest.extend(lines[..begin].iter().flat_map(|line| [line, "\n"]));
        rest.push(';');
        let text = lines[begin..].join(" ");
        let (text, visible) = without_visibility(&text);
        let Some(path) = text.strip_prefix("use ") else { continue };
        assert!(path.matches('{').count() < 2, "{module:?}: braces inside braces: {path}");
        let (base, items) = path.split_once('{').unwrap_or(("", path));
        for item in items.trim_end_matches('}').split(',').filter(|item| !item.trim().is_empty()) {
            let (item, alias) = item.split_once(" as ").map_or((item, None), |(a, b)| (a, Some(b)));
            let path = names(&format!("{}{}", base.trim(), item.trim()));
            let Some(path) = from_root(module, &path, all) else { continue };
            let Some(name) = alias.or(path.last().map(String::as_str)) else { continue };
            file.imports.push((name.trim().to_owned(), path.clone(), visible));
        }
    }
    let mut before = "";
    for word in rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        let path = names(word);
        if path.len() > 1 {
            let imported = file.imports.iter().find(|(name, ..)| *name == path[0]);
            let path = match imported {
                Some((_, base, _)) => Some([base, &path[1..]].concat()),
                None => from_root(module, &path, all),
            };
            file.paths.extend(path);
        } else if before != "mod" {
            file.words.extend(path);
        }
        before = word;
    }
    file
}

fn files() -> Files {
    let mut found = Vec::new();
    sources(&root(), &mut found);
    let all = found.iter().map(|file| module_of(file)).collect();
    let file = |path: &PathBuf| {
        let module = module_of(path);
        let file = read(&fs::read_to_string(path).unwrap(), &module, &all);
        (module, file)
    };
    found.iter().map(file).collect()
}

/// The file that defines what `path` names: follows `use` lines.
fn home(files: &Files, mut path: Names) -> Names {
    loop {
        let long = (0..=path.len()).rev().find(|long| files.contains_key(&path[..*long])).unwrap();
        let module = path[..long].to_vec();
        let imported = |(name, ..): &&(String, Names, bool)| path.get(long) == Some(name);
        match files[&module].imports.iter().find(imported) {
            Some((_, again, _)) if *again != path => path = [again, &path[long + 1..]].concat(),
            _ => return module,
        }
    }
}

/// The other files that each file uses.
fn uses(files: &Files) -> HashMap<Names, HashSet<Names>> {
    let of = |(module, file): (&Names, &File)| {
        // A file does not use what it only exports again.
        let imports = file.imports.iter().filter(|(name, _, on)| !on || file.words.contains(name));
        let paths = imports.map(|(_, path, _)| path).chain(&file.paths);
        let mut homes: HashSet<Names> = paths.map(|path| home(files, path.clone())).collect();
        homes.remove(module);
        if *module == DEVICE {
            homes.retain(|other| !other.starts_with(module));
        }
        (module.clone(), homes)
    };
    files.iter().map(of).collect()
}

/// Checks that the modules inside `room` use only those above them in its list, which `file` has.
fn check_order(room: &[&str], file: &str) -> usize {
    let order = listed(&fs::read_to_string(root().join(file)).unwrap());
    assert!(order.len() > 8, "the module list of {file}: {order:?}");
    let rank = |module: &str| order.iter().position(|name| name == module);
    let mut checked = 0;
    for (module, file) in files().iter().filter(|(module, _)| module.len() > room.len()) {
        if !module.iter().zip(room).all(|(name, wanted)| name == wanted) {
            continue;
        }
        let own = rank(&module[room.len()]);
        assert!(own.is_some(), "{} is not in the list of the modules", module.join("::"));
        for path in file.imports.iter().map(|(_, path, _)| path).chain(&file.paths) {
            let inside = path.iter().zip(room).all(|(name, wanted)| name == wanted);
            let Some(other) = path.get(room.len()).filter(|_| inside) else { continue };
            let Some(place) = rank(other) else { continue };
            let (module, path) = (module.join("::"), path.join("::"));
            assert!(Some(place) <= own, "{module} uses {path}, which is below it");
            checked += 1;
        }
    }
    checked
}

#[test]
fn a_module_uses_only_those_above_it() {
    let checked = check_order(&[], "lib.rs");
    assert!(checked > 1000, "only {checked} uses found: does the search still see them?");
}

#[test]
fn a_module_of_src_py_uses_only_those_above_it() {
    let checked = check_order(&["py"], "py/mod.rs");
    assert!(checked > 300, "only {checked} uses found: does the search still see them?");
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut left = uses(&files());
    let edges: usize = left.values().map(HashSet::len).sum();
    assert!(edges > 700, "only {edges} uses found: does the search still see them?");
    // Drops files that use none of the rest, or that none of the rest use. Circles are left, and what lies
    // between two of them.
    loop {
        let (names, before): (HashSet<Names>, _) = (left.keys().cloned().collect(), left.len());
        let used: HashSet<Names> = left.values().flatten().cloned().collect();
        left.retain(|name, uses| used.contains(name) && !uses.is_disjoint(&names));
        left.values_mut().for_each(|uses| uses.retain(|other| names.contains(other)));
        if left.len() == before {
            break;
        }
    }
    let mut said: Vec<String> = left
        .iter()
        .flat_map(|(file, uses)| uses.iter().map(|other| (file.join("::"), other.join("::"))))
        .map(|(file, other)| format!("{file} -> {other}"))
        .collect();
    said.sort();
    assert!(said.is_empty(), "files use each other in a circle: {said:#?}");
}

/// The names of libraries, as their files in `src/py/libraries` have them: of the files, and of the modules that have habits.
fn libraries() -> HashSet<String> {
    // Names that say more than a library's.
    let general =
        ["cai_bridge", "cuda", "nvidia", "ordinary", "habits_only", "registered", "simulated"];
    let mut files = Vec::new();
    sources(&root().join("py/libraries"), &mut files);
    let stem = |file: &PathBuf| file.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut found: HashSet<String> = files.iter().map(stem).filter(|name| name != "mod").collect();
    for file in files {
        let source = fs::read_to_string(file).unwrap();
        let rows = source.split("known(").skip(1);
        let named =
            rows.filter_map(|row| row.trim_start().strip_prefix('"')?.split(['.', '"']).next());
        found.extend(named.map(str::to_owned));
    }
    found.retain(|name| !general.contains(&name.as_str()));
    found
}

/// The code of a source without comments, and without texts for people, which have spaces.
fn code_of(source: &str) -> String {
    let lines: Vec<&str> = source.lines().map(|line| line.split("//").next().unwrap()).collect();
    let code = lines.join("\n").replace("'\"'", "").replace("\\\"", "");
    assert!(code.matches('"').count().is_multiple_of(2), "which quotes begin a text? {code}");
    let is_code = |(at, part): &(usize, &str)| at % 2 == 0 || !part.contains(' ');
    let parts = code.split('"').enumerate().filter(is_code).map(|(_, part)| part);
    parts.collect::<String>().to_lowercase()
}

#[test]
fn no_file_but_a_librarys_own_names_it() {
    let (names, own) = (libraries(), root().join("py/libraries"));
    assert!(names.len() > 12, "only {names:?}: does the search still see them?");
    let mut found = Vec::new();
    sources(&root(), &mut found);
    for file in found.iter().filter(|file| !file.starts_with(&own)) {
        let code = code_of(&fs::read_to_string(file).unwrap());
        for line in code.lines() {
            let named = names.iter().find(|name| line.contains(name.as_str()));
            assert!(named.is_none(), "{} names {}: {line}", file.display(), named.unwrap());
        }
    }
}
