//! The plan of an end: which streams wait for which before memory goes back. A pure function of what was gathered.
//!
//! ```text
//! first    no consumer, or only the producer's own stream      -> nothing; one question may be enough
//! gather   each stream with its role and what is found of it:  alive, or lost (nothing keeps it)
//! decide   no consumer worked on the memory                    -> nothing
//!          a stream is not known, or lost                      -> ask the libraries where they work now
//!          users     = those alive, and where one is not known: the legacy stream, and the libraries'
//!          producers = those alive (none: the legacy stream stands in, and the memory is kept until done), and those upstream
//!          a lost stream is left, or the owner is garbage      -> the host waits
//!          all of them are one stream                          -> nothing
//!          else                                                -> each producer waits for each user
//! act      make the edges ([`crate::capture::route`] says how), mark the users' work, or wait
//! ```
//!
//! `tests/data/end.toml` has the rows, and `tests/rust/end.rs` goes through every combination with a model of what
//! comes before what.

use std::collections::HashSet;

use super::parties::{Parties, Streams};
use crate::device::Place;
use crate::stream::{Alive, Elided, Stream};

/// Whom the memory was for, as far as the bridge was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consumer {
    /// No consumer: it was only passed on.
    Nobody,
    /// A consumer that wants no order (-1).
    Declined,
    /// The users of the streams that are known as users'.
    Named,
    /// A consumer that named no stream: any blocking one of the place, and those where the libraries work.
    Unnamed,
}

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

/// What is known of an end.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'f, 'a> {
    /// Whom the memory was for.
    pub consumer: Consumer,
    /// Where a consumer works that named no stream.
    pub at: Place,
    /// Where the producer works.
    pub home: Place,
    /// Each stream that is known; a stream may have several roles.
    pub streams: &'f [(Role, Found<'a>)],
    /// Where the imported libraries work now; `None` as long as they were not asked.
    pub libraries: Option<&'f [Alive<'a>]>,
    /// Whether the end is that of a call, after which the memory may go to another stream at once.
    pub in_call: bool,
    /// Whether the garbage collector takes the owner apart with the last holder of the memory.
    pub collected: bool,
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
    /// The libraries are to be asked where they work now; then decide again.
    Ask,
    /// No stream waits.
    Nothing(Elided),
    /// Each of the producers waits for each of the users. If the first is not known but stands in for one that is not,
    /// the memory is kept until the users' work is done.
    Order(Parties<'a>),
    /// The host waits for all work, at the consumer's place and where the users are. Work that is captured does not run
    /// until then: what is in one graph is ordered there.
    Wait(Lost, Parties<'a>),
}

/// What is known of an end before a library or the driver is asked.
pub trait Outline {
    /// Where the consumer works.
    fn consumer(&self) -> Works;
    /// Where its streams are.
    fn at(&self) -> Place;
    /// Whether others were handed the memory on as well.
    fn has_others(&self) -> bool;
    /// Whether a stream upstream waits as well.
    fn has_upstream(&self) -> bool;
    /// Where the memory was lent to users of the legacy default stream.
    fn lent(&self) -> Option<Place>;
    /// Whether the producer's own stream is known.
    fn has_producer(&self) -> bool;
    /// Whether it is this one.
    fn is_producer(&self, stream: Alive<'_>) -> bool;
    /// Whether it may be closed, or the producer move to another.
    fn may_change(&self) -> bool;
    /// Whether the producer may move to another.
    fn may_move(&self) -> bool;
    /// Whether the end is that of a call.
    fn in_call(&self) -> bool;
    /// Where the producer works.
    fn home(&self) -> Place;
    /// Whether the garbage collector takes the owner apart as well.
    fn is_collected(&self) -> bool;
}

/// Where a consumer works, before a library or the driver is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Works {
    /// Nowhere: see [`Consumer::Nobody`].
    Nobody,
    /// See [`Consumer::Declined`].
    Declined,
    /// On the producer's own stream, at the time.
    OnProducer,
    /// On one stream that something keeps.
    OnOne,
    /// On one that nothing keeps, or where libraries worked that are known by now.
    OnOthers,
    /// See [`Consumer::Unnamed`].
    Unnamed,
}

/// What the outline of an end leaves to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing: no stream waits.
    Nothing(Elided),
    /// Whether the producer is on the stream that it named first: then no stream waits.
    WhetherProducerStays,
    /// Whether the imported libraries all work on the legacy default stream: then no stream waits.
    WhetherAllOnLegacy,
    /// The same of a producer that is not known: then the memory is kept until the legacy default stream, which stands in
    /// for its stream and the consumer's, has done what is queued there now.
    WhetherOneMarkDoes,
    /// Whether the producer's stream and the consumer's are alive: then the one waits for the other.
    WhetherBothLive,
    /// All that [`decide`] needs.
    All,
}

