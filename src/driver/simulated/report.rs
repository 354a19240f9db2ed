//! Reports of what the simulated device found wrong.
//!
//! A report names streams, operations and allocations by the program's names, or by numbers. Addresses would differ
//! from run to run.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{MachineState, Simulated};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReportKind {
    /// Two accesses to the same bytes, at least one of them a write, that nothing orders.
    Race,
    /// An access to memory that is freed at that point of the program's order. A queued free counts.
    UseAfterFree,
    /// A free of memory that is already freed, of an address at which no allocation starts, or of memory that another
    /// process has open.
    InvalidFree,
    /// An access that starts outside every allocation, or reaches past the end of one.
    OutOfBounds,
    /// A call with a handle that belongs to no live stream. A real driver may crash (SIGSEGV, H200, driver 580).
    DeadStream,
    /// A use of an event whose context was reset. A real driver may crash (SIGSEGV, H200, driver 580).
    DeadEvent,
    /// A call that names another thread's per-thread default stream. A real driver takes the handle 2 as the calling
    /// thread's stream.
    ForeignThread,
    /// A kernel whose `on_host` failed or panicked.
    FailedKernel,
}

impl ReportKind {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    Read,
    Write,
    /// Counts as a write of the whole allocation.
    Free,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRange {
    /// `None` outside every allocation.
    pub allocation: Option<Arc<str>>,
    /// Offsets in bytes, from the allocation's start; without an allocation, from the address used.
    pub bytes: Range<u64>,
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

/// An operation on a stream, an access of the host, a driver call or a failed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    pub operation: Arc<str>,
    /// The place, such as `stream#3 (device 0, non-blocking)`, `host` or `another process`.
    pub place: Arc<str>,
    /// Operations and accesses are numbered from 1, in program order. 0 for a driver call or a failed kernel.
    pub sequence: u64,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    pub message: String,
    pub first: Option<Side>,
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

/// The device keeps at most this many reports, and only counts later ones.
pub const REPORTED: usize = 10_000;

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

    pub(super) fn found(&self) -> u64 {
        self.left_out.saturating_add(self.kept.len() as u64)
    }
}

impl MachineState {
    pub(super) fn report_stream(&mut self, kind: ReportKind, place: Arc<str>, why: &str) {
        let second = Side { operation: self.call.into(), place, sequence: 0, touched: None };
        self.reports.push(|| Report::new(kind, None, second, why));
    }
}

impl Simulated {
    pub(super) fn report_failed(&self, kernel: &str, why: &str) {
        let place = Arc::from("the simulated device");
        let side = Side { operation: kernel.into(), place, sequence: 0, touched: None };
        self.lock().reports.push(|| Report::new(ReportKind::FailedKernel, None, side, why));
    }

    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.kept.clone()
    }

    /// The number of reports that were not kept, since the last call of [`Self::take_reports`].
    pub fn reports_left_out(&self) -> u64 {
        self.lock().reports.left_out
    }

    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports).kept
    }

    pub fn sequence(&self) -> u64 {
        self.lock().sequence
    }

    /// The number of entries in the vector clocks of all streams and events, outside captures.
    pub fn clock_entries(&self) -> usize {
        let state = &mut *self.lock();
        let clocks = state.streams.clocks().chain(state.events.points());
        clocks.map(|clock| clock.len()).sum()
    }
}
