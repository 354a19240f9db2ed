//! Decides what an end does, once the state of its streams is known. Pure functions.

use std::collections::HashSet;

use super::parties::{Parties, Streams};
use crate::device::Place;
use crate::stream::{Alive, Elided, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    User,
    Producer,
    /// A stream that, like the producer's, must wait for the users at the end.
    Upstream,
}

#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    Alive(Alive<'a>),
    /// A user's stream that may have been destroyed. A library or another user now names a live stream with the same
    /// handle and, if the number is known, the same number.
    Met(Alive<'a>),
    /// The stream with this handle may be destroyed, and a new stream may have the handle.
    Lost(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lost {
    Stream(u64),
    /// The producer's stream is unknown, and the garbage collector may be clearing the memory's owner.
    Owner,
}

#[derive(Debug, Clone)]
pub enum Plan<'a> {
    Nothing(Elided),
    /// The second stream, the producer's, waits for the first stream, the user's.
    Edge(Alive<'a>, Alive<'a>),
    /// The streams of the producers wait for those of the users, by [`Parties::settle`].
    Order(Parties<'a>),
    /// The host waits for all work in the contexts of the consumer and of the other users.
    Wait(Lost, Parties<'a>),
}

pub(super) struct EndFacts<'f, 'a> {
    pub(super) is_unnamed: bool,
    pub(super) idle: Elided,
    pub(super) at: Place,
    pub(super) producer_place: Place,
    pub(super) streams: &'f [(Role, Found<'a>)],
    pub(super) libraries: Option<&'f [Alive<'a>]>,
    pub(super) in_call: bool,
    /// Whether the garbage collector may be clearing the memory's owner.
    pub(super) collected: bool,
}

const FEW: usize = 16;

pub(super) fn decide<'a>(facts: &EndFacts<'_, 'a>) -> Option<Plan<'a>> {
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
        producers.push(Alive::standing_in(facts.producer_place));
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

/// Adds to `producers` the upstream streams that are known to be alive. Returns the handle of another one, if any.
fn upstream<'a>(
    facts: &EndFacts<'_, 'a>,
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

/// For users whose stream is unknown, adds the legacy default stream and the libraries' current streams.
fn add_unknown<'a>(facts: &EndFacts<'_, 'a>, users: &mut Streams<'a>, producers: &[Alive<'a>]) {
    // A producer that stays on the legacy stream need not wait for it: CUDA runs its next work after all blocking
    // streams.
    let legacy = Alive::legacy(facts.at);
    let is_legacy = |next: &Alive<'_>| next.is(legacy) && !next.stands_in();
    let follows = !facts.in_call && producers.first().is_some_and(is_legacy);
    add(users, if follows { legacy } else { Alive::standing_in(facts.at) });
    for library in facts.libraries.unwrap_or_default() {
        add(users, *library);
    }
}

fn alive<'a>(facts: &EndFacts<'_, 'a>, of: Role) -> Streams<'a> {
    let mut found = Streams::new();
    add_alive(facts, of, &mut found);
    found
}

fn add_alive<'a>(facts: &EndFacts<'_, 'a>, of: Role, streams: &mut Streams<'a>) {
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

fn lost(facts: &EndFacts<'_, '_>, of: Role) -> impl Iterator<Item = u64> {
    facts.streams.iter().filter_map(move |(role, stream)| match stream {
        Found::Lost(handle) if *role == of => Some(*handle),
        _ => None,
    })
}

/// Adds `alive` if `streams` does not contain that stream. If `streams` contains it and `alive` stands in
/// ([`Alive::stands_in`]), `alive` replaces that entry.
fn add<'a>(streams: &mut Streams<'a>, alive: Alive<'a>) {
    match streams.iter_mut().find(|known| known.is(alive)) {
        Some(known) if alive.stands_in() => *known = alive,
        Some(_) => {}
        None => streams.push(alive),
    }
}
