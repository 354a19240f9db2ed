//! The plan of an end: its rows, and every combination of up to three streams against a model of what comes before what.
//!
//! The model knows none of the rules. It carries a plan out as a driver would and says which work then comes before
//! which, for the worst streams that the facts allow: a handle is non-blocking, and where somebody may be on any blocking
//! stream there is one.

mod model;
mod outline;

use cai_bridge::device::Place;
use cai_bridge::lease::Parties;
use cai_bridge::lease::end_rules::{
    Answers, Consumer, Found, Known, Lost, Next, Outline, Plan, Question, Role, next,
};
use cai_bridge::stream::{Alive, Stream};
use toml::{Table, Value};

use self::model::{Captures, breaks};
use crate::alive::{HERE, THERE, at};
use crate::tables::{rows, table, text};

const ROLES: [(&str, Role); 3] =
    [("user", Role::User), ("producer", Role::Producer), ("upstream", Role::Upstream)];

fn found(value: &Value) -> Found<'static> {
    match value {
        Value::Integer(handle) => Found::Alive(at(HERE, Stream::Handle(*handle as u64))),
        Value::String(text) => match text.split_once(' ') {
            Some(("met", handle)) => {
                let stream = Stream::Handle(handle.parse().unwrap());
                Found::Met(at(HERE, stream))
            }
            Some(("lost", handle)) => Found::Lost(handle.parse().unwrap()),
            Some(("blocking", "of 1")) => Found::Alive(Alive::standing_in(THERE)),
            None if text == "legacy" => Found::Alive(Alive::legacy(HERE)),
            None if text == "blocking" => Found::Alive(Alive::standing_in(HERE)),
            _ => panic!("{text}"),
        },
        other => panic!("{other:?}"),
    }
}

fn streams(value: &Value) -> Vec<Alive<'static>> {
    let alive = |value| match found(value) {
        Found::Alive(alive) => alive,
        other => panic!("{other:?}"),
    };
    value.as_array().unwrap().iter().map(alive).collect()
}

fn role(name: &str) -> Role {
    ROLES.iter().find(|(known, _)| *known == name).unwrap().1
}

fn spelled(stream: Alive<'_>) -> String {
    match (stream.stream(), stream.stands_in(), stream.place().ordinal) {
        (Stream::Handle(handle), ..) => handle.to_string(),
        (_, false, 0) => "legacy".into(),
        (_, true, 0) => "blocking".into(),
        (_, true, place) => format!("blocking of {place}"),
        (stream, false, place) => format!("{stream} of {place}"),
    }
}

fn spelled_all(streams: &[Alive<'_>]) -> String {
    streams.iter().map(|stream| spelled(*stream)).collect::<Vec<_>>().join(" ")
}

/// A consumer's stream, and whether something keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    is_kept: bool,
}

pub(crate) const KEPT: Named = Named { is_kept: true };
pub(crate) const UNKEPT: Named = Named { is_kept: false };

impl Known for Named {
    fn is_kept(&self) -> bool {
        self.is_kept
    }
}

/// An end, with the producer's stream at GPU 0.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub consumer: Consumer<Named>,
    pub at: Place,
    pub others: bool,
    pub upstream: bool,
    pub lent: Option<Place>,
    pub producer: Option<Alive<'static>>,
    pub changes: bool,
    pub moves: bool,
    pub in_call: bool,
    pub collected: bool,
}

impl Outline for End {
    type Stream = Named;

    fn consumer(&self) -> &Consumer<Named> {
        &self.consumer
    }

    fn at(&self) -> Place {
        self.at
    }

    fn has_further_users(&self) -> bool {
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

    fn producer_place(&self) -> Place {
        HERE
    }

    fn is_collected(&self) -> bool {
        self.collected
    }
}

/// What an end is decided by, once its streams are found.
#[derive(Debug)]
pub(crate) struct Facts<'f, 'a> {
    consumer: &'f Consumer<Named>,
    at: Place,
    streams: &'f [(Role, Found<'a>)],
    libraries: Option<&'f [Alive<'a>]>,
    in_call: bool,
    collected: bool,
}

impl Facts<'_, '_> {
    /// Whether the consumer named no stream.
    fn is_unnamed(&self) -> bool {
        matches!(self.consumer, Consumer::Unnamed(_))
    }
}

