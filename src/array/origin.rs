//! The memory of an array: what keeps it alive, the stream on which it is ready, and the scopes that use it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::stream::RustStream;
use super::unlocked::unlocked;
use super::users::{Others, UsedBytes, Users};
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Result, caught};
use crate::order::{self, Purpose, within};
use crate::stream::Alive;

/// Keeps an array's memory alive, and makes the streams of the memory's users wait for each other.
pub(crate) trait Origin: Any + Send + Sync {
    fn driver(&self) -> &Handle;

    fn place(&self) -> Place;

    /// Makes the stream `to` wait for the producer's work on the memory. `door` names the call in the log.
    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()>;

    /// Makes the producer's stream, or the host, wait for the work on the stream `user`.
    fn give_back(&self, user: Alive<'_>) -> Result<()>;

    fn users(&self) -> &Users;

    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        order::connect(Purpose::hand_over("scope"), self.driver(), from, to, unlocked)
    }
}

#[derive(Clone)]
pub(super) struct Use {
    pub(super) origin: Arc<dyn Origin>,
    pub(super) work: UsedBytes,
}

/// Makes `scope` a user of the memory. The scope's stream then waits for what [`Users::enter`] returns.
pub(super) fn enter(origin: &dyn Origin, scope: &Arc<RustStream>, work: UsedBytes) -> Result<()> {
    let _turn = origin.users().turn();
    enter_in_turn(origin, scope, work)
}

fn enter_in_turn(origin: &dyn Origin, scope: &Arc<RustStream>, work: UsedBytes) -> Result<()> {
    let Others { scopes, producer } = origin.users().enter(scope, work)?;
    if producer {
        // Do this after `Users::enter`: a scope that ends in between makes `scope` wait, or has already made the
        // producer wait.
        origin.order_for("scope", scope.alive())?;
        origin.users().caught_up(scope);
    }
    scopes.iter().try_for_each(|other| origin.order(other.alive(), scope.alive()))
}

/// Makes the scope's stream wait for other work on the memory of `uses`, then runs `queue`, which queues the scope's
/// work. No other thread runs `in_turn` for the same memory at the same time.
pub(super) fn in_turn<R>(
    uses: &[Use],
    scope: &Arc<RustStream>,
    queue: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let mut memory: Vec<_> = uses.iter().map(|one| one.origin.users()).collect();
    // Every thread takes its turns in the order of addresses, so that two threads never wait for each other.
    memory.sort_by_key(|users| std::ptr::from_ref(*users).addr());
    let _turns: Vec<_> = memory.into_iter().map(Users::turn).collect();
    for Use { origin, work } in uses {
        enter_in_turn(&**origin, scope, *work)?;
    }
    queue()
}

/// Ends the use of the memory by `scope`: the producer's stream waits for the scope's stream. If a wait fails, `scope`
/// stays a user of the memory.
pub(super) fn end(origin: &dyn Origin, scope: &Arc<RustStream>) -> Result<()> {
    origin.users().take_back(scope, |_| true)?;
    // Do this before `remove`: a scope that enters later waits only for the producer's stream, and so for this scope.
    origin.give_back(scope.alive())?;
    let _turn = origin.users().turn();
    let others = origin.users().after(scope);
    others.iter().try_for_each(|other| origin.order(scope.alive(), other.alive()))?;
    origin.users().remove(scope);
    Ok(())
}

/// Makes `to`, the stream of a consumer of `array`, wait for all work that the consumer's work must follow. `door`
/// names the call in the log.
pub(super) fn hand_over(
    door: &'static str,
    origin: &dyn Origin,
    to: Alive<'_>,
    array: &Descriptor,
) -> Result<()> {
    let others = origin.users().beside(to, UsedBytes::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.order(other.alive(), to))?;
    // Wait for the producer last: a scope that ended before `beside` has already made the producer wait.
    origin.order_for(door, to)
}

/// Call this before `array` goes to Python. Makes the producer's stream wait for the open scopes on the memory.
#[cfg(feature = "python")]
pub(crate) fn give_back(origin: &dyn Origin, array: &Descriptor) -> Result<()> {
    let to = Alive::legacy(origin.place());
    origin.users().show();
    let others = origin.users().beside(to, UsedBytes::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.give_back(other.alive()))
}

pub(crate) struct RustMemory {
    driver: Handle,
    producer: RustStream,
    process: Process,
    owner: Mutex<Option<Box<dyn Send>>>,
    users: Users,
}

impl RustMemory {
    pub(crate) fn new(driver: Handle, producer: RustStream, owner: Box<dyn Send>) -> Self {
        let (process, owner) = (Process::current(), Mutex::new(Some(owner)));
        Self { driver, producer, process, owner, users: Users::default() }
    }

    #[cfg(feature = "python")]
    pub(crate) const fn producer(&self) -> &RustStream {
        &self.producer
    }
}

impl Origin for RustMemory {
    fn driver(&self) -> &Handle {
        &self.driver
    }

    fn place(&self) -> Place {
        self.producer.alive().place()
    }

    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()> {
        let door = Purpose::hand_over(door);
        order::connect(door, &self.driver, self.producer.alive(), to, unlocked)
    }

    fn give_back(&self, user: Alive<'_>) -> Result<()> {
        let door = Purpose::give_back("scope");
        order::connect(door, &self.driver, user, self.producer.alive(), unlocked)
    }

    fn users(&self) -> &Users {
        &self.users
    }
}

impl Drop for RustMemory {
    /// Drops the owner without the interpreter's lock. A forked child leaks the owner: CUDA does not survive a fork.
    fn drop(&mut self) {
        let owner = self.owner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.process.is_current() {
            std::mem::forget(owner);
            return;
        }
        let (driver, place) = (&self.driver, self.place());
        let (mut owner, mut ended) = (Some(owner), Ok(()));
        let mut end = || {
            if let Ok(driver) = driver.get() {
                let _ = within(driver, place, |_| -> Result<()> {
                    owner = None;
                    Ok(())
                });
            }
            owner = None;
        };
        // Catch the panic inside the closure: it must not unwind through the function that releases the lock.
        unlocked(&mut || ended = caught(&mut end));
        if let Err(panic) = ended {
            tracing::warn!(target: "cai_bridge", door = "memory", panic, "an owner panicked at its end");
        }
    }
}

impl fmt::Debug for RustMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustMemory").field("producer", &self.producer).finish_non_exhaustive()
    }
}

#[cfg(feature = "python")]
pub(crate) fn downcast<O: Origin>(origin: &Arc<dyn Origin>) -> Option<&O> {
    let any: &dyn Any = &**origin;
    any.downcast_ref()
}
