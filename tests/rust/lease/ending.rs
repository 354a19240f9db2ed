//! The states of an end: what leads from each to the next, and what is told of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cai_bridge::driver::codes::{self, is_final};
use cai_bridge::error::{Error, Kind};
use cai_bridge::lease::{EndState, Ending, Failure, Holder, Settlement};

use crate::events::{Events, count};

/// An error after which another try may do.
fn transient() -> Error {
    driver_error(codes::OUT_OF_MEMORY)
}

/// One after which none will.
fn fatal() -> Error {
    driver_error(codes::CONTEXT_IS_DESTROYED)
}

fn driver_error(code: u32) -> Error {
    Error::driver("cuEventRecord", code, codes::name(code))
}

/// What comes of an attempt to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settle {
    Done,
    Until,
    Later,
    Transient,
    Final,
    Interrupted,
}

/// What comes of a question whether the consumer is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Done,
    NotYet,
    Transient,
    Final,
}

/// Answers as it is told to, the last answer again and again, and notes what it was asked.
struct Fake {
    settles: VecDeque<Settle>,
    asks: Mutex<VecDeque<Ask>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    drops: Arc<AtomicUsize>,
}

fn next<T: Copy>(answers: &mut VecDeque<T>) -> T {
    if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] }
}

impl Fake {
    fn new(settles: &[Settle], asks: &[Ask]) -> Self {
        Self {
            settles: settles.iter().copied().collect(),
            asks: Mutex::new(asks.iter().copied().collect()),
            calls: Arc::default(),
            drops: Arc::default(),
        }
    }
}

impl Holder for Fake {
    type Lock<'l> = ();
    type Mark = u8;
    type Interrupt = &'static str;

