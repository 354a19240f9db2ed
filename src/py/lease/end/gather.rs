//! Collects what [`end_rules`](crate::lease::end_rules) needs to know about an end: [`Sides`] without calling Python or
//! the driver, [`Gathered`] with the state of each stream.

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::device::Place;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::end_rules::{Found, Outline, Role};
use crate::lease::{Failure, Streams};
use crate::py::lease::consumer_side::{Consumer, ConsumerSide};
use crate::py::lease::producer_side::ProducerSide;
use crate::py::lease::warned;
use crate::py::streams::current::{self, Objects};
use crate::py::streams::{KnownStream, StreamName, StreamRef};
use crate::stream::Alive;

pub(super) struct Sides<'a> {
    pub(super) producer_side: &'a ProducerSide,
    pub(super) consumer_side: &'a ConsumerSide,
    /// Whether the caller named a user that `consumer_side` does not have.
    pub(super) names_user: bool,
    pub(super) in_call: bool,
    pub(super) collected: bool,
}

impl Outline for Sides<'_> {
    type Stream = KnownStream;

    #[inline(always)]
    fn consumer(&self) -> &Consumer {
        &self.consumer_side.consumer
    }

    fn at(&self) -> Place {
        self.consumer_side.at
    }

    #[inline(always)]
    fn has_further_users(&self) -> bool {
        self.names_user || !self.consumer_side.further.is_empty()
    }

    #[inline(always)]
    fn has_upstream(&self) -> bool {
        !self.producer_side.upstream.is_empty()
    }

    #[inline(always)]
    fn lent(&self) -> Option<Place> {
        self.consumer_side.lent
    }

    fn has_producer(&self) -> bool {
        self.producer_side.stream.is_some()
    }

    fn is_producer(&self, stream: Alive<'_>) -> bool {
        self.producer_side.is_producer(stream)
    }

    fn may_change(&self) -> bool {
        self.producer_side.may_change()
    }

    fn may_move(&self) -> bool {
        self.producer_side.may_move()
    }

    fn in_call(&self) -> bool {
        self.in_call
    }

    fn producer_place(&self) -> Place {
        self.producer_side.place
    }

    fn is_collected(&self) -> bool {
        self.collected
    }
}

pub(super) struct Gathered<'a> {
    driver: &'a Handle,
    pub(super) streams: SmallVec<[(Role, Found<'a>); 4]>,
    /// Users' streams that are not known to be alive, each with its index in `streams`.
    lost: SmallVec<[(usize, StreamName); 1]>,
    /// Handles of the producer's and upstream streams for which [`StreamRef::is_dropped`] is true.
    pub(super) dropped: SmallVec<[u64; 1]>,
    pub(super) line: Option<&'a warned::Line>,
}

pub(super) fn gather<'a>(
    py: Python<'_>,
    driver: &'a Handle,
    producer_side: &'a ProducerSide,
    consumer_side: &'a ConsumerSide,
    user: Option<Alive<'a>>,
) -> Result<Gathered<'a>, Failure<PyErr>> {
    let mut all = Gathered {
        driver,
        streams: SmallVec::new(),
        lost: SmallVec::new(),
        dropped: SmallVec::new(),
        line: None,
    };
    let nobody =
        matches!(consumer_side.consumer, Consumer::Nobody | Consumer::Unread | Consumer::Declined);
    if nobody && user.is_none() && consumer_side.further.is_empty() && consumer_side.lent.is_none()
    {
        return Ok(all);
    }
    let producer = match &producer_side.stream {
        Some(producer) => producer.confirm(py, driver)?,
        None => None,
    };
    all.add(Role::Producer, producer);
    if let (None, Some(kept)) = (producer, &producer_side.stream) {
        all.add_dropped(py, kept)?;
    }
    for known in producer_side.upstream.iter() {
        match known {
            KnownStream::Kept(kept) => match kept.confirm(py, driver)? {
                None => all.add_dropped(py, kept)?,
                alive => all.add(Role::Upstream, alive),
            },
            KnownStream::Lost(name) => {
                all.streams.push((Role::Upstream, Found::Lost(name.stream().handle())));
            }
        }
    }
    all.add(Role::Producer, producer_side.producer_also(py, driver)?);
    match &consumer_side.consumer {
        Consumer::Nobody | Consumer::Unread | Consumer::Declined => {}
        // If the producer moved to another stream, the consumer still works on the old stream.
        Consumer::OnProducer(kept) => match (producer, kept) {
            (Some(producer), _) if producer_side.is_producer(producer) => {
                all.add(Role::User, Some(producer));
            }
            (_, Some(kept)) => all.add_user(py, consumer_side, kept)?,
            (None, None) => all.add_where_dropped(producer_side),
            (producer, None) => all.add(Role::User, producer),
        },
        Consumer::On(known) => {
            all.line = consumer_side.line.as_deref();
            all.add_user(py, consumer_side, known)?;
        }
        Consumer::Unnamed(seen) => {
            for known in seen {
                all.add_user(py, consumer_side, known)?;
            }
        }
    }
    for known in consumer_side.further.iter() {
        all.add_user(py, consumer_side, known)?;
    }
    all.add(Role::User, user);
    all.add(Role::User, consumer_side.lent.map(Alive::legacy));
    Ok(all)
}

