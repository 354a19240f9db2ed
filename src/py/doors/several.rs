//! Several arrays at once: all of them are converted, or none.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyList};
use smallvec::SmallVec;

use super::Optional;
use super::consumer_stream::ConsumerStream;
use super::item::{at_item, refuse_twice};
use super::library::DOOR;
use super::maker::Maker;
use crate::py::flag;
use crate::py::hand_over::{ItemError, To, hand_over_all};
use crate::py::interpreter::Signals;
use crate::py::lease::Unconsumed;
use crate::py::observe::By;
use crate::py::producers::dlpack;
use crate::py::source::consumers_place;
use crate::py::streams::Argument;

impl Maker {
    /// Converts arrays, as `convert` of Python's object does.
    pub(super) fn several<'py>(
        &self,
        py: Python<'py>,
        xs: &[Bound<'py, PyAny>],
        (stream, readonly): (Optional<'_, 'py>, Optional<'_, 'py>),
        lent: Option<&Bound<'py, PyList>>,
        later: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let to_library = self.to_library(py)?;
        let readonly = flag::parse("readonly", readonly)?.or(to_library.limits.readonly);
        let said = Argument::parse(stream)?;
        // One alone has no others to be ordered with, and needs no room.
        let room = if xs.len() == 1 { 0 } else { xs.len() };
        let (mut sources, mut capsules) = (Vec::with_capacity(room), Vec::new());
        // The GPUs that the arrays are for, and which of them each is for.
        let (mut ordinals, mut numbers) = (SmallVec::<[_; 2]>::new(), SmallVec::<[_; 4]>::new());
        let mut signals = Signals::default();
        for (item, x) in xs.iter().enumerate() {
            signals.look(py)?;
            let taken = to_library.take(x, readonly, &said);
            let source = taken.map_err(|error| at_item(py, error, item))?;
            if source.by == By::Capsule {
                capsules.push(item);
            } else if xs.len() == 1 {
                let about = |error| at_item(py, error, 0);
                let made = self.hand_over(py, source, (said, stream, readonly), lent, about)?;
                return Ok(vec![made]);
            }
            let ordinal = consumers_place(&source.array, source.home.place).ordinal;
            let known = ordinals.iter().position(|known| *known == ordinal);
            numbers.push(known.unwrap_or(ordinals.len()));
            if known.is_none() {
                ordinals.push(ordinal);
            }
            sources.push(source);
        }
        refuse_twice(&capsules, xs)?;
        let (library, of) = (self.library.bind(py), ordinals.into_iter());
        let streams: Vec<ConsumerStream<'py>> = of
            .map(|ordinal| ConsumerStream::of(library, to_library, ordinal, stream))
            .collect::<PyResult<_>>()?;
        // Of none where the caller has said one for all; its object is asked once.
        let current = if stream.is_some() { &[][..] } else { &streams[..] };
        let arguments = current
            .iter()
            .map(|asked| asked.argument().map_err(|error| asked.explain(library, error)))
            .collect::<PyResult<Vec<_>>>()?;
        let to = |item: usize| To::of(arguments.get(numbers[item]).unwrap_or(&said));
        hand_over_all(DOOR, py, &mut sources, to).map_err(|ItemError { item, error }| {
            at_item(py, streams[numbers[item]].explain(library, error), item)
        })?;
        let held = |item: usize| Some((item, dlpack::consume_later(py, &mut sources[item])?));
        let unconsumed: Vec<_> = capsules.into_iter().filter_map(held).collect();
        let mut made = Vec::with_capacity(sources.len());
        for (item, mut source) in sources.into_iter().enumerate() {
            signals.look(py)?;
            to_library.limits.name_device(&mut source);
            let answer = streams[numbers[item]].answer.as_ref();
            let array = self.make_for_call(py, to_library, source, (readonly, answer), lent);
            made.push(array.map_err(|error| at_item(py, error, item))?);
        }
        // Last: what is refused before leaves capsules as they were.
        for (item, capsule) in &unconsumed {
            capsule.check(py).map_err(|error| at_item(py, error, *item))?;
        }
        for (item, capsule) in unconsumed {
            match later {
                None => capsule.consume(py).map_err(|error| at_item(py, error, item))?,
                Some(later) => later.append(consumes(py, capsule)?)?,
            }
        }
        Ok(made)
    }
}

/// A function that consumes a capsule.
fn consumes(py: Python<'_>, capsule: Unconsumed) -> PyResult<Bound<'_, PyCFunction>> {
    PyCFunction::new_closure(py, None, None, move |args, _| capsule.consume(args.py()))
}
