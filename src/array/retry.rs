//! Waits that could not be made at the end of a scope: the memory is kept, and later scopes try again.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use super::origin::Origin;
use super::stream::RustStream;
use crate::error::Error;
use crate::lease::{Ending, Failure, Holder, Queue, Settlement};

/// A wait of the producer's that is still to be made.
pub(crate) struct Retry {
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) user: RustStream,
}

impl Holder for Retry {
    type Lock<'l> = ();
    type Mark = ();
    type Interrupt = Infallible;

    fn settle(&mut self, (): ()) -> Result<Settlement<()>, Failure<Infallible>> {
        self.origin.give_back(self.user.alive())?;
        Ok(Settlement::Done)
    }

    fn is_done(&self, (): &mut ()) -> Result<bool, Error> {
        Ok(true)
    }
}

static RETRIES: LazyLock<Queue<Ending<Retry>>> = LazyLock::new(Queue::default);

/// How many a call tries again.
const AT_A_CALL: usize = 4;

/// Makes the wait, or keeps the memory until it can be made. What was in the way is said.
pub(crate) fn settle(origin: Arc<dyn Origin>, user: &RustStream) -> Result<(), Error> {
    origin.give_back(user.alive()).inspect_err(|_| {
        let mut ending = Ending::new(Retry { origin, user: user.clone() });
        let Ok(()) = ending.advance(());
        if !ending.is_over() {
            RETRIES.push(ending);
        }
    })
}

/// Tries those again that were not tried for longest.
pub(crate) fn look() {
    if !RETRIES.is_empty() {
        drop(RETRIES.ask(AT_A_CALL, |ending| {
            let Ok(()) = ending.advance(());
            ending.is_over()
        }));
    }
}
