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

/// The memory of an array. This value keeps the memory alive, knows the memory's users, and makes their streams wait
/// for each other.
pub(crate) trait Origin: Any + Send + Sync {
    /// The driver that the memory belongs to.
    fn driver(&self) -> &Handle;

    /// The GPU and context of the producer's streams.
    fn place(&self) -> Place;

    /// Makes the stream `to` wait for the producer's work on the memory. `door` names the call in the log.
    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()>;

    /// Makes the producer's stream wait for the stream `user`. In some cases the host waits instead. If the producer's
    /// stream is unknown, the memory is kept until the work on `user` is done.
    fn give_back(&self, user: Alive<'_>) -> Result<()>;

    /// The scopes that use the memory and have not ended.
    fn users(&self) -> &Users;

    /// Makes one user's stream, `to`, wait for another user's, `from`.
    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        order::connect(Purpose::hand_over("scope"), self.driver(), from, to, unlocked)
    }
}

/// Memory that work uses, with the part of it that the work touches, and whether the work writes.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) origin: Arc<dyn Origin>,
    pub(super) work: UsedBytes,
}

/// Makes `scope` a user of the memory, while this thread has the turn on the memory. The scope's stream waits for the
/// producer if [`Users::enter`] says so, as at the scope's first entry. It also waits for the other open scopes: for
/// all of them if `work` writes, else for those that write. Fails if memory that a scope has lent overlaps that of
/// `work`, unless the borrower and `work` only read.
pub(super) fn enter(origin: &dyn Origin, scope: &Arc<RustStream>, work: UsedBytes) -> Result<()> {
    let _turn = origin.users().turn();
    enter_in_turn(origin, scope, work)
}

fn enter_in_turn(origin: &dyn Origin, scope: &Arc<RustStream>, work: UsedBytes) -> Result<()> {
    let Others { scopes, producer } = origin.users().enter(scope, work)?;
    if producer {
        // Wait for the producer only after `scope` has entered: a scope that ends meanwhile then finds `scope` among
        // the users, or has already made the producer wait.
        origin.order_for("scope", scope.alive())?;
        origin.users().caught_up(scope);
    }
    scopes.iter().try_for_each(|other| origin.order(other.alive(), scope.alive()))
}

/// Runs `queue`, which queues the scope's work on the memory of `uses`. Before it, the scope's stream waits as in
/// [`enter`]. Until `queue` returns, no other thread queues work on that memory by this function.
pub(super) fn in_turn<R>(
    uses: &[Use],
    scope: &Arc<RustStream>,
    queue: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let mut memory: Vec<_> = uses.iter().map(|one| one.origin.users()).collect();
    // Each thread takes its turns in the order of addresses, so that no two threads wait for each other.
    memory.sort_by_key(|users| std::ptr::from_ref(*users).addr());
    let _turns: Vec<_> = memory.into_iter().map(Users::turn).collect();
    for Use { origin, work } in uses {
        enter_in_turn(&**origin, scope, *work)?;
    }
    queue()
}

/// Ends the use of the memory by `scope`. First the scope's stream waits for work on memory that the scope lent. Then
/// the producer's stream waits for the scope's stream. Then each other open scope's stream does so too, unless this
/// other scope and `scope` only read. If a wait fails, the scope stays a user.
pub(super) fn end(origin: &dyn Origin, scope: &Arc<RustStream>) -> Result<()> {
    origin.users().take_back(scope, |_| true)?;
    // Do this before the scope stops being a user: a scope that enters later waits for the producer's stream alone, and
    // so for this scope.
    origin.give_back(scope.alive())?;
    let _turn = origin.users().turn();
    let others = origin.users().after(scope);
    others.iter().try_for_each(|other| origin.order(scope.alive(), other.alive()))?;
    origin.users().remove(scope);
    Ok(())
}

/// Makes `to`, the stream of a consumer of `array`, wait for the open scopes on its memory and for the producer. If
/// `array` is read-only the consumer only reads, and scopes that only read are left out. Fails if a scope has lent
/// elements of `array`, unless the borrower and the consumer only read. `door` names the call in the log.
pub(super) fn hand_over(
    door: &'static str,
    origin: &dyn Origin,
    to: Alive<'_>,
    array: &Descriptor,
) -> Result<()> {
    let others = origin.users().beside(to, UsedBytes::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.order(other.alive(), to))?;
    // Wait for the producer only after the list of scopes was made: a scope that ended before is not in the list, but
    // has made the producer wait.
    origin.order_for(door, to)
}

/// Prepares the hand-over of `array` to Python. Records in each open scope that Python code has the memory. Then makes
/// the producer's stream wait for the scopes that [`hand_over`] would wait for, and fails where [`hand_over`] would find
/// lent elements.
#[cfg(feature = "python")]
pub(crate) fn give_back(origin: &dyn Origin, array: &Descriptor) -> Result<()> {
    let to = Alive::legacy(origin.place());
    origin.users().show();
    let others = origin.users().beside(to, UsedBytes::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.give_back(other.alive()))
}

/// Memory that a Rust value owns.
pub(crate) struct RustMemory {
    driver: Handle,
    /// The stream on which the memory is ready. When a scope or an exported tensor that uses the memory ends, this
    /// stream waits for the stream on which the scope, or the tensor's consumer, worked.
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

    /// The stream on which the memory is ready.
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
    /// Drops the owner, with the memory's context current if the driver allows it, and then makes the thread's context
    /// current again. The interpreter's lock is released meanwhile, since the owner may wait for the device. In a
    /// forked child the owner is leaked, since the driver does not survive a fork. A panic of the owner is caught and
    /// logged: the caller may be C code of a consumer.
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

/// Returns the origin as the concrete type `O`, if it has that type.
#[cfg(feature = "python")]
pub(crate) fn downcast<O: Origin>(origin: &Arc<dyn Origin>) -> Option<&O> {
    let any: &dyn Any = &**origin;
    any.downcast_ref()
}
