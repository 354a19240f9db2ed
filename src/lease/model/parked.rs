//! Models of [`Parked`] alone: several threads push items and check them at the same time.

use loom::sync::Arc;
use loom::thread;

use crate::lease::{Most, Parked};

fn parked(numbers: &[u64]) -> Arc<Parked<u32, u64>> {
    let parked = Parked::new(|number| Some((1, *number)));
    numbers.iter().for_each(|number| parked.push(*number));
    Arc::new(parked)
}

#[test]
fn what_is_pushed_into_a_lane_that_is_asked_is_not_lost() {
    for is_over in [false, true] {
        loom::model(move || {
            let parked = parked(&[1]);
            let pushing = {
                let parked = Arc::clone(&parked);
                thread::spawn(move || parked.push(2))
            };
            let mut over = parked.ask(Most { lanes: 1, questions: 1 }, |_| is_over);
            pushing.join().unwrap();
            assert_eq!(parked.len(), 2 - over.len());
            over.extend(parked.ask(Most::ALL, |_| true));
            over.sort_unstable();
            assert_eq!(over, [1, 2]);
            assert!(parked.is_empty());
        });
    }
}

#[test]
fn a_lane_is_asked_by_one_at_a_time_and_each_is_over_once() {
    loom::model(|| {
        let parked = parked(&[1, 2]);
        let asking = {
            let parked = Arc::clone(&parked);
            thread::spawn(move || parked.ask(Most::ALL, |_| true))
        };
        let mut over = parked.ask(Most::ALL, |_| true);
        over.extend(asking.join().unwrap());
        over.extend(parked.ask(Most::ALL, |_| true));
        over.sort_unstable();
        assert_eq!(over, [1, 2]);
        assert!(parked.is_empty());
    });
}