impl<'a> Gathered<'a> {
    fn add(&mut self, role: Role, alive: Option<Alive<'a>>) {
        self.streams.extend(alive.map(|alive| (role, Found::Alive(alive))));
    }

    fn add_dropped(&mut self, py: Python<'_>, kept: &StreamRef) -> Result<()> {
        if kept.is_dropped(py, self.driver)? {
            let handle = kept.stream().handle();
            self.dropped.push(handle);
            self.streams.push((Role::Upstream, Found::Lost(handle)));
        }
        Ok(())
    }

    /// If `dropped` is not empty, adds the producer's recorded stream as a user's stream that may be destroyed.
    fn add_where_dropped(&mut self, producer_side: &ProducerSide) {
        if let Some(kept) = producer_side.stream.as_ref().filter(|_| !self.dropped.is_empty()) {
            self.add_lost(kept.name());
        }
    }

    fn add_user(
        &mut self,
        py: Python<'_>,
        consumer_side: &ConsumerSide,
        known: &'a KnownStream,
    ) -> Result<(), Failure<PyErr>> {
        match known {
            KnownStream::Kept(kept) => self.add_kept(py, consumer_side, kept),
            KnownStream::Lost(name) => {
                self.add_lost(*name);
                Ok(())
            }
        }
    }

    fn add_kept(
        &mut self,
        py: Python<'_>,
        consumer_side: &ConsumerSide,
        kept: &'a StreamRef,
    ) -> Result<(), Failure<PyErr>> {
        match kept.confirm(py, self.driver)? {
            None if kept.is_of_this_life(self.driver)? => self.add_lost(kept.name()),
            // The stream's context was destroyed, and the stream's work with it.
            None => self.add(Role::User, Some(Alive::standing_in(consumer_side.at))),
            alive => self.add(Role::User, alive),
        }
        Ok(())
    }

    fn add_lost(&mut self, name: StreamName) {
        self.lost.push((self.streams.len(), name));
        self.streams.push((Role::User, Found::Lost(name.stream().handle())));
    }

    /// Call this last: Python code that runs later might drop a returned stream.
    pub(super) fn ask<'py: 'a>(
        &mut self,
        py: Python<'py>,
        consumer_side: &ConsumerSide,
        objects: &'a Objects<'py>,
    ) -> Result<Streams<'a>, Failure<PyErr>> {
        let mut libraries = Streams::new();
        current::each(py, self.driver, consumer_side.at, objects, |alive, _| {
            libraries.push(alive);
            Ok(())
        })?;
        for (place, name) in &self.lost {
            let users = self.streams.iter().filter_map(|(role, found)| match found {
                Found::Alive(alive) if *role == Role::User => Some(alive),
                _ => None,
            });
            let mut same = None;
            for alive in users.chain(&libraries) {
                if name.is(self.driver, *alive)? {
                    same = Some(*alive);
                }
            }
            if let Some(alive) = same {
                self.streams[*place].1 = Found::Met(alive);
            }
        }
        Ok(libraries)
    }
}
