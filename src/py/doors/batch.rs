//! Converts several arrays at once: all or none.

use std::collections::HashSet;

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::Optional;
use super::call_argument::{CallArgument, Loans};
use super::consumer_stream::ConsumerStream;
use super::converter::Converter;
use super::library_traits::{DOOR, LibraryTraits};
use super::tree::ConvertOptions;
use crate::error::{Error, Kind};
use crate::py::hand_over::{Recipient, hand_over, hand_over_all};
use crate::py::interpreter::Signals;
use crate::py::item_error::{ItemError, about};
use crate::py::lease::{HeldMemory, Unconsumed};
use crate::py::observe::By;
use crate::py::producers::dlpack;
use crate::py::source::consumers_place;
use crate::py::streams::StreamArgument;

#[derive(Default)]
pub(super) struct ArrayBatch<'py> {
    pub(super) made: Vec<Bound<'py, PyAny>>,
    /// Imported capsules that [`Self::consume`] must still consume, each with its array's index.
    pub(super) unconsumed: Vec<(usize, Unconsumed)>,
    pub(super) lent: Loans<'py>,
}

impl ArrayBatch<'_> {
    pub(super) fn consume(&mut self, py: Python<'_>) -> Result<(), ItemError> {
        let mut capsules = std::mem::take(&mut self.unconsumed).into_iter();
        capsules.try_for_each(|(item, capsule)| capsule.consume(py).map_err(about(item)))
    }
}

impl Converter {
    /// Imports `xs`, and makes one of the library's arrays from each. If one fails, returns none. Consumes no capsule:
    /// after success, the caller must consume those in [`ArrayBatch::unconsumed`].
    pub(super) fn several<'py>(
        &self,
        py: Python<'py>,
        xs: &[Bound<'py, PyAny>],
        how: &ConvertOptions<'_, 'py>,
    ) -> Result<ArrayBatch<'py>, ItemError> {
        let (traits, stream) = (self.traits(py)?, how.stream);
        let readonly = how.readonly.or(traits.limits.readonly);
        let named = StreamArgument::parse(stream)?;
        let mut batch = ArrayBatch::default();
        let room = if xs.len() == 1 { 0 } else { xs.len() };
        let (mut sources, mut capsules) = (Vec::with_capacity(room), Vec::new());
        let (mut ordinals, mut numbers) = (SmallVec::<[_; 2]>::new(), SmallVec::<[_; 4]>::new());
        let mut signals = Signals::default();
        for (item, x) in xs.iter().enumerate() {
            signals.look(py)?;
            let mut source = traits.take(x, readonly, &named).map_err(about(item))?;
            if source.by == By::Capsule {
                capsules.push(item);
            } else if xs.len() == 1 {
                let asked = self.hand_over(py, traits, &mut source, named, stream)?;
                let how = ConvertOptions { stream: asked.answer.as_ref(), readonly, ..*how };
                let array = self.make_for_call(py, traits, source, &how, &mut batch.lent);
                batch.made.push(array.map_err(about(0))?);
                return Ok(batch);
            }
            let ordinal = consumers_place(&source.array, source.producer_side.place).ordinal;
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
            .map(|ordinal| ConsumerStream::of(library, traits, ordinal, stream))
            .collect::<PyResult<_>>()?;
        // Empty if the caller named a stream: a stream object is asked only once.
        let current = if stream.is_some() { &[][..] } else { &streams[..] };
        let arguments = current
            .iter()
            .map(|asked| asked.argument().map_err(|error| asked.explain(library, error)))
            .collect::<PyResult<Vec<_>>>()?;
        let to = |item: usize| Recipient::of(arguments.get(numbers[item]).unwrap_or(&named));
        hand_over_all(DOOR, py, &mut sources, to).map_err(|wrong| {
            let of = wrong.item.map_or(0, |item| numbers[item]);
            wrong.map(|error| streams[of].explain(library, error))
        })?;
        let held = |item: usize| Some((item, dlpack::consume_later(py, &mut sources[item])?));
        batch.unconsumed = capsules.into_iter().filter_map(held).collect();
        batch.made.reserve(sources.len());
        for (item, mut source) in sources.into_iter().enumerate() {
            signals.look(py)?;
            traits.limits.name_device(&mut source);
            let answer = streams[numbers[item]].answer.as_ref();
            let how = ConvertOptions { stream: answer, readonly, ..*how };
            let array = self.make_for_call(py, traits, source, &how, &mut batch.lent);
            batch.made.push(array.map_err(about(item))?);
        }
        // Python code may have consumed a capsule since its import.
        for (item, capsule) in &batch.unconsumed {
            capsule.check(py).map_err(about(*item))?;
        }
        Ok(batch)
    }

    pub(super) fn hand_over<'py>(
        &self,
        py: Python<'py>,
        traits: &LibraryTraits,
        source: &mut HeldMemory,
        named: StreamArgument<'_, 'py>,
        stream: Optional<'_, 'py>,
    ) -> Result<ConsumerStream<'py>, ItemError> {
        let at = consumers_place(&source.array, source.producer_side.place);
        let library = self.library.bind(py);
        let asked = ConsumerStream::of(library, traits, at.ordinal, stream)?;
        let explained = |error| asked.explain(library, error);
        let argument =
            if stream.is_some() { named } else { asked.argument().map_err(explained)? };
        let handed_over = hand_over(DOOR, py, source, &Recipient::of(&argument));
        handed_over.map_err(|error| about(0)(explained(error)))?;
        traits.limits.name_device(source);
        Ok(asked)
    }

    /// Like [`Self::make`]. For a call, also adds an object to `lent`; calling the object ends the array's loan.
    fn make_for_call<'py>(
        &self,
        py: Python<'py>,
        traits: &LibraryTraits,
        mut source: Box<HeldMemory>,
        how: &ConvertOptions<'_, 'py>,
        lent: &mut Loans<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !how.for_call {
            return self.make(py, traits, source, how.readonly, how.stream);
        }
        let watched = CallArgument::of(py, &mut source)?;
        let array = self.make(py, traits, source, how.readonly, how.stream)?;
        lent.push(Bound::new(py, watched.made(&array))?.into_any());
        Ok(array)
    }
}

/// Fails if `xs` has one capsule twice. `capsules` has the indices of the capsules.
fn refuse_twice(capsules: &[usize], xs: &[Bound<'_, PyAny>]) -> Result<(), ItemError> {
    let mut seen = HashSet::new();
    match capsules.iter().find(|item| !seen.insert(xs[**item].as_ptr() as usize)) {
        Some(&item) => {
            let twice = Error::new(Kind::CapsuleUsed, "one that is there twice");
            Err(about(item)(twice.into()))
        }
        None => Ok(()),
    }
}
