//! Several arrays at once: all of them are converted, or none.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyList};

use super::Optional;
use super::consumer_stream::ConsumerStream;
use super::hand_over::export_all;
use super::item::{at_item, refuse_twice};
use super::library::DOOR;
use super::maker::Maker;
use crate::py::flag;
use crate::py::lease::{Holding, Unconsumed};
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
        let readonly = flag::parse("readonly", readonly)?.or(to_library.readonly);
        let said = Argument::parse(stream)?;
        let mut sources = Vec::with_capacity(xs.len());
        for (item, x) in xs.iter().enumerate() {
            let taken = to_library.take(x, readonly, &said);
            sources.push(taken.map_err(|error| at_item(py, error, item))?);
        }
        // One alone has no others to be ordered with.
        if let [source] = &sources[..]
            && source.by != By::Capsule
            && let Some(source) = sources.pop()
        {
            let about = |error| at_item(py, error, 0);
            let made = self.hand_over(py, source, (said, stream, readonly), lent, about)?;
            return Ok(vec![made]);
        }
        refuse_twice(&sources, xs)?;
        let mut streams: Vec<ConsumerStream<'py>> = Vec::new();
        // Which of them each array is for.
        let mut numbers = Vec::with_capacity(sources.len());
        for source in &sources {
            let ordinal = consumers_place(&source.array, source.home.place).ordinal;
            let known = streams.iter().position(|asked| asked.ordinal == ordinal);
            numbers.push(known.unwrap_or(streams.len()));
            if known.is_none() {
                let library = self.library.bind(py);
                streams.push(ConsumerStream::of(library, to_library, ordinal, stream)?);
            }
        }
        // Of none where the caller has said one for all; its object is asked once.
        let current = if stream.is_some() { &[][..] } else { &streams[..] };
        let arguments =
            current.iter().map(ConsumerStream::argument).collect::<PyResult<Vec<_>>>()?;
        export_all(DOOR, py, &mut sources, |item| arguments.get(numbers[item]).unwrap_or(&said))
            .map_err(|(item, error)| at_item(py, error, item))?;
        let held = |(item, source): (usize, &mut Box<Holding>)| {
            Some((item, dlpack::consume_later(py, source)?))
        };
        let unconsumed: Vec<_> = sources.iter_mut().enumerate().filter_map(held).collect();
        let mut made = Vec::with_capacity(sources.len());
        for (item, source) in sources.into_iter().enumerate() {
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
