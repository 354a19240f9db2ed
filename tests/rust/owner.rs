use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::owner::Owner;

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_kept_is_released_exactly_once_whoever_comes_first() {
    for _ in 0..200 {
        let drops = Arc::new(AtomicUsize::new(0));
        let owner = Owner::new(Counted(Arc::clone(&drops)));
        let released: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| usize::from(owner.release().is_some()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((released, drops.load(Ordering::SeqCst)), (1, 1));
        drop(owner);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_nobody_releases_goes_with_the_owner() {
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Owner::new(Counted(Arc::clone(&drops)));
    assert!(owner.is_kept() && owner.with(|_| 1) == Some(1) && owner.try_with(|_| 1) == Some(1));
    drop(owner);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_released_owner_shows_nothing() {
    let owner = Owner::new(5);
    assert_eq!(owner.release(), Some(5));
    assert!(
        owner.release().is_none()
            && owner.with(|_| ()).is_none()
            && owner.try_with(|_| ()).is_none()
    );
    assert!(!owner.is_kept());
}

#[test]
fn an_owner_shows_whether_it_keeps_and_not_what() {
    let owner = Owner::new("secret");
    assert_eq!(format!("{owner:?}"), "Owner(kept)");
    owner.release();
    assert_eq!(format!("{owner:?}"), "Owner(released)");
}

#[test]
fn a_visit_does_not_wait_for_somebody_who_looks() {
    let owner = Owner::new(());
    assert_eq!(owner.with(|()| owner.try_with(|()| ())), Some(None));
}
