//! What `convert` does with arrays that are already the library's own: returns them, copies, or new views.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::Optional;
use super::batch::ArrayBatch;
use super::call_argument::goes_on_with;
use super::converter::Converter;
use super::copies::{ArrayList, any, detached, device_of, taken, waited_for};
use super::from_cai::ready_on;
use super::library_traits::{LibraryTraits, Method};
use super::to_dlpack::is_on_host;
use super::tree::ConvertOptions;
use crate::error::{Error, Kind};
use crate::py::item_error::{ItemError, about};
use crate::py::producers::dlpack;
use crate::py::streams::StreamArgument;
use crate::py::views::BaseView;

const OWN: &str = "True for one of the library's own arrays";

impl Converter {
    /// Fails for a released view, an unreadable capsule, and `readonly=True` if the library may write to its arrays.
    pub(super) fn admit_own(
        &self,
        own: &[Bound<'_, PyAny>],
        how: &ConvertOptions<'_, '_>,
    ) -> Result<(), ItemError> {
        let Some(first) = own.first() else { return Ok(()) };
        let traits = self.traits(first.py())?;
        if how.stream.is_none() && how.readonly.is_none() && !traits.is_view() {
            return Ok(());
        }
        let argument = StreamArgument::parse(how.stream)?;
        let refused = how.readonly == Some(true) && traits.limits.writes;
        own.iter().enumerate().try_for_each(|(item, x)| {
            let admitted = match x.cast::<BaseView>() {
                Ok(view) => view.get().check_leased().map_err(PyErr::from),
                Err(_) if x.is_instance_of::<PyCapsule>() => dlpack::check_capsule(x, &argument),
                Err(_) if refused => Err(Error::new(Kind::ReadOnlyAsked, OWN).into()),
                Err(_) => Ok(()),
            };
            admitted.map_err(about(item))
        })
    }

    /// Makes the library's stream wait for `made_on`, the stream on which these arrays were made.
    fn order_own<'py>(
        &self,
        py: Python<'py>,
        own: &[Bound<'py, PyAny>],
        stream: Optional<'_, 'py>,
        made_on: &Bound<'py, PyAny>,
    ) -> Result<(), ItemError> {
        let own = own.iter().map(detached).collect::<PyResult<ArrayList<'_>>>()?;
        let views = taken(py, &own)?.made;
        for view in &views {
            let on = self.stream_on(py, device_of(view)?, stream)?;
            if !on.is_none() {
                goes_on_with(view, &on)?;
            }
        }
        let ready = views.iter().map(|view| ready_on(view, made_on));
        let ready = ready.collect::<PyResult<ArrayList<'_>>>()?;
        // The new arrays are dropped: they are made so that the library's stream waits.
        self.several(
            py,
            &ready,
            &ConvertOptions { readonly: Some(false), ..ConvertOptions::default() },
        )
        .map(drop)
    }

    /// Returns the arrays as they are, or copies, or new views. If the caller passed a stream other than -1, that
    /// stream waits for the arrays' pending work.
    pub(super) fn own<'py>(
        &self,
        py: Python<'py>,
        own: &[Bound<'py, PyAny>],
        how: &ConvertOptions<'_, 'py>,
    ) -> Result<ArrayBatch<'py>, ItemError> {
        let traits = self.traits(py)?;
        if let Some(made_on) = how.made_on {
            self.order_own(py, own, how.stream, made_on)?;
        }
        let mut batch = ArrayBatch { made: own.to_vec(), ..ArrayBatch::default() };
        if traits.is_numpy {
            for (item, array) in batch.made.iter_mut().enumerate() {
                *array = self.of_host(array, how).map_err(about(item))?;
            }
        } else if how.copy == Some(true) {
            let mut others = Vec::new();
            for (item, array) in own.iter().enumerate() {
                if is_on_host(array).map_err(about(item))? {
                    batch.made[item] = self.of_host(array, how).map_err(about(item))?;
                } else {
                    others.push(item);
                }
            }
            let copy = |item: &usize| {
                let copied = self.copied(traits, &own[*item], true, how.stream);
                copied.map_err(about(*item))
            };
            let copies = others.iter().map(copy).collect::<Result<ArrayList<'_>, _>>()?;
            if !copies.is_empty() {
                let on = waited_for(how.stream, how.copy);
                let how = ConvertOptions {
                    stream: on,
                    readonly: how.readonly,
                    ..ConvertOptions::default()
                };
                let made = self.several(py, &copies, &how);
                let mut made = made.map_err(|wrong| wrong.among(&others))?;
                made.consume(py).map_err(|wrong| wrong.among(&others))?;
                for (item, array) in others.iter().zip(made.made) {
                    batch.made[*item] = array;
                }
            }
        } else if traits.is_view() && !(how.stream.is_none() && how.readonly.is_none()) {
            return self.several(py, own, how);
        } else if let Some(stream) = how.stream {
            let ordered = own.iter().map(detached).collect::<PyResult<ArrayList<'_>>>()?;
            let ordered_on = ConvertOptions { stream: Some(stream), ..ConvertOptions::default() };
            let mut views = any(py)?.get().several(py, &ordered, &ordered_on)?;
            views.consume(py)?;
            // If the array is for a call, the view ends when the call ends. Otherwise the caller keeps using the array,
            // so end the view now, without an order.
            for view in views.made {
                let release = intern!(py, "release");
                if how.for_call {
                    batch.lent.push(view.getattr(release)?);
                } else {
                    goes_on_with(&view, stream)?;
                    view.call_method1(release, (-1,))?;
                }
            }
        }
        Ok(batch)
    }
}

impl LibraryTraits {
    const fn is_view(&self) -> bool {
        matches!(self.method, Method::View(_))
    }
}
