//! Where an array's memory comes from: what keeps it, and between which streams it goes.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::stream::RustStream;
use super::unlocked::unlocked;
use super::users::{Others, Span, Users};
use crate::descriptor::Descriptor;
use crate::device::Place;
use crate::driver::Handle;
use crate::driver::fork::Process;
use crate::error::{Result, caught};
use crate::order::{self, Purpose, within};
use crate::stream::Alive;

/// The owner of an array's memory.
pub(crate) trait Origin: Any + Send + Sync {
    /// The driver that it is of.
    fn driver(&self) -> &Handle;

    /// Where the producer's streams are.
    fn place(&self) -> Place;

    /// Makes `to` wait for what the memory is ready on.
    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()>;

    /// Makes whatever uses the memory next wait for `user`.
    fn give_back(&self, user: Alive<'_>) -> Result<()>;

    /// The scopes that use the memory now.
    fn users(&self) -> &Users;

    /// Makes one of their streams wait for another.
    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        order::connect(Purpose::hand_over("scope"), self.driver(), (from, to), unlocked)
    }
}

/// Memory that work is queued on, and what of it.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) origin: Arc<dyn Origin>,
    pub(super) work: Span,
}

/// The scope of the stream `scope` uses the memory from now on, after the producer's work and what the others have queued.
pub(super) fn enter(origin: &dyn Origin, scope: &Arc<RustStream>, work: Span) -> Result<()> {
    let _turn = origin.users().turn();
    enter_in_turn(origin, scope, work)
}

fn enter_in_turn(origin: &dyn Origin, scope: &Arc<RustStream>, work: Span) -> Result<()> {
    let Others { scopes, producer } = origin.users().enter(scope, work)?;
    if producer {
        // After it has entered: a scope that ends meanwhile finds it, or has told the producer before.
        origin.order_for("scope", scope.alive())?;
        origin.users().caught_up(scope);
    }
    scopes.iter().try_for_each(|other| origin.order(other.alive(), scope.alive()))
}

/// Runs `queue`, which queues work of the scope that uses that memory, to write or only to read: after what other
/// scopes have queued there, and before what they queue next.
pub(super) fn in_turn<R>(
    uses: &[Use],
    scope: &Arc<RustStream>,
    queue: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let mut memory: Vec<_> = uses.iter().map(|one| one.origin.users()).collect();
    // Turns are taken in the order of addresses, so that two threads do not wait for each other.
    memory.sort_by_key(|users| std::ptr::from_ref(*users).addr());
    let _turns: Vec<_> = memory.into_iter().map(Users::turn).collect();
    for Use { origin, work } in uses {
        enter_in_turn(&**origin, scope, *work)?;
    }
    queue()
}

/// The scope has ended: its stream waits for what was done with memory that it lent, and the producer's and the others'
/// next work runs after its own. Until that is made it stays a user.
pub(super) fn end(origin: &dyn Origin, scope: &Arc<RustStream>) -> Result<()> {
    origin.users().take_back(scope, |_| true)?;
    // Before it leaves: who comes later has the producer's stream to wait for.
    origin.give_back(scope.alive())?;
    let _turn = origin.users().turn();
    let others = origin.users().after(scope);
    others.iter().try_for_each(|other| origin.order(scope.alive(), other.alive()))?;
    origin.users().remove(scope);
    Ok(())
}

/// Makes `to`, which is handed `array`, wait for the scopes that have not ended.
pub(crate) fn wait(origin: &dyn Origin, to: Alive<'_>, array: &Descriptor) -> Result<()> {
    let others = origin.users().beside(to, Span::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.order(other.alive(), to))
}

/// Makes the producer's stream wait for the scopes that have not ended, for one that is handed `array`.
#[cfg(feature = "python")]
pub(crate) fn give_back(origin: &dyn Origin, array: &Descriptor) -> Result<()> {
    let to = Alive::legacy(origin.place());
    origin.users().show();
    let others = origin.users().beside(to, Span::of(array, !array.readonly()))?;
    others.iter().try_for_each(|other| origin.give_back(other.alive()))
}

/// Memory of Rust's.
pub(crate) struct RustMemory {
    driver: Handle,
    /// The stream that the memory is ready on, and is freed on.
    home: RustStream,
    process: Process,
    owner: Mutex<Option<Box<dyn Send>>>,
    users: Users,
}

impl RustMemory {
    pub(crate) fn new(driver: Handle, home: RustStream, owner: Box<dyn Send>) -> Self {
        let (process, owner) = (Process::current(), Mutex::new(Some(owner)));
        Self { driver, home, process, owner, users: Users::default() }
    }

    /// The stream that the memory is ready on.
    #[cfg(feature = "python")]
    pub(crate) const fn home(&self) -> &RustStream {
        &self.home
    }
}

impl Origin for RustMemory {
    fn driver(&self) -> &Handle {
        &self.driver
    }

    fn place(&self) -> Place {
        self.home.alive().place()
    }

    fn order_for(&self, door: &'static str, to: Alive<'_>) -> Result<()> {
        let door = Purpose::hand_over(door);
        order::connect(door, &self.driver, (self.home.alive(), to), unlocked)
    }

    fn give_back(&self, user: Alive<'_>) -> Result<()> {
        let door = Purpose::give_back("scope");
        order::connect(door, &self.driver, (user, self.home.alive()), unlocked)
    }

    fn users(&self) -> &Users {
        &self.users
    }
}

impl Drop for RustMemory {
    /// Ends the owner with its context current, and the thread's own again afterwards, and without the interpreter's
    /// lock: it may wait for the device. In a fork it is left alone: its driver does not survive that. Its panic stays
    /// here, for a consumer's C may call this.
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
        // Caught inside: what gives the lock up is no frame for a panic to pass.
        unlocked(&mut || ended = caught(&mut end));
        if let Err(panic) = ended {
            tracing::warn!(target: "cai_bridge", door = "memory", panic, "an owner panicked at its end");
        }
    }
}

impl fmt::Debug for RustMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustMemory").field("home", &self.home).finish_non_exhaustive()
    }
}

/// The origin as what it is.
#[cfg(feature = "python")]
pub(crate) fn downcast<O: Origin>(origin: &Arc<dyn Origin>) -> Option<&O> {
    let any: &dyn Any = &**origin;
    any.downcast_ref()
}
