//! Sequences of ends, questions and failures, checked against a model with one line per rule.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use cai_bridge::driver::codes;
use cai_bridge::error::Error;
use cai_bridge::lease::{EndState, Ending, Failure, Holder, Lease, Queue, Settlement};

use super::choices::{Bytes, Choices};

pub fn run(data: &[u8]) {
    let mut program = Program::new(Bytes(data));
    while !program.choices.is_over() {
        program.step();
    }
    program.finish();
}

fn failed(code: u32) -> Error {
    Error::driver("cuEventRecord", code, codes::name(code))
}

/// How the driver currently answers for a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Failing,
    /// A graph capture forbids the order.
    Captured,
    Broken,
    Interrupted,
}

/// The state of the world around a holder, and what the holder has done.
#[derive(Debug, Clone, Copy)]
struct Facts {
    mood: Mood,
    /// Whether the references must stay until the consumer's work is done.
    marks: bool,
    /// Whether the consumer's work is done.
    reached: bool,
    settled: usize,
    asked: usize,
    dropped: usize,
}

type World = Arc<Mutex<Vec<Facts>>>;

struct Fake {
    id: usize,
    world: World,
}

impl Fake {
    fn facts<R>(&self, look: impl FnOnce(&mut Facts) -> R) -> R {
        look(&mut self.world.lock().unwrap()[self.id])
    }
}

impl Holder for Fake {
    type Lock<'l> = ();
    type Mark = usize;
    type Interrupt = ();

    fn settle(&mut self, (): ()) -> Result<Settlement<usize>, Failure<()>> {
        let id = self.id;
        self.facts(|facts| {
            facts.settled += 1;
            match facts.mood {
                Mood::Well if facts.marks => Ok(Settlement::Until(id)),
                Mood::Well => Ok(Settlement::Done),
                Mood::Captured => Ok(Settlement::Later),
                Mood::Failing => Err(failed(codes::OUT_OF_MEMORY).into()),
                Mood::Broken => Err(failed(codes::CONTEXT_IS_DESTROYED).into()),
                Mood::Interrupted => Err(Failure::Interrupted(())),
            }
        })
    }

    fn is_done(&self, mark: &mut usize) -> Result<bool, Error> {
        assert_eq!(*mark, self.id, "its own mark");
        self.facts(|facts| {
            facts.asked += 1;
            match facts.mood {
                Mood::Failing => Err(failed(codes::OUT_OF_MEMORY)),
                Mood::Broken => Err(failed(codes::CONTEXT_IS_DESTROYED)),
                _ => Ok(facts.reached),
            }
        })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.facts(|facts| facts.dropped += 1);
    }
}

/// The state of each holder by the rules, and how often it was asked.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// `None` while leased.
    state: Option<EndState>,
    settled: usize,
    asked: usize,
}

impl Expected {
    /// One attempt to make progress.
    fn advance(&mut self, facts: Facts) {
        if matches!(self.state, Some(EndState::Due | EndState::ToRetry)) {
            self.settled += 1;
            self.state = Some(match facts.mood {
                Mood::Broken => EndState::Abandoned,
                Mood::Failing | Mood::Captured | Mood::Interrupted => EndState::ToRetry,
                Mood::Well if facts.marks => EndState::Waiting(()),
                Mood::Well => EndState::GivenBack,
            });
        }
        if self.state == Some(EndState::Waiting(())) {
            self.asked += 1;
            match facts.mood {
                Mood::Broken => self.state = Some(EndState::Abandoned),
                Mood::Failing => {}
                _ if facts.reached => self.state = Some(EndState::GivenBack),
                _ => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, Some(EndState::GivenBack | EndState::Abandoned))
    }
}

const LEASES: usize = 12;

/// A program of ends and questions, with the results that the rules expect.
pub struct Program<C> {
    choices: C,
    world: World,
    leases: Vec<Lease<Fake>>,
    queue: Queue<Ending<Fake>>,
    expected: Vec<Expected>,
    waiting: VecDeque<usize>,
}

impl<C: Choices> Program<C> {
    pub fn new(mut choices: C) -> Self {
        let facts = (0..LEASES).map(|_| Facts {
            mood: Mood::Well,
            marks: choices.below(2) == 0,
            reached: false,
            settled: 0,
            asked: 0,
            dropped: 0,
        });
        let world: World = Arc::new(Mutex::new(facts.collect()));
        let fake = |id| Fake { id, world: Arc::clone(&world) };
        let leases = (0..LEASES).map(|id| Lease::new(fake(id))).collect();
        let expected = vec![Expected { state: None, settled: 0, asked: 0 }; LEASES];
        Self { choices, leases, expected, queue: Queue::default(), waiting: VecDeque::new(), world }
    }

