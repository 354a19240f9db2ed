//! Models that go through every interleaving of the calls of a lease, of its queues and of ends, by [loom]. `make loom`
//! runs them.
//!
//! [loom]: https://docs.rs/loom

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::Lease;

mod ends;
mod parked;
mod queue;

struct ModelMemory {
    drops: Arc<AtomicUsize>,
}

impl ModelMemory {
    fn look(&self) {
        assert_eq!(self.drops.load(Ordering::SeqCst), 0, "seen after its end");
    }
}

impl Drop for ModelMemory {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

struct Scene {
    drops: Arc<AtomicUsize>,
    lease: Arc<Lease<Arc<ModelMemory>>>,
}

impl Scene {
    fn new() -> Self {
        let drops = Arc::new(AtomicUsize::new(0));
        let kept = Arc::new(ModelMemory { drops: Arc::clone(&drops) });
        Self { drops, lease: Arc::new(Lease::new(kept)) }
    }

    fn on_thread<R: 'static>(
        &self,
        call: impl FnOnce(&Lease<Arc<ModelMemory>>) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let lease = Arc::clone(&self.lease);
        thread::spawn(move || call(&lease))
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::SeqCst)
    }
}

#[test]
fn one_of_those_who_end_it_at_once_gets_it_and_it_goes_once() {
    loom::model(|| {
        let scene = Scene::new();
        let others: Vec<_> =
            (0..2).map(|_| scene.on_thread(|lease| usize::from(lease.end().is_some()))).collect();
        let mine = usize::from(scene.lease.end().is_some());
        let theirs: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!((mine + theirs, scene.drops()), (1, 1));
    });
}

#[test]
fn who_looks_while_another_ends_it_sees_it_alive_or_not_at_all() {
    loom::model(|| {
        let scene = Scene::new();
        let visit = scene.on_thread(|lease| lease.try_with(|kept| kept.look()).is_some());
        let look = scene.on_thread(|lease| lease.with(|kept| kept.look()).is_some());
        drop(scene.lease.end());
        assert!(scene.lease.with(|kept| kept.look()).is_none(), "seen after its end");
        assert!(scene.lease.try_with(|kept| kept.look()).is_none(), "visited after its end");
        look.join().unwrap();
        visit.join().unwrap();
        assert_eq!(scene.drops(), 1);
    });
}

#[test]
fn the_flag_says_ended_whenever_nothing_is_to_be_seen_and_the_other_way_round() {
    loom::model(|| {
        let scene = Scene::new();
        let unseen = scene.on_thread(|lease| {
            if lease.with(|kept| kept.look()).is_none() {
                assert!(!lease.is_leased(), "gone, and the flag says leased");
            }
        });
        let flagged = scene.on_thread(|lease| {
            if !lease.is_leased() {
                assert!(lease.with(|kept| kept.look()).is_none(), "flagged, and yet seen");
            }
        });
        assert!(scene.lease.is_leased());
        drop(scene.lease.end());
        assert!(!scene.lease.is_leased());
        unseen.join().unwrap();
        flagged.join().unwrap();
    });
}

#[test]
fn what_was_shared_before_the_end_lives_as_long_as_its_holder() {
    loom::model(|| {
        let scene = Scene::new();
        let sharing = scene.on_thread(|lease| lease.with(|kept| Arc::clone(kept)));
        drop(scene.lease.end());
        if let Some(shared) = sharing.join().unwrap() {
            shared.look();
            assert_eq!(scene.drops(), 0);
            drop(shared);
        }
        assert_eq!(scene.drops(), 1);
        assert!(scene.lease.with(|kept| Arc::clone(kept)).is_none());
    });
}

#[test]
fn what_nobody_ends_goes_with_the_last_who_holds_its_lease() {
    loom::model(|| {
        let Scene { drops, lease } = Scene::new();
        let other = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || drop(lease))
        };
        lease.with(|kept| kept.look());
        drop(lease);
        other.join().unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

fn refuse(lease: &Lease<Arc<ModelMemory>>) -> bool {
    lease.begin(|kept| kept.look()).map(|()| lease.stop()).is_some()
}

/// Ends the lease as `release()` does, but adds one to `made` in place of the waits. Does nothing if the lease has
/// ended already. Returns whether this call ended the lease.
fn release(lease: &Lease<Arc<ModelMemory>>, made: &AtomicUsize) -> bool {
    if lease.begin(|kept| kept.look()).is_none() {
        return false;
    }
    made.fetch_add(1, Ordering::SeqCst);
    let ended = lease.end().is_some();
    lease.stop();
    ended
}

#[test]
fn whoever_releases_it_returns_after_the_orders_were_made_and_one_of_them_ends_it() {
    loom::model(|| {
        let (scene, made) = (Scene::new(), Arc::new(AtomicUsize::new(0)));
        let other = {
            let made = Arc::clone(&made);
            scene.on_thread(move |lease| {
                let ended = release(lease, &made);
                assert!(made.load(Ordering::SeqCst) > 0, "returned without an order");
                ended
            })
        };
        let mine = release(&scene.lease, &made);
        assert!(made.load(Ordering::SeqCst) > 0, "returned without an order");
        assert!(mine != other.join().unwrap(), "it ends once");
        assert_eq!((scene.lease.is_leased(), scene.drops()), (false, 1));
    });
}

#[test]
fn who_looks_while_it_is_released_is_seen_by_the_orders_or_sees_nothing() {
    loom::model(|| {
        let (scene, noted) = (Scene::new(), Arc::new(AtomicUsize::new(0)));
        let look = {
            let noted = Arc::clone(&noted);
            scene.on_thread(move |lease| lease.with(|_| noted.store(1, Ordering::SeqCst)).is_some())
        };
        let seen = scene.lease.begin(|_| noted.load(Ordering::SeqCst));
        drop(scene.lease.end());
        scene.lease.stop();
        assert_eq!(seen, Some(usize::from(look.join().unwrap())));
    });
}

#[test]
fn an_end_that_is_refused_loses_nothing_to_one_that_comes_at_once() {
    loom::model(|| {
        let scene = Scene::new();
        let refused = scene.on_thread(refuse);
        let end = scene.on_thread(|lease| lease.end().is_some());
        let (refused, ended) = (refused.join().unwrap(), end.join().unwrap());
        assert!(ended, "{refused}");
        assert_eq!((scene.lease.is_leased(), scene.drops()), (false, 1));
        assert!(scene.lease.with(|kept| kept.look()).is_none());
    });
}

#[test]
fn who_looks_while_an_end_is_refused_sees_it_alive_or_not_at_all() {
    loom::model(|| {
        let scene = Scene::new();
        let look = scene.on_thread(|lease| lease.with(|kept| kept.look()).is_some());
        let visit = scene.on_thread(|lease| lease.try_with(|kept| kept.look()).is_some());
        assert!(refuse(&scene.lease), "nobody else ends it");
        look.join().unwrap();
        visit.join().unwrap();
        assert!(scene.lease.is_leased() && scene.lease.with(|kept| kept.look()).is_some());
        assert_eq!(scene.drops(), 0);
    });
}

#[test]
fn two_ends_that_are_refused_at_once_leave_it_leased() {
    loom::model(|| {
        let scene = Scene::new();
        let others = [(); 2].map(|()| scene.on_thread(refuse));
        assert_eq!(others.map(|other| other.join().unwrap()), [true; 2]);
        assert!(scene.lease.is_leased());
        assert!(scene.lease.end().is_some());
        assert_eq!((scene.lease.is_leased(), scene.drops()), (false, 1));
    });
}
