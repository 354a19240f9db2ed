//! `release()`, and the end of a `with` block. Making streams wait may run arbitrary code, which may release the view
//! too. So a release makes its waits first, and then ends the view if no other release has ended it.

use pyo3::prelude::*;

use super::BaseView;
use crate::lease::Settlement;
use crate::order;
use crate::py::lease::{Orders, look};
use crate::py::observe::{CallSpan, EndOutcome, EndTag, EndedBy};
use crate::py::source::check_argument;
use crate::py::streams::StreamArgument;
use crate::py::this_thread::DOING;
use crate::stream::Request;

/// How deeply a thread may nest releases of one view. A deeper release does nothing.
const DEEPEST: usize = 2;

fn address(view: &BaseView) -> usize {
    std::ptr::from_ref(view).addr()
}

fn is_deepest(view: &BaseView) -> bool {
    let depth = DOING.with(|doing| doing.releasing.count(|known| *known == address(view)));
    depth.is_some_and(|depth| depth >= DEEPEST)
}

/// Counts one release of the view on this thread. Make the guard after `Lease::begin`: its drop calls `Lease::stop`.
struct ReleaseGuard<'a>(&'a BaseView);

impl<'a> ReleaseGuard<'a> {
    fn new(view: &'a BaseView) -> Self {
        DOING.with(|doing| doing.releasing.push(address(view)));
        Self(view)
    }
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        DOING.with(|doing| doing.releasing.take(|known| *known == address(self.0)));
        self.0.lease.stop();
    }
}

impl BaseView {
    /// Makes the waits of the view's end, if only a Python object keeps the memory. Does not end the view.
    pub(super) fn order_for_collector(&self, py: Python<'_>) -> PyResult<()> {
        let orders = self.lease.with(|guard| {
            let held = guard.memory_mut().filter(|held| held.is_by_object())?;
            Orders::for_collector(held, py)
        });
        let Some(mut orders) = orders.flatten() else { return Ok(()) };
        if let Settlement::Until(marks) = orders.make(py, None)? {
            order::forget(&self.driver, marks);
        }
        Ok(())
    }

    /// Makes the waits of the view's end, also for the work on `stream`, then ends the view. With -1, makes no wait. If
    /// `stream` is refused, the view is not ended.
    pub(super) fn give_back(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        end: EndedBy,
    ) -> PyResult<()> {
        let span = CallSpan::begin();
        let argument = StreamArgument::parse(stream)?;
        let also = argument.alive(self.at()).filter(|_| self.array.ptr() != 0);
        let is_ordered = argument.request() != Request::NoOrder;
        if is_deepest(self) {
            return Ok(());
        }
        let begun = self.lease.begin(|guard| {
            let held = guard.memory_mut().filter(|_| is_ordered)?;
            Orders::of(held, py, also.is_some())
        });
        let Some(orders) = begun else { return Ok(()) };
        let _releasing = ReleaseGuard::new(self);
        check_argument(&self.array, &self.driver, &argument, self.at())?;
        let settled = match orders.map(|mut orders| (orders.make(py, also), orders)) {
            None => None,
            Some((Ok(settled), _)) => Some(settled),
            Some((Err(trouble), orders)) => {
                let tag = EndTag { by: end, ptr: self.array.ptr() };
                span.released(tag, EndOutcome::Failed);
                self.lease.amend(|guard| {
                    if let Some(held) = guard.memory_mut() {
                        orders.tell(py, held);
                    }
                });
                return Err(trouble.into());
            }
        };
        let Some(mut guard) = self.lease.end() else {
            if let Some(Settlement::Until(marks)) = settled {
                order::forget(&self.driver, marks);
            }
            return Ok(());
        };
        let settled = match (settled, guard.memory_mut()) {
            (Some(settled), _) => settled,
            // No stream has to wait. `settle_with` logs the reason.
            (None, Some(held)) if is_ordered => held.settle_with(py, also)?,
            _ => Settlement::Done,
        };
        if let Some(held) = guard.memory_mut() {
            held.tag.by = end;
        }
        guard.settled(py, settled, span);
        look(py);
        Ok(())
    }
}
