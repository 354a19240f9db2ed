//! Work: an operation as launched, captured and queued.

use std::fmt;
use std::sync::Arc;

use super::Simulated;
use super::clock::{Clock, Lane};
use super::processes::SharedEvent;
use crate::driver::Event;

pub type Action = dyn Fn(&Simulated) + Send + Sync;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub ptr: u64,
    pub len: u64,
}

#[derive(Clone)]
pub(super) enum Work {
    Run(Arc<Action>),
    Poison(u64),
    /// Does nothing when it runs: `launch_graph` orders the node after the event.
    External(Event),
    /// Marks this record of an event, and every earlier one, as reached, for all processes that share the event.
    Reach(SharedEvent, u64),
    /// Runs only once this record of the event is reached, or the process that recorded the event last has ended.
    Await(SharedEvent, u64),
}

impl Work {
    pub(super) fn is_free(&self) -> bool {
        !matches!(self, Self::Await(slot, record) if !slot.is_reached(*record))
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run(_) => "Run",
            Self::Poison(_) => "Poison",
            Self::External(_) => "External",
            Self::Reach(..) => "Reach",
            Self::Await(..) => "Await",
        })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) name: Arc<str>,
    pub(super) reads: Arc<[Span]>,
    pub(super) writes: Arc<[Span]>,
    pub(super) work: Work,
}

impl Operation {
    pub(super) fn external(event: Event) -> Self {
        let none: Arc<[Span]> = Arc::from(Vec::new());
        Self {
            name: "wait for an event outside".into(),
            reads: Arc::clone(&none),
            writes: none,
            work: Work::External(event),
        }
    }
}

/// A captured operation, at position `time` of `lane`, which is a branch of the capture.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) lane: Lane,
    pub(super) time: u64,
    pub(super) clock: Clock,
    pub(super) operation: Operation,
}