    fn facts(&self, id: usize) -> Facts {
        self.world.lock().unwrap()[id]
    }

    /// Ends a lease. It is over at once, or waits in the queue.
    fn end(&mut self, id: usize) {
        let holder = self.leases[id].end();
        assert_eq!(holder.is_some(), self.expected[id].state.is_none(), "the first end alone");
        let Some(holder) = holder else { return };
        let mut ending = Ending::new(holder);
        let _ = ending.advance(());
        self.expected[id].state = Some(EndState::Due);
        let facts = self.facts(id);
        self.expected[id].advance(facts);
        assert_eq!(Some(ending.state()), self.expected[id].state);
        if ending.is_over() {
            drop(ending);
        } else {
            self.queue.push(ending);
            self.waiting.push_back(id);
        }
    }

    /// Ends a lease whose orders another thread has made.
    fn end_settled(&mut self, id: usize) {
        let Some(holder) = self.leases[id].end() else { return };
        let (settled, state) = match self.choices.below(3) {
            0 => (Settlement::Done, EndState::GivenBack),
            1 => (Settlement::Until(id), EndState::Waiting(())),
            _ => (Settlement::Later, EndState::ToRetry),
        };
        self.expected[id].state = Some(state);
        let ending = Ending::settled(holder, settled);
        assert_eq!(Some(ending.state()), self.expected[id].state);
        if !ending.is_over() {
            self.queue.push(ending);
            self.waiting.push_back(id);
        }
    }

    /// Begins several ends of a lease and gives each up.
    fn end_refused(&mut self, id: usize) {
        let (lease, is_leased) = (&self.leases[id], self.expected[id].state.is_none());
        let several = self.choices.below(3);
        for _ in 0..=several {
            assert_eq!(lease.begin(|holder| holder.id), is_leased.then_some(id));
            assert!(!lease.is_leased() && lease.with(|_| ()).is_none());
        }
        if is_leased {
            (0..=several).for_each(|_| lease.stop());
        }
    }

    fn ask(&mut self, most: usize) {
        let mut seen = Vec::new();
        let over = self.queue.ask(most, |ending| {
            let _ = ending.advance(());
            seen.push(ending.holder().id);
            ending.is_over()
        });
        let asked: Vec<usize> = self.waiting.drain(..most.min(self.waiting.len())).collect();
        assert_eq!(seen, asked, "in turn");
        for id in &asked {
            let facts = self.facts(*id);
            self.expected[*id].advance(facts);
        }
        let (gone, kept): (Vec<usize>, Vec<usize>) =
            asked.into_iter().partition(|id| self.expected[*id].is_over());
        assert_eq!(over.iter().map(|ending| ending.holder().id).collect::<Vec<_>>(), gone);
        for ending in over {
            assert_eq!(Some(ending.state()), self.expected[ending.holder().id].state);
        }
        self.waiting.extend(kept);
    }

    pub fn step(&mut self) {
        let id = self.choices.below(LEASES);
        match self.choices.below(12) {
            0..3 => self.end(id),
            3 => self.end_settled(id),
            4 => self.end_refused(id),
            5..8 => {
                let most = self.choices.below(LEASES + 2);
                self.ask(most);
            }
            8..10 => self.world.lock().unwrap()[id].reached = true,
            _ => {
                use Mood::{Broken, Captured, Failing, Interrupted, Well};
                let mood = [Well, Failing, Captured, Broken, Interrupted][self.choices.below(5)];
                self.world.lock().unwrap()[id].mood = mood;
            }
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.queue.len(), self.waiting.len());
        for (id, expected) in self.expected.iter().enumerate() {
            let facts = self.facts(id);
            let case = format!("lease {id}: {expected:?} {facts:?}");
            assert_eq!(self.leases[id].is_leased(), expected.state.is_none(), "{case}");
            assert_eq!(facts.dropped, usize::from(expected.is_over()), "{case}");
            assert_eq!((facts.settled, facts.asked), (expected.settled, expected.asked), "{case}");
        }
    }

    /// Lets every pending end succeed, and drops the rest. Each holder must be dropped exactly once.
    pub fn finish(mut self) -> Vec<Option<EndState>> {
        for facts in &mut *self.world.lock().unwrap() {
            (facts.mood, facts.reached) = (Mood::Well, true);
        }
        self.ask(LEASES);
        self.check();
        assert!(self.queue.is_empty());
        let states = self.expected.iter().map(|expected| expected.state).collect();
        let Self { leases, queue, world, .. } = self;
        drop((leases, queue));
        for (id, facts) in world.lock().unwrap().iter().enumerate() {
            assert_eq!(facts.dropped, 1, "lease {id}");
        }
        states
    }
}
