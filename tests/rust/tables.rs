//! Reads the contract tables.

use std::path::Path;

use toml::{Table, Value};

pub fn table(name: &str) -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn rows(table: &Table, key: &str) -> Vec<Table> {
    table[key].as_array().unwrap().iter().map(|row| row.as_table().unwrap().clone()).collect()
}

pub fn int(row: &Table, key: &str) -> i64 {
    row[key].as_integer().unwrap_or_else(|| panic!("{key} of {row:?}"))
}

pub fn text<'a>(row: &'a Table, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} of {row:?}"))
}

pub fn ints(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|item| item.as_integer().unwrap()).collect()
}
