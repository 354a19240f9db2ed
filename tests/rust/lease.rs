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
            let threads = [(); 4].map(|()| scope.spawn(|| usize::from(lease.end().is_some())));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((released, drops.load(Ordering::SeqCst)), (1, 1));
        drop(lease);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_lease_shows_and_changes_what_it_holds_until_it_ends() {
    let lease = Lease::new(4);
    lease.with(|holder| *holder += 1);
    assert!(lease.is_leased() && lease.try_with(|holder| *holder) == Some(5));
    assert_eq!(lease.with(|_| lease.try_with(|_| ())), Some(None), "a visit waits for nobody");
    let panicked = std::thread::scope(|scope| {
        scope.spawn(|| lease.with(|_| panic!("as the test wants"))).join()
    });
    assert!(panicked.is_err());
    assert_eq!(lease.try_with(|holder| *holder), lease.with(|holder| *holder));
    assert_eq!((format!("{lease:?}").as_str(), lease.end()), ("Lease(leased)", Some(5)));
    assert_eq!((format!("{lease:?}").as_str(), lease.end()), ("Lease(ended)", None));
    assert!(!lease.is_leased() && lease.with(|_| ()).is_none());
    assert!(lease.try_with(|_| ()).is_none() && lease.begin(|_| ()).is_none());
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
fn what_is_begun_to_end_is_leased_again_when_the_last_who_began_stops() {
    let lease = Lease::new(0);
    for round in 1..3 {
        assert!(lease.begin(|_| ()).is_some() && lease.begin(|_| ()).is_some());
        lease.amend(|holder| *holder += 1);
        lease.stop();
        assert!(!lease.is_leased() && lease.with(|_| ()).is_none());
        assert!(lease.try_with(|_| ()).is_some(), "the collector's visit sees what is held");
        lease.stop();
        assert_eq!((lease.is_leased(), lease.with(|holder| *holder)), (true, Some(round)));
        lease.stop();
        assert!(lease.is_leased(), "nobody had begun");
    }
}

#[test]
fn the_first_of_those_who_began_ends_it_and_else_it_goes_with_the_lease() {
    for ends in [true, false] {
        let drops = Arc::new(AtomicUsize::new(0));
        let lease = Lease::new(Counted(Arc::clone(&drops)));
        assert!(lease.begin(|_| ()).is_some() && lease.begin(|_| ()).is_some());
        if ends {
            assert!(lease.end().is_some() && lease.end().is_none());
            lease.amend(|_| unreachable!("it was ended"));
            lease.stop();
            lease.stop();
            assert!(!lease.is_leased() && lease.begin(|_| ()).is_none());
        }
        drop(lease);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}
