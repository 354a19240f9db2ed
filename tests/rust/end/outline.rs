//! What the outline of an end tells, against the plan: for every outline, and all streams that may be behind it.

use cai_bridge::device::Place;
use cai_bridge::lease::plan::{
    Consumer, Facts, First, Found, Outline, Plan, Role, Works, decide, first,
};
use cai_bridge::stream::{Alive, Stream};

use super::{findings, outcome};
use crate::alive::at;

const HERE: Place = Place::gpu(0);
const THERE: Place = Place::gpu(1);

/// An end, with the producer's stream at GPU 0.
#[derive(Debug, Clone, Copy)]
struct Known {
    works: Works,
    at: Place,
    others: bool,
    upstream: bool,
    lent: Option<Place>,
    producer: Option<Alive<'static>>,
    changes: bool,
    moves: bool,
    in_call: bool,
    collected: bool,
}

impl Outline for Known {
    fn consumer(&self) -> Works {
        self.works
    }

    fn at(&self) -> Place {
        self.at
    }

    fn has_others(&self) -> bool {
        self.others
    }

    fn has_upstream(&self) -> bool {
        self.upstream
    }

    fn lent(&self) -> Option<Place> {
        self.lent
    }

    fn has_producer(&self) -> bool {
        self.producer.is_some()
    }

    fn is_producer(&self, stream: Alive<'_>) -> bool {
        // Two that something stands in for need not be one.
        self.producer.is_some_and(|own| own.is(stream) && !(own.stands_in() && stream.stands_in()))
    }

    fn may_change(&self) -> bool {
        self.changes || self.moves
    }

    fn may_move(&self) -> bool {
        self.moves
    }

    fn in_call(&self) -> bool {
        self.in_call
    }

    fn home(&self) -> Place {
        HERE
    }

    fn is_collected(&self) -> bool {
        self.collected
    }
}

fn all() -> Vec<Known> {
    let (legacy, stood_in) = (Alive::legacy(HERE), Alive::standing_in(HERE));
    let works = [
        Works::Nobody,
        Works::Declined,
        Works::OnProducer,
        Works::OnOne,
        Works::OnOthers,
        Works::Unnamed,
    ];
    let producers = [None, Some(legacy), Some(stood_in), Some(at(HERE, Stream::Handle(7)))];
    let mut all = vec![];
    for works in works {
        for (place, lent) in [(HERE, None), (HERE, Some(HERE)), (THERE, None), (THERE, Some(THERE))]
        {
            for producer in producers {
                for bits in 0..64 {
                    let has = |bit: u32| bits >> bit & 1 == 1;
                    // What is not known neither changes nor moves.
                    let changes = producer.is_some() && has(2);
                    all.push(Known {
                        works,
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
fn behind(known: &Known, asks: First) -> Vec<Vec<(Role, Found<'static>)>> {
    // One that may change may be closed by now, or another besides, unless that is what was asked.
    let closed = known.changes && matches!(asks, First::Nothing(_));
    let moved = known.moves && asks != First::WhetherProducerStays;
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
    match known.works {
        Works::Nobody | Works::Declined | Works::Unnamed => {}
        // One that stands in for another is the consumer's where it named the legacy stream itself.
        Works::OnProducer => {
            let on = |own: Alive<'static>| if own.stands_in() { Alive::legacy(HERE) } else { own };
            each(Role::User, vec![known.producer.map(|own| Found::Alive(on(own)))]);
        }
        Works::OnOne => {
            let alive = users().filter(|found| matches!(found, Found::Alive(_)));
            each(Role::User, alive.map(Some).collect());
        }
        Works::OnOthers => each(Role::User, users().map(Some).collect()),
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

const fn asked(works: Works) -> Consumer {
    match works {
        Works::Nobody => Consumer::Nobody,
        Works::Declined => Consumer::Declined,
        Works::OnProducer | Works::OnOne | Works::OnOthers => Consumer::Named,
        Works::Unnamed => Consumer::Unnamed,
    }
}

/// What is wrong with what the outline tells, if anything is.
fn wrong(asks: First, facts: &Facts<'_, '_>) -> Option<String> {
    let plan = decide(facts);
    let is_same = match (asks, &plan) {
        (First::All, _) => true,
        (First::WhetherBothLive, Plan::Order(parties)) => {
            parties.known && (parties.users.len(), parties.producers.len()) == (1, 1)
        }
        (First::WhetherOneMarkDoes, Plan::Order(parties)) => {
            let is_one = |streams: &[Alive<'_>], place| matches!(streams, [one] if one.is(Alive::legacy(place)) && one.stands_in());
            let by_mark =
                |place| is_one(&parties.users, place) && is_one(&parties.producers, place);
            !parties.known && by_mark(facts.at) && facts.at == facts.home
        }
        // Between two that are one the order is none.
        (_, Plan::Nothing(_)) => true,
        _ => false,
    };
    (!is_same).then(|| outcome(&plan))
}

#[test]
fn what_the_outline_of_an_end_tells_is_what_is_decided() {
    let mut told = std::collections::BTreeMap::new();
    for known in all() {
        let asks = first(&known);
        *told.entry(format!("{asks:?}")).or_insert(0) += 1;
        let legacy = [Alive::legacy(known.at)];
        for streams in behind(&known, asks) {
            for libraries in [None, Some(&legacy[..0]), Some(&legacy[..])] {
                let asked_them = [First::WhetherAllOnLegacy, First::WhetherOneMarkDoes];
                if libraries.is_none() && asked_them.contains(&asks) {
                    continue;
                }
                // A producer that is known is asked.
                let asked_it = known.producer.is_some();
                for collected in [known.collected, known.collected != asked_it] {
                    let facts = Facts {
                        consumer: asked(known.works),
                        at: known.at,
                        home: HERE,
                        streams: &streams,
                        libraries,
                        in_call: known.in_call,
                        collected,
                    };
                    if let Some(plan) = wrong(asks, &facts) {
                        panic!("{asks:?} of {known:?}, but {plan}\n{facts:?}");
                    }
                }
            }
        }
    }
    assert_eq!(told.len(), 8, "{told:?}");
}