/// Tells what to ask first. Most ends need no more, and what comes of them is what [`decide`] decides.
#[inline(always)]
pub fn first(known: &impl Outline) -> First {
    if known.has_others() {
        return First::All;
    }
    let stays = || !known.has_upstream() && !known.may_change();
    let lent = known.lent();
    if lent.is_some_and(|at| !(known.is_producer(Alive::legacy(at)) && stays())) {
        return First::All;
    }
    match known.consumer() {
        Works::Nobody => First::Nothing(Elided::NoConsumer),
        Works::Declined => First::Nothing(Elided::NotAsked),
        Works::OnProducer if stays() => First::Nothing(Elided::SameStream),
        _ if lent.is_some() || known.has_upstream() => First::All,
        Works::OnProducer => First::WhetherProducerStays,
        Works::OnOne if known.has_producer() && !known.may_move() => First::WhetherBothLive,
        // Its own: the legacy stream may stand in for another producer's. What a call gave to a function is ordered all the
        // same: the next call may be on another stream that follows the legacy one.
        Works::Unnamed
            if !known.in_call()
                && !known.may_change()
                && known.is_producer(Alive::standing_in(known.at())) =>
        {
            First::WhetherAllOnLegacy
        }
        Works::Unnamed
            if !known.has_producer()
                && !known.may_move()
                && !known.is_collected()
                && known.at() == known.home() =>
        {
            First::WhetherOneMarkDoes
        }
        _ => First::All,
    }
}

/// Up to so many streams are compared one by one.
const FEW: usize = 16;

/// Decides what an end does.
pub fn decide<'a>(facts: &Facts<'_, 'a>) -> Plan<'a> {
    let mut users = alive(facts, Role::User);
    let lost = lost(facts, Role::User).next();
    let is_met = |(_, stream): &(Role, Found<'_>)| matches!(stream, Found::Met(_));
    let unknown =
        lost.is_some() || facts.consumer == Consumer::Unnamed || facts.streams.iter().any(is_met);
    if users.is_empty() && !unknown {
        let declined = facts.consumer == Consumer::Declined;
        return Plan::Nothing(if declined { Elided::NotAsked } else { Elided::NoConsumer });
    }
    let mut producers = alive(facts, Role::Producer);
    let known = !producers.is_empty();
    if !known {
        producers.push(Alive::standing_in(facts.home));
    }
    let left = upstream(facts, &users, &mut producers);
    if facts.libraries.is_none() && (unknown || left.is_some()) {
        return Plan::Ask;
    }
    if unknown {
        add_unknown(facts, &mut users, &producers);
    }
    let parties = Parties { users, producers, known };
    match lost.or(left) {
        Some(lost) => Plan::Wait(Lost::Stream(lost), parties),
        None if !known && facts.collected => Plan::Wait(Lost::Owner, parties),
        None if known && parties.are_one_stream() => Plan::Nothing(Elided::SameStream),
        None => Plan::Order(parties),
    }
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
