//! Decides what an end does, once the state of its streams is known. Pure functions.

use std::collections::HashSet;

use super::parties::{Parties, Streams};
use crate::device::Place;
use crate::stream::{Alive, Elided, Stream};

/// The part that a stream plays in an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A consumer worked on the memory on this stream.
    User,
    /// The producer works on this stream. If the producer has moved, its first stream may have this role, too.
    Producer,
    /// The memory may be used on this stream again, as on the producer's own: an earlier user works there, a caller
    /// declared the stream for the producer, or the producer worked there and no object names the stream any more.
    Upstream,
}

/// What is known about a stream when a lease ends.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// The stream is alive, or the legacy default stream stands in for it.
    Alive(Alive<'a>),
    /// Nothing keeps the stream alive, but it is now a library's current stream, or another user's stream. The user
    /// that named it may have moved to another stream.
    Met(Alive<'a>),
    /// Nothing keeps the stream with this handle alive, and no stream stands in for it. It may be destroyed, and a new
    /// stream may have the handle.
    Lost(u64),
}

/// Why the host waits for all work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The stream with this handle may have pending work on the memory, or get work on it later. Nothing keeps the
    /// stream alive, so no driver call may use the handle.
    Stream(u64),
    /// The producer's stream is unknown. The garbage collector clears the memory's owner, or may clear it, so the
    /// bridge cannot keep the owner alive.
    Owner,
}

/// What an end does.
#[derive(Debug, Clone)]
pub enum Plan<'a> {
    /// No stream waits.
    Nothing(Elided),
    /// The second stream, the producer's, waits for the first, the user's.
    Edge(Alive<'a>, Alive<'a>),
    /// Each producer's stream waits for each user's stream. If the producer's own stream is unknown, the memory is also
    /// kept until the users' work is done.
    Order(Parties<'a>),
    /// The host waits for all work at the consumer's place and at the users' places. Captured work does not run
    /// meanwhile, so inside a graph each captured producer's stream waits for each captured user's stream.
    Wait(Lost, Parties<'a>),
}

/// The facts that decide an end.
pub(super) struct EndFacts<'f, 'a> {
    /// Whether the consumer is a reader that named no stream: `Consumer::Unnamed`.
    pub(super) is_unnamed: bool,
    /// The reason why no stream waits, if there is no user's stream to wait for.
    pub(super) idle: Elided,
    /// The consumer's place.
    pub(super) at: Place,
    /// The producer's place.
    pub(super) producer_place: Place,
    pub(super) streams: &'f [(Role, Found<'a>)],
    /// The imported libraries' current streams; `None` if the libraries were not asked yet.
    pub(super) libraries: Option<&'f [Alive<'a>]>,
    /// Whether the end counts as the end of a call's argument.
    pub(super) in_call: bool,
    /// Whether the garbage collector clears the memory's owner, or may clear it.
    pub(super) collected: bool,
}

/// Up to this many streams are compared one by one.
const FEW: usize = 16;

/// Decides what an end does; `None` if the libraries must be asked first.
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

/// Adds the upstream streams to `producers`. Returns the handle of a lost stream that could not be added, if there is
/// one.
///
/// A lost stream counts as alive if a user's, a producer's or a library's current stream has its handle. If the handle
/// belongs to a new stream, the lost stream was destroyed and gets no more work.
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

/// Adds to `users` the streams on which users with an unknown stream may have worked: the legacy default stream, for
/// all blocking streams of the consumer's place, and the libraries' current streams.
fn add_unknown<'a>(facts: &EndFacts<'_, 'a>, users: &mut Streams<'a>, producers: &[Alive<'a>]) {
    // If the producer itself works on the legacy stream, its next work there follows every blocking stream. Then add
    // the plain legacy stream: the producer need not wait for its own stream. After a call the producer's next work may
    // be on another stream, so add a stand-in.
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

/// Adds the streams with the role `of` that are `Alive` or `Met` to `streams`, each once.
fn add_alive<'a>(facts: &EndFacts<'_, 'a>, of: Role, streams: &mut Streams<'a>) {
    // Tells which handles `streams` has already. Used only if there are many: a chain of views may have hundreds of
    // upstream streams.
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

/// Adds `alive` unless `streams` has that stream. A legacy stream that stands in for others replaces the plain legacy
/// stream of the same place.
fn add<'a>(streams: &mut Streams<'a>, alive: Alive<'a>) {
    match streams.iter_mut().find(|known| known.is(alive)) {
        Some(known) if alive.stands_in() => *known = alive,
        Some(_) => {}
        None => streams.push(alive),
    }
}
