//! The lease of what holds memory, its end, and who asks again.

mod ending;
mod parked;
mod parties;
mod queue;
mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::lease::Lease;

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_leased_is_released_exactly_once_whoever_comes_first() {
    for _ in 0..200 {
        let drops = Arc::new(AtomicUsize::new(0));
        let lease = Lease::new(Counted(Arc::clone(&drops)));
        let released: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| usize::from(lease.end().is_some()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((released, drops.load(Ordering::SeqCst)), (1, 1));
        drop(lease);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_nobody_releases_goes_with_the_lease() {
    let drops = Arc::new(AtomicUsize::new(0));
    let lease = Lease::new(Counted(Arc::clone(&drops)));
    assert!(lease.is_leased() && lease.with(|_| 1) == Some(1) && lease.try_with(|_| 1) == Some(1));
    drop(lease);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn an_ended_lease_shows_nothing() {
    let lease = Lease::new(5);
    assert_eq!(lease.end(), Some(5));
    assert!(
        lease.end().is_none() && lease.with(|_| ()).is_none() && lease.try_with(|_| ()).is_none()
    );
    assert!(!lease.is_leased());
}

#[test]
fn a_lease_that_is_nobody_elses_ends_once() {
    let mut lease = Lease::new(5);
    assert_eq!((lease.end_unshared(), lease.end_unshared()), (Some(5), None));
    let mut ended = Lease::new(5);
    ended.end();
    assert_eq!(ended.end_unshared(), None);
}

#[test]
fn a_lease_shows_whether_it_is_leased_and_not_what() {
    let lease = Lease::new("secret");
    assert_eq!(format!("{lease:?}"), "Lease(leased)");
    lease.end();
    assert_eq!(format!("{lease:?}"), "Lease(ended)");
}

#[test]
fn a_visit_does_not_wait_for_somebody_who_looks() {
    let lease = Lease::new(());
    assert_eq!(lease.with(|()| lease.try_with(|()| ())), Some(None));
}

#[test]
fn a_refused_end_leaves_everything_as_it_was() {
    let drops = Arc::new(AtomicUsize::new(0));
    let lease = Lease::new(Counted(Arc::clone(&drops)));
    for _ in 0..3 {
        lease.begin(|_| ()).unwrap();
        assert!(!lease.is_leased() && lease.with(|_| ()).is_none());
        assert!(lease.try_with(|_| ()).is_some(), "the collector's visit sees what is held");
        lease.stop();
        assert!(
            lease.is_leased() && lease.with(|_| ()).is_some() && lease.try_with(|_| ()).is_some()
        );
        assert_eq!(format!("{lease:?}"), "Lease(leased)");
        assert_eq!(drops.load(Ordering::SeqCst), 0);
    }
    drop(lease.end().unwrap());
    assert_eq!((lease.is_leased(), drops.load(Ordering::SeqCst)), (false, 1));
}

#[test]
fn several_may_begin_to_end_it_and_it_is_leased_again_when_the_last_of_them_stops() {
    let lease = Lease::new(0);
    assert_eq!((lease.begin(|holder| *holder), lease.begin(|holder| *holder)), (Some(0), Some(0)));
    lease.amend(|holder| *holder += 1);
    lease.stop();
    assert!(!lease.is_leased() && lease.with(|_| ()).is_none());
    lease.stop();
    assert_eq!((lease.is_leased(), lease.with(|holder| *holder)), (true, Some(1)));
    lease.stop();
    assert!(lease.is_leased(), "nobody had begun");
}

#[test]
fn the_first_of_those_who_began_ends_it() {
    let lease = Lease::new(7);
    assert!(lease.begin(|_| ()).is_some() && lease.begin(|_| ()).is_some());
    assert_eq!((lease.end(), lease.end()), (Some(7), None));
    lease.amend(|_| unreachable!("it was ended"));
    assert!(lease.begin(|_| ()).is_none());
    lease.stop();
    lease.stop();
    assert!(!lease.is_leased());
}

#[test]
fn what_was_begun_to_end_goes_with_the_lease() {
    let drops = Arc::new(AtomicUsize::new(0));
    let lease = Lease::new(Counted(Arc::clone(&drops)));
    assert!(lease.begin(|_| ()).is_some());
    drop(lease);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_holder_can_be_changed_while_it_is_leased() {
    let lease = Lease::new(1);
    lease.with(|holder| *holder += 1);
    assert_eq!(lease.try_with(|holder| *holder), Some(2));
    assert_eq!(lease.end(), Some(2));
}

#[test]
fn whoever_panics_while_looking_leaves_the_lease_to_the_others() {
    let lease = Lease::new(5);
    let panicked = std::thread::scope(|scope| {
        scope.spawn(|| lease.with(|_| panic!("as the test wants"))).join()
    });
    assert!(panicked.is_err());
    assert_eq!(
        (lease.try_with(|holder| *holder), lease.with(|holder| *holder)),
        (Some(5), Some(5))
    );
    assert_eq!(lease.end(), Some(5));
}
