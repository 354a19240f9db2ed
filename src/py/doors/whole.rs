//! Converts whole trees: all arrays of a tree or none.

use std::sync::atomic::Ordering;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::batch::ArrayBatch;
use super::call_argument::Loans;
use super::converter::Converter;
use super::library_traits::LibraryTraits;
use super::to_dlpack::{is_on_gpu, is_on_host, says_as_taken};
use super::tree::{ConvertOptions, Converted, Root, Tree, said_at};
use super::walk::apart;
use crate::error::{Error, Kind};
use crate::py::interpreter::answered;
use crate::py::item_error::ItemError;
use crate::py::plain::is_of_numbers;

impl Converter {
    /// `None` if `x`, the argument of `convert`, is no tree. An error about one array names the array's place.
    pub(super) fn tree<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        root: &Root<'_, 'py>,
        how: &ConvertOptions<'_, 'py>,
    ) -> PyResult<Option<Converted<'py>>> {
        let (py, traits) = (x.py(), self.traits(x.py())?);
        let meets_hosts = self.meets_hosts.load(Ordering::Relaxed);
        let mut asks = meets_hosts || how.copy.is_some() || how.made_on.is_some();
        if !asks
            && matches!(root, Root::Given)
            && let Some(part) = only_part(x)
            && let Some(tree) = self.alone(x, &part, traits, how, &mut asks)?
        {
            return Ok(Some(Converted::unchanged(tree)));
        }
        loop {
            let mut tree = Tree::default();
            if !apart(self, traits, x, root, how, asks, &mut tree)? {
                return Ok(None);
            }
            if meets_hosts && !tree.met_host {
                self.meets_hosts.store(false, Ordering::Relaxed);
            }
            if tree.may_loop {
                asks = true;
                continue;
            }
            if tree.arrays.is_empty() && matches!(root, Root::Given) && is_of_numbers(x)? {
                let got = format!("a {} of numbers", x.get_type().name()?);
                return Err(Error::new(Kind::Numbers, got).into());
            }
            if tree.arrays.is_empty() && matches!(root, Root::Result) {
                return Ok(Some(Converted::unchanged(x.clone())));
            }
            if tree.has_capsules
                && let Some(binds) = how.binds
            {
                binds.call1((x,))?;
            }
            let made = if tree.is_foreign() && how.is_plain() {
                self.several(py, &tree.arrays, how)
            } else {
                self.leaves(py, &tree, how)
            };
            match made {
                Ok(mut batch) => {
                    let again = tree.rebuild(py, root, &batch.made)?;
                    // Do this last: if an earlier step fails, no capsule of the tree is consumed.
                    if let Err(wrong) = batch.consume(py) {
                        return Err(tree.named(py, root, wrong)?);
                    }
                    let (arrays, ArrayBatch { made, lent, .. }) = (tree.arrays, batch);
                    return Ok(again.map(|tree| Converted { tree, arrays, made, lent }));
                }
                Err(wrong) => {
                    // An error that is not an `Exception`, such as `KeyboardInterrupt`, says nothing about an array.
                    let item = wrong.item.filter(|_| wrong.error.is_instance_of::<PyException>(py));
                    let array = item.and_then(|item| tree.arrays.get(item));
                    if asks || !array.map_or(Ok(false), is_refused_host)? {
                        return Err(tree.named(py, root, wrong)?);
                    }
                    self.meets_hosts.store(true, Ordering::Relaxed);
                    asks = true;
                }
            }
        }
    }

    /// Converts `x`, a list or tuple whose only part is `part`. `None` if [`Self::tree`] must walk through `x`.
    fn alone<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        part: &Bound<'py, PyAny>,
        traits: &LibraryTraits,
        how: &ConvertOptions<'_, 'py>,
        asks: &mut bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = x.py();
        let is_own = traits.types.bind(py).iter_borrowed().any(|own| own.is(x.get_type()));
        if is_own || !how.is_plain() || !self.is_foreign(part, traits)? || !says_as_taken(part)? {
            return Ok(None);
        }
        let part = std::slice::from_ref(part);
        let made = self.several(py, part, how).and_then(|mut batch| {
            batch.consume(py)?;
            Ok(batch.made)
        });
        match made {
            Ok(made) if x.is_exact_instance_of::<PyList>() => {
                Ok(Some(PyList::new(py, made)?.into_any()))
            }
            Ok(made) => Ok(Some(PyTuple::new(py, made)?.into_any())),
            Err(ItemError { item, error })
                if item.is_none() || !error.is_instance_of::<PyException>(py) =>
            {
                Err(error)
            }
            Err(_) if is_on_host(&part[0])? => {
                self.meets_hosts.store(true, Ordering::Relaxed);
                *asks = true;
                Ok(None)
            }
            Err(wrong) => {
                let step = (None, 0_usize.into_pyobject(py)?.into_any());
                Err(said_at(wrong.error, &Root::Given.name(py), Ok(vec![step]))?)
            }
        }
    }
}

impl<'py> Converted<'py> {
    fn unchanged(tree: Bound<'py, PyAny>) -> Self {
        Self { tree, arrays: Vec::new(), made: Vec::new(), lent: Loans::new() }
    }
}

fn only_part<'py>(x: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if let Ok(list) = x.cast_exact::<PyList>() {
        (list.len() == 1).then(|| list.get_item(0).ok()).flatten()
    } else {
        let tuple = x.cast_exact::<PyTuple>().ok()?;
        (tuple.len() == 1).then(|| tuple.get_item(0).ok()).flatten()
    }
}

/// Whether `x`, which could not be imported, is on the host, and of a type for which [`says_as_taken`] is true.
#[cold]
fn is_refused_host(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(says_as_taken(x)? && answered(x.py(), is_on_gpu(x))? == Some(false))
}
