//! Every interleaving of the owner's calls, by [loom]: `make loom` runs these in place of the tests.
//!
//! The threads here are loom's, and so is everything that they share; each test is run once for every
//! order in which their steps can come.
//!
//! [loom]: https://docs.rs/loom

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::Owner;

/// Something that counts its drops, and says while it is looked at that it lives.
struct Kept {
    drops: Arc<AtomicUsize>,
}

impl Kept {
    fn look(&self) {
        assert_eq!(self.drops.load(Ordering::SeqCst), 0, "seen after its end");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

struct Scene {
    drops: Arc<AtomicUsize>,
    owner: Arc<Owner<Arc<Kept>>>,
}

impl Scene {
    fn new() -> Self {
        let drops = Arc::new(AtomicUsize::new(0));
        let kept = Arc::new(Kept { drops: Arc::clone(&drops) });
        Self { drops, owner: Arc::new(Owner::new(kept)) }
    }

    /// `call` on a thread of its own.
    fn on_thread<R: 'static>(
        &self,
        call: impl FnOnce(&Owner<Arc<Kept>>) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let owner = Arc::clone(&self.owner);
        thread::spawn(move || call(&owner))
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::SeqCst)
    }
}

#[test]
fn one_of_those_who_release_at_once_gets_it_and_it_ends_once() {
    loom::model(|| {
        let scene = Scene::new();
        let others: Vec<_> = (0..2)
            .map(|_| scene.on_thread(|owner| usize::from(owner.release().is_some())))
            .collect();
        let mine = usize::from(scene.owner.release().is_some());
        let theirs: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!((mine + theirs, scene.drops()), (1, 1));
    });
}

#[test]
fn who_looks_while_another_releases_sees_it_alive_or_not_at_all() {
    loom::model(|| {
        let scene = Scene::new();
        let visit = scene.on_thread(|owner| owner.try_with(|kept| kept.look()).is_some());
        let look = scene.on_thread(|owner| owner.with(|kept| kept.look()).is_some());
        drop(scene.owner.release());
        assert!(scene.owner.with(|kept| kept.look()).is_none(), "seen after its release");
        assert!(scene.owner.try_with(|kept| kept.look()).is_none(), "visited after its release");
        look.join().unwrap();
        visit.join().unwrap();
        assert_eq!(scene.drops(), 1);
    });
}

#[test]
fn the_flag_says_released_whenever_nothing_is_to_be_seen_and_the_other_way_round() {
    loom::model(|| {
        let scene = Scene::new();
        let unseen = scene.on_thread(|owner| {
            if owner.with(|kept| kept.look()).is_none() {
                assert!(!owner.is_kept(), "gone, and the flag says kept");
            }
        });
        let flagged = scene.on_thread(|owner| {
            if !owner.is_kept() {
                assert!(owner.with(|kept| kept.look()).is_none(), "flagged, and yet seen");
            }
        });
        assert!(scene.owner.is_kept());
        drop(scene.owner.release());
        assert!(!scene.owner.is_kept());
        unseen.join().unwrap();
        flagged.join().unwrap();
    });
}

#[test]
fn what_was_shared_before_the_release_lives_as_long_as_its_holder() {
    loom::model(|| {
        let scene = Scene::new();
        let sharing = scene.on_thread(|owner| owner.with(|kept| Arc::clone(kept)));
        drop(scene.owner.release());
        if let Some(shared) = sharing.join().unwrap() {
            shared.look();
            assert_eq!(scene.drops(), 0);
            drop(shared);
        }
        assert_eq!(scene.drops(), 1);
        assert!(scene.owner.with(|kept| Arc::clone(kept)).is_none());
    });
}

#[test]
fn what_nobody_releases_ends_with_the_last_who_holds_its_owner() {
    loom::model(|| {
        let Scene { drops, owner } = Scene::new();
        let other = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || drop(owner))
        };
        owner.with(|kept| kept.look());
        drop(owner);
        other.join().unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}
