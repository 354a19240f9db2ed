//! A loom model of scopes that use one array's memory in several threads. `make loom` runs it. The model fails if a
//! write is not in order with other work on the memory.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};

use super::origin::{self, Origin, Use};
use super::scope::ScopeMemory;
use super::stream::{RustStream, WorkStream};
use super::users::{Lent, UsedBytes, Users};
use crate::descriptor::Descriptor;
use crate::device::{Device, Place};
use crate::driver::Handle;
use crate::dtype::Dtype;
use crate::error::{Kind, Result};
use crate::layout::Layout;
use crate::stream::Alive;

/// Loom runs all its threads on one OS thread, so `Thread::current` cannot tell them apart.
pub(super) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loom::thread_local! {
        static ID: Cell<u64> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    ID.with(Cell::get)
}

/// The producer's stream. The scope with number n works on the stream `HOME + n`.
const HOME: u64 = 0x100;
const CUDARCS: u64 = 0x1000;
const CONSUMER: u64 = 0x2000;

#[derive(Default)]
struct ModelDevice {
    work: Vec<bool>,
    after: HashMap<u64, HashSet<usize>>,
}

impl ModelDevice {
    fn order(&mut self, from: u64, to: u64) {
        let seen = self.after.get(&from).cloned().unwrap_or_default();
        self.after.entry(to).or_default().extend(seen);
    }

    fn work(&mut self, stream: u64, writes: bool) {
        let seen = self.after.entry(stream).or_default();
        for (number, wrote) in self.work.iter().enumerate() {
            assert!(seen.contains(&number) || !(*wrote || writes), "a race with work {number}");
        }
        seen.insert(self.work.len());
        self.work.push(writes);
    }
}

struct Noted {
    device: Mutex<ModelDevice>,
    users: Users,
}

impl Noted {
    fn order(&self, from: u64, to: u64) {
        self.device.lock().unwrap().order(from, to);
    }

    fn work(&self, stream: u64, writes: bool) {
        self.device.lock().unwrap().work(stream, writes);
    }
}

const fn handle(stream: Alive<'_>) -> u64 {
    stream.stream().handle()
}

impl Origin for Noted {
    fn driver(&self) -> &Handle {
        &Handle::Cuda
    }

    fn place(&self) -> Place {
        Place::gpu(0)
    }

    fn order_for(&self, _door: &'static str, to: Alive<'_>) -> Result<()> {
        Noted::order(self, HOME, handle(to));
        Ok(())
    }

    fn give_back(&self, user: Alive<'_>) -> Result<()> {
        Noted::order(self, handle(user), HOME);
        Ok(())
    }

    fn users(&self) -> &Users {
        &self.users
    }

    fn order(&self, from: Alive<'_>, to: Alive<'_>) -> Result<()> {
        Noted::order(self, handle(from), handle(to));
        Ok(())
    }
}

#[derive(Clone)]
struct Numbered(u64);

// SAFETY: no driver is ever asked about this stream.
unsafe impl WorkStream for Numbered {
    fn handle(&self) -> u64 {
        self.0
    }

    fn place(&self) -> Place {
        Place::gpu(0)
    }
}

struct Borrow {
    memory: Arc<Noted>,
    work: UsedBytes,
    scope: u64,
    cudarcs: u64,
}

impl Lent for Borrow {
    fn work(&self) -> UsedBytes {
        self.work
    }

    fn take_back(&self) -> Result<()> {
        self.memory.order(self.cudarcs, self.scope);
        Ok(())
    }
}

struct ModelScope {
    scope: ScopeMemory,
    memory: Arc<Noted>,
    array: Descriptor,
}

#[derive(Clone, Copy)]
enum Does {
    Reads,
    Writes,
    ReadsAndWrites,
    /// Lends the memory for writing on a stream of cudarc. With `forgets`, the scope's end takes the memory back.
    Borrows {
        forgets: bool,
    },
}

impl ModelScope {
    fn new(memory: &Arc<Noted>, number: u64) -> Self {
        let float = Dtype::from_name("float32").unwrap();
        let layout = Layout::from_elements(&[4], None, 4).unwrap();
        let array = Descriptor::new(4096, float, layout, Device::cuda(0), false).unwrap();
        let scope = ScopeMemory::new(RustStream::of(&Numbered(HOME + number)));
        Self { scope, memory: Arc::clone(memory), array }
    }

    /// Returns false if the scope's work was refused because another scope had lent the memory.
    fn run(self, does: Does) -> bool {
        let done = match does {
            Does::Reads => self.work(false),
            Does::Writes => self.work(true),
            Does::ReadsAndWrites => self.work(false).and_then(|()| self.work(true)),
            Does::Borrows { forgets } => self.borrow(forgets),
        };
        self.scope.end().unwrap();
        match done {
            Ok(()) => true,
            Err(refused) => {
                assert_eq!(refused.kind(), Kind::Borrowed, "{refused}");
                false
            }
        }
    }

