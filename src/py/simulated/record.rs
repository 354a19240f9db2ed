//! Converts race reports and the log of driver calls to plain tuples, and names of errors to their codes.

use pyo3::prelude::*;

use crate::driver::simulated::{AccessKind, CallRecord, Outcome, Report, Side, codes};

/// `(operation, place, sequence, allocation, start, stop, access)`.
type SideTuple = (String, String, u64, Option<String>, u64, u64, Option<&'static str>);

/// `(kind, message, first, second)`.
pub(super) type ReportTuple = (&'static str, String, Option<SideTuple>, SideTuple);

/// `(call, outcome, stream, event, context)`.
pub(super) type CallTuple = (&'static str, String, Option<u64>, Option<usize>, Option<usize>);

fn side(side: &Side) -> SideTuple {
    let (operation, place) = (side.operation.to_string(), side.place.to_string());
    let Some(touched) = &side.touched else {
        return (operation, place, side.sequence, None, 0, 0, None);
    };
    let access = match touched.access {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Free => "free",
    };
    let allocation = touched.allocation.as_ref().map(ToString::to_string);
    (
        operation,
        place,
        side.sequence,
        allocation,
        touched.bytes.start,
        touched.bytes.end,
        Some(access),
    )
}

pub(super) fn report(report: &Report) -> ReportTuple {
    let first = report.first.as_ref().map(side);
    (report.kind.as_str(), report.message.clone(), first, side(&report.second))
}

pub(super) fn call(record: &CallRecord) -> CallTuple {
    let outcome = match record.outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Suppressed => "suppressed".to_owned(),
        Outcome::Failed(code) => codes::name(code).to_owned(),
    };
    let arguments = record.arguments;
    (
        record.call.name(),
        outcome,
        arguments.stream.map(crate::stream::Stream::handle),
        arguments.event.map(|event| event.handle),
        arguments.context.map(|context| context.0.get()),
    )
}

pub(super) fn code(error: &Bound<'_, PyAny>) -> PyResult<u32> {
    if let Ok(name) = error.extract::<String>() {
        return codes::code(&name).ok_or_else(|| {
            let names: Vec<&str> = codes::ALL.iter().map(|(_, name)| *name).collect();
            let text = format!("error: got {name:?}; allowed: {}", names.join(", "));
            pyo3::exceptions::PyValueError::new_err(text)
        });
    }
    error.extract::<u32>()
}
