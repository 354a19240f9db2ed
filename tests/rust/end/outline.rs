//! What the outline of an end tells, against the plan: for every outline, and all streams that may be behind it.

use std::collections::BTreeMap;

use cai_bridge::lease::end_rules::{Answers, Consumer, Found, Next, Plan, Question, Role, next};
use cai_bridge::stream::{Alive, Stream};

use super::{End, Facts, KEPT, UNKEPT, decide, findings, outcome};
use crate::alive::{HERE, THERE, at};

fn all() -> Vec<End> {
    let (legacy, stood_in) = (Alive::legacy(HERE), Alive::standing_in(HERE));
    let consumers = [
        Consumer::Nobody,
        Consumer::Unread,
        Consumer::Declined,
        Consumer::OnProducer(None),
        Consumer::OnProducer(Some(KEPT)),
        Consumer::On(KEPT),
        Consumer::On(UNKEPT),
        Consumer::Unnamed(vec![KEPT]),
        Consumer::Unnamed(vec![]),
    ];
    let producers = [None, Some(legacy), Some(stood_in), Some(at(HERE, Stream::Handle(7)))];
    let mut all = vec![];
    for consumer in consumers {
        for (place, lent) in [(HERE, None), (HERE, Some(HERE)), (THERE, None), (THERE, Some(THERE))]
        {
            for producer in producers {
                for bits in 0..64 {
                    let has = |bit: u32| bits >> bit & 1 == 1;
                    // What is not known neither changes nor moves.
                    let changes = producer.is_some() && has(2);
                    all.push(End {
                        consumer: consumer.clone(),
                        at: place,
                        others: has(0),
                        upstream: has(1),
                        lent,
                        producer,
                        changes,
                        moves: changes && has(3),
                        in_call: has(4),
                        collected: has(5),
                    });
                }
            }
        }
    }
    all
}

/// What may be found of the streams behind an outline, where the answer to its question is yes.
fn behind(known: &End, asks: Option<Question>) -> Vec<Vec<(Role, Found<'static>)>> {
    // One that may change may be closed by now, or another besides, unless that is what was asked.
    let closed = known.changes && asks.is_none();
    let moved = known.moves && asks != Some(Question::ProducerStays);
    let mut lists = vec![vec![]];
    let mut each = |role: Role, options: Vec<Option<Found<'static>>>| {
        lists = lists
            .iter()
            .flat_map(|list: &Vec<_>| {
                options.iter().map(move |found| {
                    list.iter().copied().chain(found.map(|found| (role, found))).collect()
                })
            })
            .collect();
    };
    let own = known.producer.map(Found::Alive);
    let later = Some(Found::Alive(at(HERE, Stream::Handle(8))));
    each(Role::Producer, if closed { vec![own, None] } else { vec![own] });
    each(Role::Producer, if moved { vec![None, later] } else { vec![None] });
    let users = || findings().into_iter().filter(|found| !matches!(found, Found::Met(_)));
    match &known.consumer {
        Consumer::Nobody | Consumer::Unread | Consumer::Declined => {}
        Consumer::Unnamed(seen) if seen.is_empty() => {}
        // One that stands in for another is the consumer's where it named the legacy stream itself.
        Consumer::OnProducer(_) => {
            let on = |own: Alive<'static>| if own.stands_in() { Alive::legacy(HERE) } else { own };
            each(Role::User, vec![known.producer.map(|own| Found::Alive(on(own)))]);
        }
        Consumer::On(named) if named.is_kept => {
            let alive = users().filter(|found| matches!(found, Found::Alive(_)));
            each(Role::User, alive.map(Some).collect());
        }
        Consumer::On(_) | Consumer::Unnamed(_) => each(Role::User, users().map(Some).collect()),
    }
    if known.others {
        each(Role::User, users().map(Some).collect());
    }
    if known.upstream {
        each(Role::Upstream, users().map(Some).collect());
    }
    if let Some(place) = known.lent {
        each(Role::User, vec![Some(Found::Alive(Alive::legacy(place)))]);
    }
    lists
}