    fn queue(&self, writes: bool, queue: impl FnOnce(u64)) -> Result<()> {
        let origin: Arc<dyn Origin> = Arc::clone(&self.memory) as _;
        self.scope.take(&origin, &self.array, writes)?;
        let used = Use { origin, work: UsedBytes::of(&self.array, writes) };
        let own = handle(self.scope.user().alive());
        origin::in_turn(&[used], self.scope.user(), || {
            queue(own);
            Ok(())
        })
    }

    fn work(&self, writes: bool) -> Result<()> {
        self.queue(writes, |own| self.memory.work(own, writes))
    }

    fn borrow(&self, forgets: bool) -> Result<()> {
        let (memory, user) = (&self.memory, self.scope.user());
        let scope = handle(user.alive());
        let cudarcs = scope + CUDARCS;
        let work = UsedBytes::of(&self.array, true);
        let lent: Arc<dyn Lent> =
            Arc::new(Borrow { memory: Arc::clone(memory), work, scope, cudarcs });
        self.queue(true, |own| {
            memory.order(own, cudarcs);
            memory.users.lend(user, Arc::clone(&lent));
        })?;
        memory.work(cudarcs, true);
        if forgets {
            return Ok(());
        }
        memory.users.take_back(user, |one| Arc::ptr_eq(one, &lent))
    }
}

/// Runs one scope for each of `all`, each in its own thread. Checks that no work races, that not all scopes were
/// refused, and that the memory is not lent at the end. Loom tries only runs with few preemptions, to save time.
fn at_once(all: &'static [Does]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if all.len() == 2 { 3 } else { 1 });
    model.check(move || {
        let device = Mutex::new(ModelDevice::default());
        let memory = Arc::new(Noted { device, users: Users::default() });
        let mut scopes: Vec<_> =
            (1..).map(|number| ModelScope::new(&memory, number)).zip(all.iter().copied()).collect();
        let (mine, does) = scopes.pop().unwrap();
        let others: Vec<JoinHandle<bool>> =
            scopes.into_iter().map(|(one, does)| thread::spawn(move || one.run(does))).collect();
        let mut ran = usize::from(mine.run(does));
        ran += others.into_iter().map(|one| usize::from(one.join().unwrap())).sum::<usize>();
        assert!(ran > 0, "each was refused for the others");
        memory.work(HOME, true);
        assert!(ModelScope::new(&memory, 9).run(Does::Writes), "the memory is still lent");
    });
}

/// Exports the memory in one thread while a scope that has worked on it ends in another. Checks that the consumer's
/// work follows the scope's, and that the producer's next work follows the consumer's.
fn exported_while_a_scope_ends(does: Does) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let device = Mutex::new(ModelDevice::default());
        let memory = Arc::new(Noted { device, users: Users::default() });
        let ended = ModelScope::new(&memory, 1);
        ended.work(matches!(does, Does::Writes)).unwrap();
        let array = ended.array.clone();
        let exported = Arc::clone(&memory);
        let consumer = thread::spawn(move || {
            let user = Arc::new(RustStream::of(&Numbered(CONSUMER)));
            origin::hand_over("to_dlpack", &*exported, user.alive(), &array).unwrap();
            exported.work(CONSUMER, true);
            origin::end(&*exported, &user).unwrap();
        });
        ended.scope.end().unwrap();
        consumer.join().unwrap();
        memory.work(HOME, true);
    });
}

const FORGETS: Does = Does::Borrows { forgets: true };
const DROPS: Does = Does::Borrows { forgets: false };

#[test]
fn what_two_scopes_queue_on_one_memory_is_in_order() {
    at_once(&[Does::Writes, Does::Writes]);
}

#[test]
fn a_scope_that_reads_and_one_that_writes_are_in_order() {
    at_once(&[Does::Reads, Does::ReadsAndWrites]);
}

#[test]
fn of_two_borrows_that_write_one_is_refused_or_comes_after_the_other() {
    at_once(&[DROPS, DROPS]);
}

#[test]
fn a_borrow_that_is_forgotten_is_waited_for_by_whoever_comes_next() {
    at_once(&[FORGETS, Does::Writes]);
}

#[test]
fn work_beside_a_borrow_is_refused_or_in_order() {
    at_once(&[DROPS, Does::Reads]);
}

#[test]
fn three_scopes_that_read_and_write_are_in_order() {
    at_once(&[Does::Reads, Does::Reads, Does::Writes]);
}

#[test]
fn a_tensor_that_is_exported_while_a_scope_ends_is_ready_after_the_scopes_work() {
    exported_while_a_scope_ends(Does::Writes);
    exported_while_a_scope_ends(Does::Reads);
}
