//! Reports of what the simulated device found wrong.
//!
//! A report uses the program's own names for both sides, and an allocation's label with a range of bytes. It shows no
//! address of memory: the same program gives the same reports, word for word.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{MachineState, Simulated};

/// The kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReportKind {
    /// Two accesses to the same bytes, at least one of them a write, that nothing orders.
    Race,
    /// An access to memory that was freed before.
    UseAfterFree,
    /// A free of memory that is already freed, or of an address at which no allocation starts.
    InvalidFree,
    /// An access outside every allocation, or past the end of one.
    OutOfBounds,
    /// A call with a destroyed stream, or with a handle that never was one. A real driver may crash (SIGSEGV, H200,
    /// driver 580).
    DeadStream,
    /// A call with an event whose context was reset. A real driver crashes (SIGSEGV, H200, driver 580).
    DeadEvent,
    /// A call with another thread's per-thread default stream. A real driver would use the calling thread's, since
    /// the handle 2 means that.
    ForeignThread,
    /// A kernel whose stand-in on the host failed or panicked.
    FailedKernel,
}

impl ReportKind {
    /// The kind's name in messages.
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
    /// The operation reads the memory.
    Read,
    /// The operation writes the memory.
    Write,
    /// The operation frees the memory, which counts as a write of the whole allocation.
    Free,
}

/// The bytes of an allocation, and the kind of access to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRange {
    /// The allocation's label; `None` outside every allocation.
    pub allocation: Option<Arc<str>>,
    /// The range of bytes, from the allocation's start.
    pub bytes: Range<u64>,
    /// The kind of access.
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

/// One of the operations in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The operation's name.
    pub operation: Arc<str>,
    /// The stream or the host, as in `stream#3 (device 0, non-blocking)`.
    pub place: Arc<str>,
    /// The operation's number among all operations and host accesses, in program order from 1. 0 for a driver call,
    /// which is neither.
    pub sequence: u64,
    /// The memory that the operation accesses.
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

/// A mistake, described in a readable line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kind of mistake.
    pub kind: ReportKind,
    /// The description.
    pub message: String,
    /// The side that comes first in program order, if there are two.
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

/// How many reports are kept: the first ones, since later ones mostly follow from them.
pub const REPORTED: usize = 10_000;

/// The reports so far.
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

    /// The number of reports, kept or not.
    pub(super) fn found(&self) -> u64 {
        self.left_out.saturating_add(self.kept.len() as u64)
    }
}

impl MachineState {
    /// Reports a driver call with a wrong stream or event, which `place` names.
    pub(super) fn report_stream(&mut self, kind: ReportKind, place: Arc<str>, why: &str) {
        let second = Side { operation: self.call.into(), place, sequence: 0, touched: None };
        self.reports.push(|| Report::new(kind, None, second, why));
    }
}

impl Simulated {
    /// Adds the report of a kernel whose stand-in on the host failed or panicked. `why` is the error's or the panic's
    /// text.
    pub(super) fn report_failed(&self, kernel: &str, why: &str) {
        let place = Arc::from("the simulated device");
        let side = Side { operation: kernel.into(), place, sequence: 0, touched: None };
        self.lock().reports.push(|| Report::new(ReportKind::FailedKernel, None, side, why));
    }

    /// The reports so far, at most [`REPORTED`].
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.kept.clone()
    }

    /// The number of reports that were not kept.
    pub fn reports_left_out(&self) -> u64 {
        self.lock().reports.left_out
    }

    /// Returns the reports so far, and forgets them.
    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports).kept
    }

    /// The number of the latest operation or host access, as in [`Side::sequence`].
    pub fn sequence(&self) -> u64 {
        self.lock().sequence
    }

    /// The number of entries in the clocks of all streams and events, for tests of their size.
    pub fn clock_entries(&self) -> usize {
        let state = &mut *self.lock();
        let clocks = state.streams.clocks().chain(state.events.points());
        clocks.map(|clock| clock.len()).sum()
    }
}
