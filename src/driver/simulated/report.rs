//! What the simulated device found wrong.
//!
//! A report names both sides by the program's own names, an allocation by its label and the bytes
//! inside it, never by an address: the same program gives the same reports, word for word.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Simulated, State};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReportKind {
    /// Two accesses to the same bytes, at least one of them a write, that nothing orders.
    Race,
    /// An access to memory that the program freed before.
    UseAfterFree,
    /// A free of memory that is freed already, or of an address that is no allocation's start.
    InvalidFree,
    /// An access outside every allocation, or past the end of one.
    OutOfBounds,
    /// A call with a stream that was destroyed or never made. A real driver may die of it (SIGSEGV,
    /// H200, driver 580).
    DeadStream,
    /// A call with an event whose context was reset. A real driver dies of it (SIGSEGV, H200, driver
    /// 580).
    DeadEvent,
    /// A call with another thread's per-thread default stream. The handle, 2, names the calling
    /// thread's, so a real driver takes that one.
    ForeignThread,
    /// A kernel whose stand-in on the host failed, or panicked.
    FailedKernel,
}

impl ReportKind {
    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::UseAfterFree => "use after free",
            Self::InvalidFree => "invalid free",
            Self::OutOfBounds => "out of bounds",
            Self::DeadStream => "dead stream",
            Self::DeadEvent => "dead event",
            Self::ForeignThread => "another thread's stream",
            Self::FailedKernel => "failed kernel",
        }
    }
}

/// What an operation does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads it.
    Read,
    /// Writes it.
    Write,
    /// Frees it, which counts as a write of the whole allocation.
    Free,
}

/// Which bytes of which allocation, and what is done to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRange {
    /// The allocation's label; `None` outside every allocation.
    pub allocation: Option<Arc<str>>,
    /// The bytes, counted from the allocation's start.
    pub bytes: Range<u64>,
    /// What is done.
    pub access: AccessKind,
}

impl fmt::Display for AccessRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.access {
            AccessKind::Read => "reads",
            AccessKind::Write => "writes",
            AccessKind::Free => "frees",
        };
        match (&self.allocation, self.access) {
            (None, _) => write!(f, "{verb} an address outside every allocation"),
            (Some(label), AccessKind::Free) => write!(f, "{verb} {label}"),
            (Some(label), _) => {
                write!(f, "{verb} {label}[{}..{}]", self.bytes.start, self.bytes.end)
            }
        }
    }
}

/// One of the operations that a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The operation's name.
    pub operation: Arc<str>,
    /// Where it runs: a stream or the host, as in `stream#3 (device 0, non-blocking)`.
    pub place: Arc<str>,
    /// Its number among all operations and host accesses, in program order from 1; 0 for a driver
    /// call, which is neither.
    pub sequence: u64,
    /// What it does to memory.
    pub touched: Option<AccessRange>,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ", self.operation)?;
        if self.sequence == 0 {
            write!(f, "on {}", self.place)?;
        } else {
            write!(f, "(#{}, {})", self.sequence, self.place)?;
        }
        self.touched.as_ref().map_or(Ok(()), |touched| write!(f, " {touched}"))
    }
}

/// One thing that is wrong, in a readable line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub kind: ReportKind,
    /// The line.
    pub message: String,
    /// The earlier side, in program order, where there are two.
    pub first: Option<Side>,
    /// The later side, or the only one.
    pub second: Side,
}

impl Report {
    pub(super) fn new(kind: ReportKind, first: Option<Side>, second: Side, why: &str) -> Self {
        let message = match &first {
            Some(first) => format!("{}: {first}, then {second}: {why}", kind.as_str()),
            None => format!("{}: {second}: {why}", kind.as_str()),
        };
        Self { kind, message, first, second }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// How many reports are kept: the first ones, of which the others mostly follow.
pub const REPORTED: usize = 10_000;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Reports {
    kept: Vec<Report>,
    left_out: u64,
}

impl Reports {
    pub(super) fn push(&mut self, report: impl FnOnce() -> Report) {
        if self.kept.len() < REPORTED {
            self.kept.push(report());
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// How many there were.
    pub(super) fn found(&self) -> u64 {
        self.left_out.saturating_add(self.kept.len() as u64)
    }
}

impl State {
    /// Reports a driver call that was given a stream it should not have been.
    pub(super) fn report_stream(&mut self, kind: ReportKind, place: Arc<str>, why: &str) {
        let second = Side { operation: self.call.into(), place, sequence: 0, touched: None };
        self.reports.push(|| Report::new(kind, None, second, why));
    }
}

impl Simulated {
    /// Reports a kernel that could not do its work.
    pub(super) fn report_failed(&self, kernel: &str, why: &str) {
        let place = Arc::from("the simulated device");
        let side = Side { operation: kernel.into(), place, sequence: 0, touched: None };
        self.lock().reports.push(|| Report::new(ReportKind::FailedKernel, None, side, why));
    }

    /// What was found so far: the first [`REPORTED`].
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.kept.clone()
    }

    /// How many reports more there were than are kept.
    pub fn reports_left_out(&self) -> u64 {
        self.lock().reports.left_out
    }

    /// What was found so far, which is then forgotten.
    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports).kept
    }

    /// The number of the newest operation or host access, as [`Side::sequence`].
    pub fn sequence(&self) -> u64 {
        self.lock().sequence
    }

    /// How many entries the clocks of all streams and events have, for tests of what they take.
    pub fn clock_entries(&self) -> usize {
        let state = &mut *self.lock();
        let clocks = state.streams.clocks().chain(state.events.points());
        clocks.map(|clock| clock.len()).sum()
    }
}