    fn settle(&mut self, (): ()) -> Result<Settlement<u8>, Failure<&'static str>> {
        self.calls.lock().unwrap().push("settle");
        match next(&mut self.settles) {
            Settle::Done => Ok(Settlement::Done),
            Settle::Until => Ok(Settlement::Until(7)),
            Settle::Later => Ok(Settlement::Later),
            Settle::Transient => Err(transient().into()),
            Settle::Final => Err(fatal().into()),
            Settle::Interrupted => Err(Failure::Interrupted("Ctrl-C")),
        }
    }

    fn is_done(&self, mark: &mut u8) -> Result<bool, Error> {
        assert_eq!(*mark, 7, "the mark that it gave out");
        self.calls.lock().unwrap().push("ask");
        match next(&mut self.asks.lock().unwrap()) {
            Ask::Done => Ok(true),
            Ask::NotYet => Ok(false),
            Ask::Transient => Err(transient()),
            Ask::Final => Err(fatal()),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// The warnings of `told`: how many say that the memory is kept, and how many that it is let go.
fn warnings(told: &[String]) -> (usize, usize) {
    (count(told, "producer=\"kept\""), count(told, "producer=\"let go\""))
}

const NO: (usize, usize) = (0, 0);
const KEPT: (usize, usize) = (1, 0);
const LET_GO: (usize, usize) = (0, 1);

/// What an end is to do: its state after, the calls that it makes, whether it is interrupted, what it says.
type Step = (EndState, &'static [&'static str], bool, (usize, usize));

fn settled_and_asked(settle: Settle, ask: Ask) -> Step {
    let settled = match settle {
        Settle::Done => (EndState::GivenBack, false, NO),
        Settle::Later => (EndState::ToRetry, false, NO),
        Settle::Transient => (EndState::ToRetry, false, KEPT),
        Settle::Final => (EndState::Abandoned, false, LET_GO),
        Settle::Interrupted => (EndState::ToRetry, true, NO),
        Settle::Until => {
            let (state, _, _, told) = asked(ask);
            return (state, &["settle", "ask"], false, told);
        }
    };
    (settled.0, &["settle"], settled.1, settled.2)
}

fn asked(ask: Ask) -> Step {
    match ask {
        Ask::Done => (EndState::GivenBack, &["ask"], false, NO),
        Ask::NotYet => (EndState::Waiting(()), &["ask"], false, NO),
        Ask::Transient => (EndState::Waiting(()), &["ask"], false, KEPT),
        Ask::Final => (EndState::Abandoned, &["ask"], false, LET_GO),
    }
}

#[test]
fn each_state_leads_where_the_answers_say() {
    use Settle::{Done, Final, Interrupted, Later, Transient, Until};
    type Begin = fn(Fake) -> Ending<Fake>;
    let starts: [(EndState, Begin); 6] = [
        (EndState::Due, Ending::new),
        (EndState::ToRetry, |mut fake| {
            fake.settles.push_front(Interrupted);
            let mut ending = Ending::new(fake);
            ending.advance(()).unwrap_err();
            ending
        }),
        (EndState::ToRetry, |fake| Ending::settled(fake, Settlement::Later)),
        (EndState::Waiting(()), |fake| Ending::settled(fake, Settlement::Until(7))),
        (EndState::GivenBack, |fake| Ending::settled(fake, Settlement::Done)),
        (EndState::Abandoned, |mut fake| {
            fake.settles.push_front(Final);
            let mut ending = Ending::new(fake);
            ending.advance(()).unwrap();
            ending
        }),
    ];
    for (start, begin) in starts {
        for settle in [Done, Until, Later, Transient, Final, Interrupted] {
            for ask in [Ask::Done, Ask::NotYet, Ask::Transient, Ask::Final] {
                let fake = Fake::new(&[settle], &[ask]);
                let (calls, drops) = (Arc::clone(&fake.calls), Arc::clone(&fake.drops));
                let mut ending = begin(fake);
                assert_eq!(ending.state(), start);
                calls.lock().unwrap().clear();
                let (told, advanced) = Events::by(|| ending.advance(()));
                let (state, wanted, interrupted, said) = match start {
                    EndState::Due | EndState::ToRetry => settled_and_asked(settle, ask),
                    EndState::Waiting(()) => asked(ask),
                    over => (over, [].as_slice(), false, NO),
                };
                let case = format!("{start:?}, {settle:?}, {ask:?}");
                assert_eq!(ending.state(), state, "{case}");
                assert_eq!(*calls.lock().unwrap(), wanted, "{case}");
                assert_eq!(advanced, if interrupted { Err("Ctrl-C") } else { Ok(()) }, "{case}");
                assert_eq!(warnings(&told), said, "{case}");
                let over = matches!(state, EndState::GivenBack | EndState::Abandoned);
                assert_eq!(ending.is_over(), over, "{case}");
                assert_eq!(drops.load(Ordering::SeqCst), 0, "{case}: who holds it lets go of it");
                drop(ending);
                assert_eq!(drops.load(Ordering::SeqCst), 1, "{case}");
            }
        }
    }
}

#[test]
fn a_failure_is_told_once_an_end_and_again_when_the_memory_is_let_go() {
    use Settle::{Done, Final, Interrupted, Later, Transient, Until};
    type Row = (&'static [Settle], &'static [Ask], (usize, usize));
    let rows: [Row; 9] = [
        (&[Transient], &[Ask::Done], KEPT),
        (&[Transient, Transient, Until], &[Ask::Transient], KEPT),
        (&[Transient, Interrupted, Transient], &[Ask::Done], KEPT),
        (&[Interrupted, Later, Done], &[Ask::Done], NO),
        (&[Final], &[Ask::Done], LET_GO),
        (&[Transient, Transient, Final], &[Ask::Done], (1, 1)),
        (&[Until], &[Ask::Transient], KEPT),
        (&[Until], &[Ask::Transient, Ask::NotYet, Ask::Final], (1, 1)),
        (&[Until], &[Ask::NotYet, Ask::Final], LET_GO),
    ];
    for (settles, asks, said) in rows {
        let mut ending = Ending::new(Fake::new(settles, asks));
        let told = Events::by(|| (0..9).for_each(|_| _ = ending.advance(()))).0;
        assert_eq!(warnings(&told), said, "{settles:?}, {asks:?}");
    }
}

#[test]
fn a_warning_says_what_failed_once_somebody_listens() {
    let mut ending = Ending::new(Fake::new(&[Settle::Transient], &[Ask::Done]));
    ending.advance(()).unwrap();
    let error = format!("error={}", transient());
    for wanted in [1, 0] {
        let (told, _) = Events::by(|| ending.advance(()).unwrap());
        for field in ["door=\"release\"", "order=\"failed\"", &error] {
            assert_eq!(count(&told, field), wanted, "{told:?}");
        }
    }
}

#[test]
fn a_failure_is_final_where_the_context_is_gone_or_broken_or_there_is_no_driver() {
    // Sticky errors ("the context is in an inconsistent state", or "must be destroyed", in cuda.h), those of a
    // context or driver that is gone, and those of a process that has to be launched again.
    let last =
        [3, 4, 101, 201, 214, 400, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 999];
    for (code, name) in codes::ALL {
        assert_eq!(is_final(&driver_error(*code)), last.contains(code), "{name}");
    }
    // A code that has no name here may be anything.
    assert!(!is_final(&driver_error(12_345)));
    for kind in Kind::ALL {
        let driver_is_missing = kind.name() == "DriverMissing";
        assert_eq!(is_final(&Error::new(*kind, "")), driver_is_missing, "{}", kind.name());
    }
}

#[test]
fn an_end_shows_its_mark_while_it_waits_for_it() {
    let mut ending = Ending::new(Fake::new(&[Settle::Until], &[Ask::NotYet, Ask::Done]));
    assert_eq!(ending.mark(), None);
    ending.advance(()).unwrap();
    assert_eq!((ending.state(), ending.mark()), (EndState::Waiting(()), Some(&7)));
    ending.advance(()).unwrap();
    assert_eq!((ending.state(), ending.mark()), (EndState::GivenBack, None));
}

#[test]
fn a_boxed_holder_answers_what_the_holder_does() {
    let fake = Fake::new(&[Settle::Until], &[Ask::NotYet, Ask::Done]);
    let calls = Arc::clone(&fake.calls);
    let mut boxed: Box<Fake> = Box::new(fake);
    assert!(matches!(Holder::settle(&mut boxed, ()), Ok(Settlement::Until(7))));
    assert!(!Holder::is_done(&boxed, &mut 7).unwrap());
    assert!(Holder::is_done(&boxed, &mut 7).unwrap());
    assert_eq!(*calls.lock().unwrap(), ["settle", "ask", "ask"]);
}
