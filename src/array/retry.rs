//! Waits that failed at the end of a scope or of a tensor. The memory is kept alive, and later scopes and exports try
//! to make the waits again.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock, OnceLock};

use super::origin::{self, Origin};
use super::stream::RustStream;
use crate::driver::fork::Process;
use crate::error::Error;
use crate::lease::{Ending, Failure, Holder, Queue, Settlement};

/// A wait of the producer's stream that still has to be made.
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

/// The waits to be tried again.
struct Retries {
    queue: LazyLock<Queue<Ending<Retry>>>,
    /// The process that owns the queue. A forked child makes none of its parent's waits and must not touch the queue,
    /// which a thread of the parent may have been changing.
    process: OnceLock<Process>,
}

static RETRIES: Retries =
    Retries { queue: LazyLock::new(Queue::default), process: OnceLock::new() };

/// How many of these waits one call tries to make again.
const AT_A_CALL: usize = 4;

/// Makes the waits that are due when `user` ends its use of the memory. If one fails, returns the error, keeps the
/// memory alive and tries again later; a forked child of a process that keeps waits leaks the memory instead.
pub(crate) fn settle(origin: Arc<dyn Origin>, user: &Arc<RustStream>) -> Result<(), Error> {
    origin::end(&*origin, user).inspect_err(|_| {
        let mut ending = Ending::new(Retry { origin, user: Arc::clone(user) });
        let Ok(()) = ending.advance(());
        if ending.is_over() {
            return;
        }
        if RETRIES.process.get_or_init(Process::current).is_current() {
            RETRIES.queue.push(ending);
        } else {
            std::mem::forget(ending);
        }
    })
}

/// Tries a few of the kept waits again, beginning with the ones tried least recently.
pub(crate) fn look() {
    if RETRIES.process.get().is_some_and(|by| by.is_current()) && !RETRIES.queue.is_empty() {
        drop(RETRIES.queue.ask(AT_A_CALL, |ending| {
            let Ok(()) = ending.advance(());
            ending.is_over()
        }));
    }
}
