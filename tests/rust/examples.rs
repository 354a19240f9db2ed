//! Every item of the crate's face has an example, which `cargo test --doc` compiles.

use std::fs;
use std::path::Path;

const ITEMS: [&str; 8] = [
    "pub fn ",
    "pub const fn ",
    "pub unsafe fn ",
    "pub struct ",
    "pub enum ",
    "pub type ",
    "pub trait ",
    "pub unsafe trait ",
];

#[test]
fn every_public_item_of_the_face_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut seen, mut bare) = (0, Vec::new());
    for folder in ["array", "testing", "py/rust"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let is_item = ITEMS.iter().any(|item| line.starts_with(item));
                if !is_item || line.contains("Sealed") {
                    continue;
                }
                // Docs, and attributes of one line or several.
                let above = |line: &&&str| {
                    line.starts_with("///") || !(line.is_empty() || line.ends_with(['{', '}', ';']))
                };
                let docs: Vec<&str> = lines[..at].iter().rev().take_while(above).copied().collect();
                if docs.contains(&"#[doc(hidden)]") {
                    continue;
                }
                seen += 1;
                if !docs.contains(&"/// # Examples") {
                    bare.push(format!("{}:{}: {line}", path.display(), at + 1));
                }
            }
        }
    }
    assert!(seen > 60, "only {seen} items found: does the search still see them?");
    assert!(bare.is_empty(), "without an example: {bare:#?}");
}
