//! What an end does, once it is found what has become of each of its streams. Pure.

use std::collections::HashSet;

use super::parties::{Parties, Streams};
use crate::device::Place;
use crate::stream::{Alive, Elided, Stream};

/// What a stream is to the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// There was work on the memory there.
    User,
    /// The producer works there.
    Producer,
    /// Work there may go on with the memory, as the producer's does.
    Upstream,
}

/// What is found of a stream at the end.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// It is alive, or the legacy default stream stands in for it.
    Alive(Alive<'a>),
    /// Nothing keeps it, but a library works there now. Its first user may have gone on to another.
    Met(Alive<'a>),
    /// Nothing keeps it, and nothing stands in for it: a non-blocking stream of that handle, if it is there at all.
    Lost(u64),
}

/// Why the host waits for all work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lost {
    /// This stream may still have work, or go on with the memory, and nothing can touch it.
    Stream(u64),
    /// The owner is garbage as well, and its stream is not known: it cannot be kept.
    Owner,
}

/// What an end does.
#[derive(Debug, Clone)]
pub enum Plan<'a> {
    /// No stream waits.
    Nothing(Elided),
    /// The producer's stream, the second, waits for the user's.
    Edge(Alive<'a>, Alive<'a>),
    /// Each of the producers waits for each of the users. If the first is not known but stands in for one that is not,
    /// the memory is kept until the users' work is done.
    Order(Parties<'a>),
    /// The host waits for all work, at the consumer's place and where the users are. Work that is captured does not run
    /// until then: what is in one graph is ordered there.
    Wait(Lost, Parties<'a>),
}

/// What an end is decided by once its streams are found.
pub(super) struct Facts<'f, 'a> {
    /// Whether the consumer named no stream.
    pub(super) is_unnamed: bool,
    /// Why no stream waits, where no consumer worked on the memory.
    pub(super) idle: Elided,
    /// Where a consumer works that named no stream.
    pub(super) at: Place,
    /// Where the producer works.
    pub(super) home: Place,
    pub(super) streams: &'f [(Role, Found<'a>)],
    /// Where the imported libraries work now, once they were asked.
    pub(super) libraries: Option<&'f [Alive<'a>]>,
    /// Whether the end is that of a call.
    pub(super) in_call: bool,
    /// Whether the garbage collector takes the owner apart as well.
    pub(super) collected: bool,
}

/// Up to so many streams are compared one by one.
const FEW: usize = 16;

/// Decides what an end does; `None` where the libraries have to be asked first.
pub(super) fn decide<'a>(facts: &Facts<'_, 'a>) -> Option<Plan<'a>> {
    let mut users = alive(facts, Role::User);
    let lost = lost(facts, Role::User).next();
    let is_met = |(_, stream): &(Role, Found<'_>)| matches!(stream, Found::Met(_));
    let unknown = lost.is_some() || facts.is_unnamed || facts.streams.iter().any(is_met);
    if users.is_empty() && !unknown {
        return Some(Plan::Nothing(facts.idle));
    }
    let mut producers = alive(facts, Role::Producer);
    let known = !producers.is_empty();
    if !known {
        producers.push(Alive::standing_in(facts.home));
    }
    let left = upstream(facts, &users, &mut producers);
    if facts.libraries.is_none() && (unknown || left.is_some()) {
        return None;
    }
    if unknown {
        add_unknown(facts, &mut users, &producers);
    }
    let parties = Parties { users, producers, known };
    Some(match lost.or(left) {
        Some(lost) => Plan::Wait(Lost::Stream(lost), parties),
        None if !known && facts.collected => Plan::Wait(Lost::Owner, parties),
        None if known && parties.are_one_stream() => Plan::Nothing(Elided::SameStream),
        None => Plan::Order(parties),
    })
}

/// Adds to `producers` the streams upstream. A lost one is alive all the same where a library works on one of its
/// handle: if that is another stream by now, its own is destroyed, and nothing comes after it. Returns one that is left.
fn upstream<'a>(
    facts: &Facts<'_, 'a>,
    users: &[Alive<'a>],
    producers: &mut Streams<'a>,
) -> Option<u64> {
    add_alive(facts, Role::Upstream, producers);
    let mut left = None;
    for handle in lost(facts, Role::Upstream) {
        let libraries = facts.libraries.unwrap_or_default();
        let has = |known: &&Alive<'a>| known.stream() == Stream::Handle(handle);
        match users.iter().chain(libraries).find(has) {
            Some(known) => add(producers, *known),
            None if producers.iter().any(|known| has(&known)) => {}
            None => left = left.or(Some(handle)),
        }
    }
    left
}

/// Adds to `users` where unknown users may work: any blocking stream of the place, and where the libraries do.
fn add_unknown<'a>(facts: &Facts<'_, 'a>, users: &mut Streams<'a>, producers: &[Alive<'a>]) {
    // A producer on the legacy stream itself follows every blocking stream, with its next work there. What comes after a
    // call need not be there.
    let legacy = Alive::legacy(facts.at);
    let is_legacy = |next: &Alive<'_>| next.is(legacy) && !next.stands_in();
    let follows = !facts.in_call && producers.first().is_some_and(is_legacy);
    add(users, if follows { legacy } else { Alive::standing_in(facts.at) });
    for library in facts.libraries.unwrap_or_default() {
        add(users, *library);
    }
}

fn alive<'a>(facts: &Facts<'_, 'a>, of: Role) -> Streams<'a> {
    let mut found = Streams::new();
    add_alive(facts, of, &mut found);
    found
}

/// Adds those of a role to `streams`, each once.
fn add_alive<'a>(facts: &Facts<'_, 'a>, of: Role, streams: &mut Streams<'a>) {
    // Those of `streams`, once there are more than a few: a chain of views has hundreds upstream.
    let mut there = HashSet::new();
    for (role, stream) in facts.streams {
        let (Found::Alive(alive) | Found::Met(alive)) = *stream else { continue };
        if *role != of {
            continue;
        }
        if streams.len() < FEW || !matches!(alive.stream(), Stream::Handle(_)) {
            add(streams, alive);
            continue;
        }
        if there.is_empty() {
            there.extend(streams.iter().map(|known| known.stream()));
        }
        if there.insert(alive.stream()) {
            streams.push(alive);
        }
    }
}

fn lost(facts: &Facts<'_, '_>, of: Role) -> impl Iterator<Item = u64> {
    facts.streams.iter().filter_map(move |(role, stream)| match stream {
        Found::Lost(handle) if *role == of => Some(*handle),
        _ => None,
    })
}

/// Adds a stream once. The legacy stream that stands in for others is more than itself.
fn add<'a>(streams: &mut Streams<'a>, alive: Alive<'a>) {
    match streams.iter_mut().find(|known| known.is(alive)) {
        Some(known) if alive.stands_in() => *known = alive,
        Some(_) => {}
        None => streams.push(alive),
    }
}
