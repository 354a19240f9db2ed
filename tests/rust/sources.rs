//! Rules that no run shows without a GPU, an interpreter and bad luck, read from the sources. What may block is called
//! without the interpreter's lock. Foreign structures are not taken for larger than they are.

use std::fs;
use std::path::Path;

/// Calls of cudarc that wait, or that a full launch queue blocks.
const BLOCKING: [&str; 10] = [
    ".synchronize()",
    "slice.as_ptr()",
    "event_of(",
    ".device_ptr(",
    ".device_ptr_mut(",
    "stream::wait_event(",
    "event::record(",
    "memcpy_htod_async(",
    "launch_kernel(",
    "module::load_data(",
];

/// What releases the lock for the closure that is passed to it.
const RELEASING: [&str; 4] = ["unlocked", "answered", "undisturbed", "each"];

/// Functions whose callers release the lock.
const CALLED_WITHOUT: [&str; 2] = ["launch_unlocked", "function"];

fn last_word(text: &str) -> &str {
    let is_other = |c: char| !c.is_alphanumeric() && c != '_';
    text.rsplit(is_other).next().unwrap_or_default()
}

/// The function that the end of `text` is in, and the functions whose arguments it is in.
fn around(text: &str) -> (&str, Vec<&str>) {
    let body = text.rfind("fn ").map_or(text, |at| &text[at + 3..]);
    let name = body.split(['(', '<']).next().unwrap_or_default();
    let mut open = Vec::new();
    for (at, c) in body.char_indices() {
        match c {
            '(' => open.push(last_word(&body[..at])),
            ')' => drop(open.pop()),
            _ => {}
        }
    }
    (name, open)
}

/// The code of a file of `src`, without comments.
fn code(file: &Path) -> String {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file));
    let source = source.unwrap();
    let code: Vec<_> =
        source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    code.join("\n")
}

/// The code of the function `name`.
fn body_of<'c>(code: &'c str, name: &str) -> &'c str {
    let start = code.find(&format!("fn {name}")).unwrap();
    let end = code[start..].find("\n}").unwrap();
    &code[start..start + end]
}

#[test]
fn what_releases_the_lock_for_a_closure_does_so() {
    for (name, file, by) in [
        ("answered", "array/unlocked.rs", "unlocked("),
        ("undisturbed", "array/events.rs", "answered("),
        ("each", "array/events.rs", "unlocked("),
    ] {
        assert!(body_of(&code(Path::new(file)), name).contains(by), "{name}");
    }
}

#[test]
fn the_lock_is_taken_again_although_the_call_without_it_panics() {
    let code = code(Path::new("py/interpreter/mod.rs"));
    assert!(code.contains("PyEval_RestoreThread("));
    for (at, _) in code.match_indices("PyEval_RestoreThread(") {
        assert_eq!(around(&code[..at]).0, "drop", "a panic would leave it out");
    }
}

#[test]
fn what_may_block_is_called_without_the_interpreters_lock() {
    let (mut found, mut bad) = (0, Vec::new());
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/array")).unwrap() {
        let path = file.unwrap().path();
        let code = code(&path);
        for call in BLOCKING {
            for (at, _) in code.match_indices(call).filter(|(at, _)| !code[..*at].ends_with("fn "))
            {
                let (name, inside) = around(&code[..at]);
                found += 1;
                if !CALLED_WITHOUT.contains(&name)
                    && !inside.iter().any(|one| RELEASING.contains(one))
                {
                    bad.push(format!("{}: {call} in {name}", path.display()));
                }
            }
        }
    }
    assert!(found > 9, "the calls have other names now: {found}");
    assert_eq!(bad, [""; 0]);
}

#[test]
fn no_reference_is_made_to_a_structure_of_xlas() {
    let code = code(Path::new("py/libraries/jax.rs"));
    let note = body_of(&code, "note");
    assert!(note.contains("(*frame)"));
    for reference in ["&*", "&mut *", "as_ref()", "as_mut()"] {
        assert!(!note.contains(reference), "{reference}: XLA's structure may be smaller");
    }
}
