//! What the bridge knows of an end before it asks a library or the driver.

use super::home::Home;
use super::used::{Consumer, Use};
use crate::device::Place;
use crate::lease::plan::{Outline, Works};
use crate::stream::Alive;

/// Both sides, as the outline of an end.
pub(super) struct Sides<'a> {
    pub(super) home: &'a Home,
    pub(super) used: &'a Use,
    pub(super) in_call: bool,
    /// Of an owner that the garbage collector found, unless its stream's keeper tells.
    pub(super) collected: bool,
}

impl Outline for Sides<'_> {
    #[inline(always)]
    fn consumer(&self) -> Works {
        match &self.used.consumer {
            Consumer::Nobody | Consumer::Unread => Works::Nobody,
            Consumer::Declined => Works::Declined,
            Consumer::OnProducer(_) => Works::OnProducer,
            Consumer::On(_) => Works::OnOne,
            Consumer::Unnamed(seen) if seen.is_empty() => Works::Unnamed,
            Consumer::Unnamed(_) | Consumer::Unkept(..) => Works::OnOthers,
        }
    }

    fn at(&self) -> Place {
        self.used.at
    }

    #[inline(always)]
    fn has_others(&self) -> bool {
        !self.used.also.is_empty()
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
