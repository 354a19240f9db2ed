//! What the bridge knows of an end before it asks a library or the driver.

use super::home::Home;
use super::used::{Consumer, Use};
use crate::device::Place;
use crate::lease::plan::Outline;
use crate::py::streams::KnownStream;
use crate::stream::Alive;

/// Both sides, as the outline of an end.
pub(super) struct Sides<'a> {
    pub(super) home: &'a Home,
    pub(super) used: &'a Use,
    /// Whether there is another user, whom the call names.
    pub(super) also: bool,
    pub(super) in_call: bool,
    /// Of an owner that the garbage collector found, unless its stream's keeper tells.
    pub(super) collected: bool,
}

impl Outline for Sides<'_> {
    type Stream = KnownStream;

    #[inline(always)]
    fn consumer(&self) -> &Consumer {
        &self.used.consumer
    }

    fn at(&self) -> Place {
        self.used.at
    }

    #[inline(always)]
    fn has_others(&self) -> bool {
        self.also || !self.used.also.is_empty()
    }

    #[inline(always)]
    fn has_upstream(&self) -> bool {
        !self.home.upstream.is_empty()
    }

    #[inline(always)]
    fn lent(&self) -> Option<Place> {
        self.used.lent
    }

    fn has_producer(&self) -> bool {
        self.home.producer.is_some()
    }

    fn is_producer(&self, stream: Alive<'_>) -> bool {
        self.home.is_producer(stream)
    }

    fn may_change(&self) -> bool {
        self.home.may_change()
    }

    fn may_move(&self) -> bool {
        self.home.may_move()
    }

    fn in_call(&self) -> bool {
        self.in_call
    }

    fn home(&self) -> Place {
        self.home.place
    }

    fn is_collected(&self) -> bool {
        self.collected
    }
}