/// What comes of the streams. What is not asked then is answered as it would mislead.
pub(crate) fn decide<'a>(facts: &Facts<'_, 'a>) -> Next<'a> {
    let Facts { at, in_call, collected, .. } = *facts;
    let known = End {
        consumer: facts.consumer.clone(),
        at,
        others: false,
        upstream: false,
        lent: None,
        producer: Some(Alive::legacy(HERE)),
        changes: false,
        moves: false,
        in_call,
        collected: !collected,
    };
    let (streams, libraries) = (Some(facts.streams), facts.libraries);
    next(&known, &Answers { streams, libraries, collected, ..Answers::default() })
}

pub(crate) fn outcome(next: &Next<'_>) -> String {
    let plan = match next {
        Next::Ask(Question::Libraries) => return "ask".into(),
        Next::Ask(other) => return format!("ask: {other:?}"),
        Next::Do(plan) => plan,
    };
    match plan {
        Plan::Nothing(why) => format!("nothing: {}", why.as_str()),
        Plan::Edge(user, producer) => format!("{} -> {}", spelled(*user), spelled(*producer)),
        Plan::Order(Parties { users, producers, known }) => {
            let keep = if *known { "" } else { ", kept" };
            format!("{} -> {}{keep}", spelled_all(users), spelled_all(producers))
        }
        Plan::Wait(Lost::Owner, _) => "wait: owner".into(),
        Plan::Wait(Lost::Stream(handle), _) => format!("wait: lost {handle}"),
    }
}

fn expected(row: &Table) -> String {
    if let Some(why) = row.get("nothing") {
        format!("nothing: {}", why.as_str().unwrap())
    } else if let Some(why) = row.get("wait") {
        format!("wait: {}", why.as_str().unwrap())
    } else if let Some(Value::Array(sides)) = row.get("order") {
        let keep = if row.contains_key("keep") { ", kept" } else { "" };
        let [users, producers] = &sides[..] else { panic!("{row:?}") };
        format!("{} -> {}{keep}", spelled_all(&streams(users)), spelled_all(&streams(producers)))
    } else {
        assert!(row.contains_key("ask"), "{row:?}");
        "ask".into()
    }
}

#[test]
fn the_plan_of_an_end_is_the_table() {
    for row in rows(&table("end.toml"), "end") {
        let known: Vec<_> = row["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| (role(pair[0].as_str().unwrap()), found(&pair[1])))
            .collect();
        let libraries = row.get("libraries").map(streams);
        let facts = Facts {
            consumer: &match text(&row, "consumer") {
                "nobody" => Consumer::Nobody,
                "declined" => Consumer::Declined,
                "named" => Consumer::On(KEPT),
                _ => Consumer::Unnamed(vec![]),
            },
            at: Place::gpu(row.get("at").map_or(0, |at| at.as_integer().unwrap() as i32)),
            streams: &known,
            libraries: libraries.as_deref(),
            in_call: row.contains_key("in_call"),
            collected: row.contains_key("collected"),
        };
        assert_eq!(outcome(&decide(&facts)), expected(&row), "{}", text(&row, "rule"));
        let broken = breaks(&facts, &decide(&facts), Captures::NONE);
        assert!(broken.is_none(), "{}: {}", text(&row, "rule"), broken.unwrap());
    }
}

/// What a stream may be found as: of two GPUs, kept, stood in for, lost.
pub(crate) fn findings() -> Vec<Found<'static>> {
    vec![
        Found::Alive(Alive::legacy(HERE)),
        Found::Alive(Alive::standing_in(HERE)),
        Found::Alive(Alive::standing_in(THERE)),
        Found::Alive(at(HERE, Stream::Handle(7))),
        Found::Alive(at(HERE, Stream::Handle(8))),
        Found::Met(at(HERE, Stream::Handle(8))),
        Found::Lost(7),
        Found::Lost(9),
    ]
}

/// Every list of up to three streams with their roles. Their order matters among the producer's alone: the first is its own.
fn lists() -> Vec<Vec<(Role, Found<'static>)>> {
    // A producer's stream that nothing keeps is not known; where somebody works is told of users' alone.
    let is = |role: Role, found: &Found<'_>| match (role, found) {
        (Role::User, _) | (_, Found::Alive(_)) => true,
        (role, Found::Lost(_)) => role == Role::Upstream,
        (_, Found::Met(_)) => false,
    };
    let each = |role: Role| findings().into_iter().filter(move |found| is(role, found));
    let one: Vec<_> =
        ROLES.iter().flat_map(|(_, role)| each(*role).map(|found| (*role, found))).collect();
    let mut all = vec![vec![]];
    let mut add = |list: Vec<(Role, Found<'static>)>| {
        let producers = list.iter().filter(|(role, _)| *role == Role::Producer).count();
        if producers > 1 {
            all.push(list.iter().rev().copied().collect());
        }
        all.push(list);
    };
    for first in 0..one.len() {
        add(vec![one[first]]);
        for second in first..one.len() {
            add(vec![one[first], one[second]]);
            for third in second..one.len() {
                add(vec![one[first], one[second], one[third]]);
            }
        }
    }
    all
}

