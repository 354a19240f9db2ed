//! Reports of what the simulated device found wrong.
//!
//! A report has the program's own names of streams, operations and allocations. A stream or an allocation without such
//! a name has a number instead. No report shows an address of memory, which would differ from run to run. Only the text
//! of a failed kernel may.

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
    /// An access to freed memory. The free comes first in program order, whatever orders the two on the device.
    UseAfterFree,
    /// A free of memory that is already freed, of an address at which no allocation starts, or of memory that another
    /// process has open. A free of memory that was lost in a reset of its context is only an error.
    InvalidFree,
    /// An access that starts outside every allocation, or reaches past the end of one.
    OutOfBounds,
    /// A call with the handle of a destroyed stream, or with a number that never was a stream's handle. A real driver
    /// may crash (SIGSEGV, H200, driver 580).
    DeadStream,
    /// A call that records or queries an event whose context was reset, or waits for it. A real driver may crash
    /// (SIGSEGV in `cuEventQuery`, H200, driver 580).
    DeadEvent,
    /// A record, a wait or a capture query that names another thread's per-thread default stream. The call takes the
    /// calling thread's own stream, as a real driver would: the handle 2 means that stream.
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
    /// The range of bytes, counted from the allocation's start. Outside every allocation it starts at 0, and has the
    /// length of the access, or 0 for a free.
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

/// One side of a report: an operation on a stream, an access of the host, a driver call or a failed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The name of the operation, the host's access or the kernel. A driver call has its entry point's name.
    pub operation: Arc<str>,
    /// Where the operation runs, or what the driver call is about, such as `stream#3 (device 0, non-blocking)` or
    /// `host`.
    pub place: Arc<str>,
    /// The number of the operation or host access. Both are counted together from 1, in program order. 0 for a driver
    /// call and for a failed kernel, which are not counted.
    pub sequence: u64,
    /// The memory that this side accesses or frees; `None` for a misused stream or event and for a failed kernel.
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

/// A mistake of the program that the simulated device found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kind of mistake.
    pub kind: ReportKind,
    /// The kind, the sides and the reason, as text.
    pub message: String,
    /// The side that comes first in program order; `None` if there is only one side.
    pub first: Option<Side>,
    /// The later side, or the only side.
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

/// How many reports are kept: the first reports, because later ones mostly follow from them.
pub const REPORTED: usize = 10_000;

/// The kept reports, and the number of further reports, since the last [`Simulated::take_reports`].
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

    /// The number of reports since the last [`Simulated::take_reports`], kept or not.
    pub(super) fn found(&self) -> u64 {
        self.left_out.saturating_add(self.kept.len() as u64)
    }
}

impl MachineState {
    /// Reports the current driver call for a wrong stream or event. `place` is the name of the stream or event.
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

    /// The first [`REPORTED`] reports since the last [`Self::take_reports`].
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.kept.clone()
    }

    /// The number of reports since the last [`Self::take_reports`] that were not kept.
    pub fn reports_left_out(&self) -> u64 {
        self.lock().reports.left_out
    }

    /// Returns the kept reports and forgets them. [`Self::reports_left_out`] counts from 0 again.
    pub fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lock().reports).kept
    }

    /// The number of the latest operation or host access, as in [`Side::sequence`]; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.lock().sequence
    }

    /// The number of entries in the clocks of all streams and events, without those inside captures. For tests of the
    /// clocks' size.
    pub fn clock_entries(&self) -> usize {
        let state = &mut *self.lock();
        let clocks = state.streams.clocks().chain(state.events.points());
        clocks.map(|clock| clock.len()).sum()
    }
}
