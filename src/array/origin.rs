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

/// Keeps an array's memory alive. The methods make streams wait before and after a use of the memory.
pub(crate) trait Origin: Any + Send + Sync {
    fn driver(&self) -> &Handle;

    fn place(&self) -> Place;

    /// Makes the stream `to` wait for the producer's work on the memory, as far as the producer has declared pending
    /// work. `door` names the call in the log.
    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()>;

    /// Makes the producer's stream, or the host, wait for the work on the stream `user`. For captured work, the wait
    /// may be left out.
    fn give_back(&self, user: Alive<'_>) -> Result<()>;

    fn users(&self) -> &Users;

    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        order::connect(Purpose::hand_over("scope"), self.driver(), from, to, unlocked).map(drop)
    }
}

#[derive(Clone)]
pub(super) struct Use {
    pub(super) origin: Arc<dyn Origin>,
    pub(super) work: UsedBytes,
}

/// Makes `scope` a user of the memory, unless [`Users::enter`] fails. The scope's stream then waits for what
/// `Users::enter` returns. If a wait fails, `scope` stays a user.
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

/// Makes the scope's stream wait for the work that `uses` must follow, then runs `queue`, which queues the scope's
/// work. No other thread runs `in_turn` for the same memory at the same time.
pub(super) fn in_turn<R>(
    uses: &[Use],
    scope: &Arc<RustStream>,
    queue: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let mut memory: Vec<_> = uses.iter().map(|one| one.origin.users()).collect();
    // Take the turns in the order of addresses: in different orders, two threads could wait for each other.
    memory.sort_by_key(|users| std::ptr::from_ref(*users).addr());
    let _turns: Vec<_> = memory.into_iter().map(Users::turn).collect();
    for Use { origin, work } in uses {
        enter_in_turn(&**origin, scope, *work)?;
    }
    queue()
}

/// Ends the use of the memory by `scope`: calls [`Origin::give_back`], and makes the scopes wait that [`Users::after`]
/// returns. If a wait fails, `scope` stays a user of the memory.
pub(super) fn end(origin: &dyn Origin, scope: &Arc<RustStream>) -> Result<()> {
    origin.users().take_back(scope, |_| true)?;
    // Do this before `remove`: a scope that enters after `remove` waits for this scope only by the producer's stream.
    origin.give_back(scope.alive())?;
    let _turn = origin.users().turn();
    let others = origin.users().after(scope);
    others.iter().try_for_each(|other| origin.order(scope.alive(), other.alive()))?;
    origin.users().remove(scope);
    Ok(())
}

/// Makes `to`, the stream of a consumer of `array`, wait for the producer, and for the open scopes whose work the
/// consumer's work must follow.
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

/// Call this before `array` goes to Python. Calls [`Origin::give_back`] for the open scopes that write to the memory,
/// and if `array` is writable, for those that read it too.
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
        order::connect(door, &self.driver, self.producer.alive(), to, unlocked).map(drop)
    }

    fn give_back(&self, user: Alive<'_>) -> Result<()> {
        let door = Purpose::give_back("scope");
        order::connect(door, &self.driver, user, self.producer.alive(), unlocked).map(drop)
    }

    fn users(&self) -> &Users {
        &self.users
    }
}

impl Drop for RustMemory {
    /// A forked child leaks the owner: CUDA does not survive a fork.
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
        // Catch a panic inside the closure: no panic may unwind through the function that releases the lock.
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
