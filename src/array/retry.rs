//! Waits that failed at the end of a scope or of an exported tensor. Unless a retry is useless, the memory is kept
//! alive, and later calls of `scope`, `to_dlpack` and `to_dlpack_legacy` try to make the waits again.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock, OnceLock};

use super::origin::{self, Origin};
use super::stream::RustStream;
use crate::driver::fork::Process;
use crate::error::Error;
use crate::lease::{EndState, Ending, Failure, Holder, Queue, Settlement};

pub(crate) struct Retry {
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) user: Arc<RustStream>,
}

impl Holder for Retry {
    type Lock<'l> = ();
    type Mark = ();
    type Interrupt = Infallible;

    fn settle(&mut self, (): ()) -> Result<Settlement<()>, Failure<Infallible>> {
        origin::end(&*self.origin, &self.user)?;
        Ok(Settlement::Done)
    }

    fn is_done(&self, (): &mut ()) -> Result<bool, Error> {
        Ok(true)
    }
}

struct Retries {
    queue: LazyLock<Queue<Ending<Retry>>>,
    /// The process that first queued an end. A forked child must not touch the queue, which another thread of its
    /// parent may have been changing.
    process: OnceLock<Process>,
}

static RETRIES: Retries =
    Retries { queue: LazyLock::new(Queue::default), process: OnceLock::new() };

/// The most failed ends that one call of [`look`] tries again.
const AT_A_CALL: usize = 4;

/// Ends the use of `origin` by the stream `user`. If that fails twice, returns the first error, and queues the end for
/// [`look`]. But if a retry is useless, drops the end; and a forked child, if its parent used the queue, leaks the end.
pub(crate) fn settle(origin: Arc<dyn Origin>, user: &Arc<RustStream>) -> Result<(), Error> {
    let Err(error) = origin::end(&*origin, user) else { return Ok(()) };
    let mut ending = Ending::new(Retry { origin, user: Arc::clone(user) });
    let Ok(()) = ending.advance(());
    match ending.state() {
        EndState::GivenBack => return Ok(()),
        EndState::Abandoned => {}
        _ if RETRIES.process.get_or_init(Process::current).is_current() => {
            RETRIES.queue.push(ending);
        }
        _ => std::mem::forget(ending),
    }
    Err(error)
}

/// Tries up to [`AT_A_CALL`] queued ends again, those from the front of the queue. Does nothing in a forked child if
/// its parent used the queue.
pub(crate) fn look() {
    if RETRIES.process.get().is_some_and(|by| by.is_current()) && !RETRIES.queue.is_empty() {
        drop(RETRIES.queue.ask(AT_A_CALL, |ending| {
            let Ok(()) = ending.advance(());
            ending.is_over()
        }));
    }
}