/// What is done where the answer to the question is yes, and the streams that were found.
fn quickly(
    known: &End,
    asks: Question,
    streams: &[(Role, Found<'static>)],
) -> Option<Next<'static>> {
    let alive = |of: Role| {
        streams.iter().find_map(|(role, found)| match found {
            Found::Alive(alive) if *role == of => Some(*alive),
            _ => None,
        })
    };
    let yes = Answers {
        producer_stays: (asks == Question::ProducerStays).then_some(true),
        all_on_legacy: matches!(asks, Question::AllOnLegacy | Question::OneMarkDoes)
            .then_some(true),
        both_live: (asks == Question::BothLive)
            .then(|| alive(Role::User).zip(alive(Role::Producer))),
        ..Answers::default()
    };
    matches!(next(known, &yes), Next::Do(_)).then(|| next(known, &yes))
}

/// What is asked where the answer to a question is no.
fn after_no(known: &End) -> Next<'static> {
    let no = Answers {
        producer_stays: Some(false),
        all_on_legacy: Some(false),
        both_live: Some(None),
        ..Answers::default()
    };
    next(known, &no)
}

/// Whether two ends do the same. Between two streams that are one the order is none.
fn is_same(quick: &Next<'_>, full: &Next<'_>) -> bool {
    match (quick, full) {
        (Next::Do(Plan::Nothing(_)), Next::Do(Plan::Nothing(_))) => true,
        (Next::Do(Plan::Edge(user, producer)), Next::Do(Plan::Nothing(_))) => user.is(*producer),
        (quick, full) => outcome(quick) == outcome(full),
    }
}

#[test]
fn what_the_outline_of_an_end_tells_is_what_is_decided() {
    let (mut told, mut compared) = (BTreeMap::new(), BTreeMap::new());
    for known in all() {
        let first = next(&known, &Answers::default());
        let asks = match &first {
            Next::Ask(question) => Some(*question),
            Next::Do(plan) => {
                assert!(matches!(plan, Plan::Nothing(_)), "{plan:?} of {known:?}");
                None
            }
        };
        let key = asks.map_or_else(|| outcome(&first), |question| format!("{question:?}"));
        *told.entry(key).or_insert(0) += 1;
        let after_no = after_no(&known);
        if asks.is_some() {
            assert!(matches!(after_no, Next::Ask(Question::Streams)), "{after_no:?} of {known:?}");
        }
        if asks == Some(Question::Streams) {
            continue;
        }
        let legacy = [Alive::legacy(known.at)];
        for streams in behind(&known, asks) {
            for libraries in [None, Some(&legacy[..0]), Some(&legacy[..])] {
                let asked_them = [Some(Question::AllOnLegacy), Some(Question::OneMarkDoes)];
                if libraries.is_none() && asked_them.contains(&asks) {
                    continue;
                }
                // A producer that is known is asked.
                let asked_it = known.producer.is_some();
                for collected in [known.collected, known.collected != asked_it] {
                    let facts = Facts {
                        consumer: &known.consumer,
                        at: known.at,
                        streams: &streams,
                        libraries,
                        in_call: known.in_call,
                        collected,
                    };
                    let quick = asks.map_or_else(
                        || Some(first.clone()),
                        |question| quickly(&known, question, &streams),
                    );
                    // Without both streams alive the answer is no.
                    let Some(quick) = quick else { continue };
                    let full = decide(&facts);
                    if !is_same(&quick, &full) {
                        let (quick, full) = (outcome(&quick), outcome(&full));
                        panic!("{quick}, but {full}\n{known:?}\n{facts:?}");
                    }
                    *compared.entry(asks.map(|question| format!("{question:?}"))).or_insert(0) += 1;
                }
            }
        }
    }
    assert_eq!((told.len(), compared.len()), (8, 5), "{told:?} {compared:?}");
}
