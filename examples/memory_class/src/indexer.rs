//! Converts between indices and positions in C order.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

/// Positions of a shape's elements in C order. `indexer((i, j))` returns a position, and `get_indices` converts it
/// back.
#[pyclass(frozen)]
pub(crate) struct ArrayIndexer {
    shape: Vec<i64>,
}

impl ArrayIndexer {
    pub(crate) fn new(shape: &[i64]) -> Self {
        Self { shape: shape.to_vec() }
    }
}

fn refused(got: impl std::fmt::Debug, allowed: impl std::fmt::Display) -> PyErr {
    PyIndexError::new_err(format!("index: got {got:?}; allowed: {allowed}"))
}

#[pymethods]
impl ArrayIndexer {
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The position of the element at `indices`.
    pub(crate) fn __call__(&self, indices: Vec<i64>) -> PyResult<i64> {
        let inside = indices.iter().zip(&self.shape).all(|(i, extent)| (0..*extent).contains(i));
        if indices.len() != self.shape.len() || !inside {
            let shape = &self.shape;
            return Err(refused(
                indices,
                format_args!("an index from 0 for each dimension of {shape:?}"),
            ));
        }
        Ok(indices.iter().zip(&self.shape).fold(0, |at, (i, extent)| at * extent + i))
    }

    /// The indices of the element at position `index`.
    fn get_indices(&self, index: i64) -> PyResult<Vec<i64>> {
        if !(0..self.size()).contains(&index) {
            return Err(refused(index, format_args!("0 to {}", self.size() - 1)));
        }
        let mut left = index;
        let mut indices: Vec<i64> = self
            .shape
            .iter()
            .rev()
            .map(|extent| {
                let i = left % extent;
                left /= extent;
                i
            })
            .collect();
        indices.reverse();
        Ok(indices)
    }
}
