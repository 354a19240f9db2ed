//! `release()`, and the end of a `with` block.
//!
//! To make the orders may run anything: a stream object is asked, the interpreter's lock is let go. Other threads may
//! release the view then, and this one may come back. So each release makes the orders itself, with the view's holder
//! still in its place, and ends the view after that, unless another has done so meanwhile. When any of them returns,
//! the orders are made.

use pyo3::prelude::*;

use super::View;
use crate::lease::Settlement;
use crate::local::local;
use crate::order;
use crate::py::lease::{Orders, look};
use crate::py::local::Stack;
use crate::py::observe::{CallSpan, End, Outcome};
use crate::py::source::check_argument;
use crate::py::streams::Argument;
use crate::stream::Request;

/// How often a thread may be in releases of one view, by what they run. A deeper one does nothing: those around it
/// make the orders.
const DEEPEST: usize = 2;

local! {
    /// The views that this thread is releasing, by their addresses.
    static RELEASING: Stack<usize> = const { Stack::new() };
}

fn address(view: &View) -> usize {
    std::ptr::from_ref(view).addr()
}

/// Whether this thread is in as many releases of `view` as it may be.
fn is_deepest(view: &View) -> bool {
    let depth = RELEASING.with(|releasing| releasing.count(|known| *known == address(view)));
    depth.is_some_and(|depth| depth >= DEEPEST)
}

/// A release that has begun, until dropped.
struct ReleaseGuard<'a>(&'a View);

impl<'a> ReleaseGuard<'a> {
    fn new(view: &'a View) -> Self {
        RELEASING.with(|releasing| releasing.push(address(view)));
        Self(view)
    }
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        RELEASING.with(|releasing| releasing.take(|known| *known == address(self.0)));
        self.0.lease.stop();
    }
}

impl View {
    /// Makes the orders of an end where nothing but a Python object keeps the memory, which the garbage collector has
    /// found as well; the view goes on.
    pub(super) fn order_for_collector(&self, py: Python<'_>) -> PyResult<()> {
        let orders = self.lease.with(|tenant| {
            let holding = tenant.holding().filter(|holding| holding.is_by_object())?;
            Orders::for_collector(holding, py)
        });
        let Some(mut orders) = orders.flatten() else { return Ok(()) };
        if let Settlement::Until(marks) = orders.make(py, None)? {
            order::forget(&self.driver, marks);
        }
        Ok(())
    }

    /// Gives the memory back: the producer's stream waits for the consumer's and for the one that
    /// `stream` names, then the references go. Where the order fails, everything stays as it was.
    pub(super) fn give_back(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        end: End,
    ) -> PyResult<()> {
        let span = CallSpan::begin();
        let argument = Argument::parse(stream)?;
        let also = argument.alive(self.at()).filter(|_| self.array.ptr() != 0);
        // With -1 the caller vouches that the consumer is done.
        let is_ordered = argument.request() != Request::NoOrder;
        if is_deepest(self) {
            return Ok(());
        }
        let begun = self.lease.begin(|tenant| {
            let holding = tenant.holding().filter(|_| is_ordered)?;
            Orders::of(holding, py, also.is_some())
        });
        let Some(orders) = begun else { return Ok(()) };
        let _releasing = ReleaseGuard::new(self);
        check_argument(&self.array, &self.driver, &argument, self.at())?;
        let settled = match orders.map(|mut orders| (orders.make(py, also), orders)) {
            None => None,
            Some((Ok(settled), _)) => Some(settled),
            Some((Err(trouble), orders)) => {
                span.released((end, self.array.ptr()), Outcome::Failed);
                self.lease.amend(|tenant| {
                    if let Some(holding) = tenant.holding() {
                        orders.tell(py, holding);
                    }
                });
                return Err(trouble.into());
            }
        };
        let Some(mut tenant) = self.lease.end() else {
            if let Some(Settlement::Until(marks)) = settled {
                order::forget(&self.driver, marks);
            }
            return Ok(());
        };
        let settled = match (settled, tenant.holding()) {
            (Some(settled), _) => settled,
            // There is no order to make, which it tells.
            (None, Some(holding)) if is_ordered => holding.settle_with(py, also)?,
            _ => Settlement::Done,
        };
        if let Some(holding) = tenant.holding() {
            holding.tag.0 = end;
        }
        tenant.settled(py, settled, span);
        look(py);
        Ok(())
    }
}
