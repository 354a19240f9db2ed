//! Whole trees: their arrays are converted, all or none, and the trees made again of them.

use std::sync::atomic::Ordering;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use super::item::item_of;
use super::maker::Maker;
use super::to_dlpack::{is_on_gpu, says_as_taken};
use super::tree::{Converted, How, Root, Tree};
use super::walk::apart;
use crate::py::interpreter::answered;

impl Maker {
    /// Converts the arrays of a tree, all or none, and makes the tree again of them; `None` for what is given to
    /// `convert` and is no tree. What is refused is named by its place.
    pub(super) fn tree<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        root: &Root<'_, 'py>,
        how: &How<'_, 'py>,
    ) -> PyResult<Option<Converted<'py>>> {
        let (py, to_library) = (x.py(), self.to_library(x.py())?);
        let meets_hosts = self.meets_hosts.load(Ordering::Relaxed);
        let mut asks = meets_hosts || how.copy.is_some() || how.made_on.is_some();
        loop {
            let mut tree = Tree::default();
            if !apart((self, to_library), x, root, how, asks, &mut tree)? {
                return Ok(None);
            }
            if meets_hosts && !tree.met_host {
                self.meets_hosts.store(false, Ordering::Relaxed);
            }
            if tree.may_loop {
                asks = true;
                continue;
            }
            if tree.arrays.is_empty() && matches!(root, Root::Result) {
                return Ok(Some(Converted {
                    tree: x.clone(),
                    arrays: Vec::new(),
                    made: Vec::new(),
                }));
            }
            if tree.has_capsules
                && let Some(binds) = how.binds
            {
                binds.call1((x,))?;
            }
            let later = tree.has_capsules.then(|| PyList::empty(py));
            match self.made_of(py, &tree, how, later.as_ref()) {
                Ok(made) => {
                    let again = tree.rebuild(py, root, &made)?;
                    // Last: what is refused before leaves capsules as they were.
                    for consume in later.iter().flatten() {
                        consume.call0()?;
                    }
                    let arrays = tree.arrays;
                    return Ok(again.map(|tree| Converted { tree, arrays, made }));
                }
                Err(error) => {
                    let item = item_of(py, &error);
                    let array = item.and_then(|item| tree.arrays.get(item));
                    if asks || !array.map_or(Ok(false), is_refused_host)? {
                        return Err(tree.named(py, root, error, item)?);
                    }
                    // It stays as it is, or is converted otherwise; and so do those of the next batch, probably.
                    self.meets_hosts.store(true, Ordering::Relaxed);
                    asks = true;
                }
            }
        }
    }

    /// Converts the arrays of a tree. To `later` a function for each capsule that consumes it is added.
    fn made_of<'py>(
        &self,
        py: Python<'py>,
        tree: &Tree<'py>,
        how: &How<'_, 'py>,
        later: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        static LEAVES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if tree.is_foreign() && how.is_plain() {
            return self.several(py, &tree.arrays, (how.stream, how.readonly), how.lent, later);
        }
        let leaves = LEAVES.import(py, "cai_bridge._convert", "leaves")?;
        let arrays = PyList::new(py, &tree.arrays)?;
        let named = PyDict::new(py);
        named.set_item(intern!(py, "stream"), how.stream)?;
        named.set_item(intern!(py, "readonly"), how.readonly)?;
        named.set_item(intern!(py, "copy"), how.copy)?;
        named.set_item(intern!(py, "detach"), how.detach)?;
        named.set_item(intern!(py, "made_on"), how.made_on)?;
        named.set_item(intern!(py, "lent"), how.lent)?;
        let by_place = (arrays, &*tree.hosts, &*tree.own, &self.library, later);
        leaves.call(by_place, Some(&named))?.extract()
    }
}

/// Whether an array that was refused is one on the host. Where it cannot say that, the refusal stands.
#[cold]
fn is_refused_host(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(says_as_taken(x)? && answered(x.py(), is_on_gpu(x))? == Some(false))
}