/// How many plans were checked, how many are wrong, and the first of these.
#[derive(Default)]
struct Checked {
    plans: usize,
    wrong: usize,
    first: Option<String>,
}

impl Checked {
    fn add(&mut self, other: Self) {
        self.plans += other.plans;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }
}

fn check(streams: &[(Role, Found<'static>)], libraries: Option<&[Alive<'static>]>) -> Checked {
    let mut checked = Checked::default();
    let consumers =
        [Consumer::Nobody, Consumer::Declined, Consumer::On(KEPT), Consumer::Unnamed(vec![])];
    for consumer in &consumers {
        for at in [HERE, THERE] {
            for (in_call, collected) in [(false, false), (true, false), (false, true)] {
                let facts = Facts { consumer, at, streams, libraries, in_call, collected };
                let plan = decide(&facts);
                checked.plans += 1;
                let all = Captures::all_for(streams).into_iter();
                let mut broken = all.filter_map(|captures| {
                    let broken = breaks(&facts, &plan, captures)?;
                    Some(format!("{broken}\n{facts:?}\n{captures:?}\n{}", outcome(&plan)))
                });
                if let Some(broken) = broken.next() {
                    checked.wrong += 1;
                    checked.first.get_or_insert(broken);
                }
            }
        }
    }
    checked
}

#[test]
fn no_combination_of_three_streams_breaks_the_model() {
    let libraries = [
        None,
        Some(vec![]),
        Some(vec![Alive::legacy(HERE)]),
        Some(vec![at(HERE, Stream::Handle(9))]),
        Some(vec![at(HERE, Stream::Handle(7)), Alive::legacy(HERE)]),
    ];
    let lists = lists();
    let checked = std::thread::scope(|scope| {
        let parts: Vec<_> = lists
            .chunks(lists.len().div_ceil(2))
            .map(|part| {
                let libraries = &libraries;
                scope.spawn(move || {
                    let mut checked = Checked::default();
                    for list in part {
                        for asked in libraries {
                            checked.add(check(list, asked.as_deref()));
                        }
                    }
                    checked
                })
            })
            .collect();
        let mut all = Checked::default();
        parts.into_iter().for_each(|part| all.add(part.join().unwrap()));
        all
    });
    let Checked { plans, wrong, first } = checked;
    assert!(wrong == 0, "{wrong} of {plans} plans are wrong; the first:\n{}", first.unwrap());
    // So many that a list which went missing would show.
    assert_eq!(plans, lists.len() * libraries.len() * 4 * 2 * 3);
}

#[test]
fn of_hundreds_of_streams_upstream_each_waits_once() {
    let handle = |number| at(HERE, Stream::Handle(number));
    let upstream = (0..600).map(|number| handle(1000 + number % 300));
    let others = [Alive::legacy(HERE), Alive::standing_in(HERE), handle(1), handle(1007)];
    let mut known =
        vec![(Role::User, Found::Alive(handle(1))), (Role::Producer, Found::Alive(handle(2)))];
    known.extend(upstream.chain(others).map(|alive| (Role::Upstream, Found::Alive(alive))));
    let facts = Facts {
        consumer: &Consumer::On(KEPT),
        at: HERE,
        streams: &known,
        libraries: None,
        in_call: false,
        collected: false,
    };
    let Next::Do(Plan::Order(Parties { users, producers, known: true })) = decide(&facts) else {
        panic!("{:?}", decide(&facts))
    };
    let told = |streams: &[Alive<'_>]| streams.iter().map(|one| spelled(*one)).collect::<Vec<_>>();
    assert_eq!(told(&users), ["1"]);
    let expected = std::iter::once(handle(2))
        .chain((0..300).map(|number| handle(1000 + number)))
        .chain([Alive::standing_in(HERE), handle(1)]);
    assert_eq!(told(&producers), told(&expected.collect::<Vec<_>>()));
}
