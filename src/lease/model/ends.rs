//! Models of ends that go through the lease and the queue.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::error::Error;
use crate::lease::{EndState, Ending, Failure, Holder, Lease, Queue, Settlement};

/// How often something happened. Not a loom atomic, so that counting adds no interleavings.
type Times = std::sync::Arc<std::sync::atomic::AtomicUsize>;

struct Fake {
    drops: Times,
    settled: Times,
    done: Arc<AtomicUsize>,
}

impl Fake {
    fn is_consumer_done(&self) -> bool {
        let done = self.done.load(Ordering::SeqCst) == 1;
        assert_eq!(self.drops.load(Ordering::SeqCst), 0, "asked after its end");
        done
    }
}

impl Holder for Fake {
    type Lock<'l> = ();
    type Mark = ();
    type Interrupt = ();

    fn settle(&mut self, (): ()) -> Result<Settlement<()>, Failure<()>> {
        self.settled.fetch_add(1, Ordering::SeqCst);
        Ok(if self.is_consumer_done() { Settlement::Done } else { Settlement::Until(()) })
    }

    fn is_done(&self, (): &mut ()) -> Result<bool, Error> {
        Ok(self.is_consumer_done())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
struct ModelEnds {
    lease: Arc<Lease<Fake>>,
    queue: Arc<Queue<Ending<Fake>>>,
    drops: Times,
    settled: Times,
    done: Arc<AtomicUsize>,
}

impl ModelEnds {
    fn new() -> Self {
        let (drops, settled, done) = (Times::default(), Times::default(), Arc::default());
        let fake = Fake { drops: drops.clone(), settled: settled.clone(), done: Arc::clone(&done) };
        let (lease, queue) = (Arc::new(Lease::new(fake)), Arc::new(Queue::default()));
        Self { lease, queue, drops, settled, done }
    }

    fn on_thread<R: 'static>(
        &self,
        call: impl FnOnce(&Self) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let ends = self.clone();
        thread::spawn(move || call(&ends))
    }

    fn end(&self) -> bool {
        let Some(holder) = self.lease.end() else { return false };
        let mut ending = Ending::new(holder);
        assert_eq!((ending.state(), ending.advance(())), (EndState::Due, Ok(())));
        if ending.is_over() {
            assert_eq!(ending.state(), EndState::GivenBack);
        } else {
            self.queue.push(ending);
        }
        true
    }

    fn ask(&self) -> usize {
        let over = self.queue.ask(1, |ending| {
            assert_eq!((ending.state(), ending.advance(())), (EndState::Waiting(()), Ok(())));
            ending.is_over()
        });
        assert!(over.iter().all(|ending| ending.state() == EndState::GivenBack));
        over.len()
    }

    fn counts(&self) -> (usize, usize) {
        (self.settled.load(Ordering::SeqCst), self.drops.load(Ordering::SeqCst))
    }
}

#[test]
fn an_end_is_settled_once_whoever_ends_and_whoever_asks() {
    loom::model(|| {
        let ends = ModelEnds::new();
        let ending = ends.on_thread(|ends| usize::from(ends.end()));
        let asking = ends.on_thread(ModelEnds::ask);
        let mine = usize::from(ends.end());
        let (theirs, over) = (ending.join().unwrap(), asking.join().unwrap());
        assert_eq!(
            (mine + theirs, over, ends.counts()),
            (1, 0, (1, 0)),
            "its consumer is not done"
        );
        ends.done.store(1, Ordering::SeqCst);
        assert_eq!((ends.ask(), ends.counts(), ends.queue.len()), (1, (1, 1), 0));
    });
}

#[test]
fn an_end_goes_once_it_is_done_whoever_asks() {
    loom::model(|| {
        let ends = ModelEnds::new();
        assert!(ends.end());
        let finishing = ends.on_thread(|ends| ends.done.store(1, Ordering::SeqCst));
        let asking = ends.on_thread(ModelEnds::ask);
        let mine = ends.ask();
        finishing.join().unwrap();
        let over = mine + asking.join().unwrap();
        assert_eq!((ends.counts(), ends.queue.len()), ((1, over), 1 - over));
        assert_eq!((ends.ask(), ends.counts()), (1 - over, (1, 1)));
    });
}

#[test]
fn an_end_that_was_refused_first_is_settled_by_whoever_ends_it_next() {
    loom::model(|| {
        let ends = ModelEnds::new();
        ends.done.store(1, Ordering::SeqCst);
        let refused = ends.on_thread(|ends| ends.lease.begin(|_| ()).map(|()| ends.lease.stop()));
        let ended = ends.on_thread(ModelEnds::end);
        refused.join().unwrap();
        assert!(ended.join().unwrap());
        assert_eq!((ends.lease.is_leased(), ends.end()), (false, false));
        assert_eq!((ends.counts(), ends.queue.len()), ((1, 1), 0));
    });
}
