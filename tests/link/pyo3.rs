//! A class that extends a built-in one, which the stable ABI of Python 3.11 cannot.

use cai_bridge::Array;
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pyclass(extends = PyDict)]
struct Named;

#[pyfunction]
fn pass(x: Array) -> Array {
    x
}

#[pymodule]
mod named {
    #[pymodule_export]
    use super::{Named, pass};
}

fn main() {}
