//! The ends that are not over, by the streams that they wait for.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cai_bridge::lease::{Most, Parked, Turn};

/// An item and the lanes that it waits for, one after the other.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    id: u64,
    lanes: Vec<u32>,
}

fn turn(item: &Item) -> Option<Turn<u32>> {
    item.lanes.last().map(|lane| (*lane, item.id))
}

fn of(id: u64, lanes: &[u32]) -> Item {
    Item { id, lanes: lanes.into() }
}

fn filled(items: impl IntoIterator<Item = Item>) -> Parked<u32, Item> {
    let parked = Parked::new(turn);
    items.into_iter().for_each(|item| parked.push(item));
    parked
}

/// What is asked, and what is over: those up to `reached` of each lane, and those that wait for no lane any more.
fn asked(parked: &Parked<u32, Item>, most: Most, reached: u64) -> (Vec<u64>, Vec<u64>) {
    let mut seen = Vec::new();
    let over = parked.ask(most, |item| {
        seen.push(item.id);
        if item.id <= reached {
            item.lanes.pop();
        }
        item.lanes.is_empty()
    });
    (seen, over.into_iter().map(|item| item.id).collect())
}

#[test]
fn of_each_lane_the_first_is_asked_and_the_next_once_it_is_over() {
    let parked = filled((0..1000).map(|id| of(id, &[u32::try_from(id % 3).unwrap()])));
    assert_eq!(asked(&parked, Most::ALL, 0), (vec![0, 3, 1, 2], vec![0]));
    let (seen, over) = asked(&parked, Most::ALL, 8);
    assert_eq!(over.iter().copied().collect::<BTreeSet<_>>(), (1..=8).collect());
    assert_eq!(seen.len(), over.len() + 3, "one that is not over, of each lane");
    assert_eq!(parked.len(), 991);
}

#[test]
fn one_that_waits_for_several_lanes_moves_from_one_to_the_next() {
    let parked = filled([of(1, &[2, 1]), of(5, &[2]), of(9, &[2, 1])]);
    // Of lane 1 both; the first is before 5 in lane 2, the other is behind it.
    let (seen, over) = asked(&parked, Most::ALL, 9);
    assert_eq!(over.len() + parked.len(), 3);
    assert!(seen.contains(&1) && seen.contains(&5));
    while !parked.is_empty() {
        asked(&parked, Most::ALL, 9);
    }
    let parked = filled([of(1, &[2, 1]), of(5, &[2])]);
    assert_eq!(asked(&parked, Most { lanes: 1, questions: 1 }, 1), (vec![1], vec![]));
    assert_eq!(asked(&parked, Most::ALL, 0), (vec![1], vec![]), "5 is behind it now");
}

#[test]
fn one_that_had_no_lane_has_one_later() {
    let parked: Parked<u32, Item> = filled([of(1, &[]), of(2, &[])]);
    let moved = parked.ask(Most::ALL, |item| {
        item.lanes.push(3);
        false
    });
    assert!(moved.is_empty());
    assert_eq!(parked.len(), 2);
    assert_eq!(asked(&parked, Most::ALL, 0).0, [1]);
    assert_eq!(asked(&parked, Most::ALL, 2).1, [1, 2]);
}

#[test]
fn no_more_is_asked_than_the_caller_says_and_all_come_up() {
    let parked = filled((1..=40).map(|id| of(id, &[u32::try_from(id).unwrap()])));
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let (now, _) = asked(&parked, Most { lanes: 4, questions: 4 }, 0);
        assert_eq!(now.len(), 4);
        seen.extend(now);
    }
    assert_eq!(seen.len(), 40, "those that were not asked for longest come first");
    let parked = filled((1..=40).map(|id| of(id, &[1])));
    assert_eq!(
        asked(&parked, Most { lanes: 9, questions: 4 }, 40),
        (vec![1, 2, 3, 4], vec![1, 2, 3, 4])
    );
    assert_eq!(parked.len(), 36);
    assert!(asked(&parked, Most { lanes: 0, questions: 4 }, 40).0.is_empty());
}

#[test]
fn those_in_no_lane_count_among_the_questions() {
    let lane = (2..=9).map(|id| of(id, &[7]));
    let parked = filled(std::iter::once(of(1, &[])).chain(lane));
    let most = Most { lanes: 2, questions: 3 };
    let mut seen = Vec::new();
    let over = parked.ask(most, |item| {
        seen.push(item.id);
        item.id != 1
    });
    assert_eq!(seen, [1, 2, 3]);
    assert_eq!(over.len(), 2);
    assert_eq!(format!("{parked:?}"), "Parked(7)");
}

#[test]
fn what_is_pushed_meanwhile_is_not_lost_and_those_that_are_asked_count() {
    let parked = filled([of(5, &[1])]);
    let pushed = Cell::new(false);
    let over = parked.ask(Most::ALL, |item| {
        assert!(!parked.is_empty());
        if !pushed.replace(true) {
            // Before and behind the one that is asked, which is alone in its lane.
            parked.push(of(4, &[1]));
            parked.push(of(6, &[1]));
        }
        item.id == 5
    });
    assert_eq!((over.len(), parked.len()), (1, 2));
    assert_eq!(asked(&parked, Most::ALL, 6).1, [4, 6]);
    assert!(parked.is_empty());
}

#[test]
fn whoever_is_asked_may_ask_the_others() {
    let parked = filled([of(1, &[1]), of(2, &[1]), of(3, &[2])]);
    let mut inner = Vec::new();
    parked.ask(Most { lanes: 1, questions: 9 }, |_| {
        inner.push(asked(&parked, Most::ALL, 0).0);
        false
    });
    // The lane that is being asked is nobody else's.
    assert_eq!(inner, [vec![3]]);
}

#[test]
fn two_of_one_number_are_both_asked() {
    let parked = filled([of(1, &[1]), of(1, &[1])]);
    assert_eq!(asked(&parked, Most::ALL, 1).1, [1, 1]);
}

#[test]
fn where_asking_panics_the_others_of_the_lane_stay() {
    for lanes in [&[1][..], &[]] {
        let parked = filled((1..=3).map(|id| of(id, lanes)));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            parked.ask(Most::ALL, |item| {
                assert!(item.id != 2, "on purpose");
                item.id == 1
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(parked.len(), 1);
        assert_eq!(parked.ask(Most::ALL, |_| true), [of(3, lanes)]);
        assert!(parked.is_empty());
    }
}
