//! Plans the end of a lease: which streams wait for which before the memory is given back. Pure: it calls neither
//! Python nor a driver.
//!
//! The caller repeats [`next`], with the answers so far, until it returns a plan, and carries the plan out.
//! `tests/data/end.toml` has the rows. `tests/rust/end.rs` compares every combination of up to three streams with a
//! model of the order of work.

use super::end_streams::{EndFacts, decide};
pub use super::end_streams::{Found, Lost, Plan, Role};
use super::parties::Parties;
use crate::device::Place;
use crate::stream::{Alive, Elided};

pub trait Known {
    /// Whether something keeps the stream alive, or the legacy default stream stands in for it.
    fn is_kept(&self) -> bool;
}

#[derive(Debug, Clone)]
pub enum Consumer<K> {
    Nobody,
    /// A consumer that named no stream, and has not read the dict yet.
    Unread,
    /// A consumer that wants no order (-1).
    Declined,
    /// A consumer on the producer's own stream. The stream is recorded only if the producer may move from it, or if the
    /// stream may be closed.
    OnProducer(Option<K>),
    /// A consumer that read the dict and named no stream. It may work on any blocking stream of its place, or on a
    /// library's current stream. The list has the streams that were recorded for it, such as a library's current stream
    /// when the dict was read.
    Unnamed(Vec<K>),
    On(K),
}

pub trait Outline {
    type Stream: Known;
    fn consumer(&self) -> &Consumer<Self::Stream>;
    fn at(&self) -> Place;
    /// Whether users besides the consumer worked on the memory. Users that borrowed it ([`Self::lent`]) do not count.
    fn has_further_users(&self) -> bool;
    /// Whether an upstream stream is recorded ([`Role::Upstream`]).
    fn has_upstream(&self) -> bool;
    /// The place where the exchange API lent the memory, if it did. Users that borrowed the memory work on the legacy
    /// default stream of that place.
    fn lent(&self) -> Option<Place>;
    /// Whether the producer's own stream is known, and is kept or has a stand-in.
    fn has_producer(&self) -> bool;
    /// Whether `stream` is the producer's own stream. False if both are stand-ins: they may stand for two streams.
    fn is_producer(&self, stream: Alive<'_>) -> bool;
    /// Whether the producer's stream may be closed, or the producer may move to another stream. False if the stream is
    /// unknown.
    fn may_change(&self) -> bool;
    /// Whether the producer may move to another stream, or its dict may name a first stream later.
    fn may_move(&self) -> bool;
    /// Whether the end counts as the end of a call's argument. If so, the producer's next work may be on another
    /// stream.
    fn in_call(&self) -> bool;
    fn producer_place(&self) -> Place;
    /// Whether the garbage collector found the view and only a Python object keeps the memory, so that the collector
    /// may be clearing that object.
    fn is_collected(&self) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether the producer is still on its recorded stream, which is also the consumer's, and the stream is not
    /// closed.
    ProducerStays,
    /// Whether all imported libraries work on the legacy default stream, asked if the producer works on that stream,
    /// too.
    AllOnLegacy,
    /// Whether all imported libraries work on the legacy default stream, asked if the producer's stream is unknown.
    OneMarkDoes,
    /// Whether the consumer's stream and the producer's stream are both alive.
    BothLive,
    Streams,
    Libraries,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Answers<'f, 'a> {
    pub producer_stays: Option<bool>,
    /// The answer to [`Question::AllOnLegacy`] or [`Question::OneMarkDoes`], whichever was asked.
    pub all_on_legacy: Option<bool>,
    /// `Some(None)` if the consumer's or the producer's stream is not alive.
    pub both_live: Option<Option<(Alive<'a>, Alive<'a>)>>,
    pub streams: Option<&'f [(Role, Found<'a>)]>,
    /// Whether the garbage collector clears the memory's owner, or may clear it.
    pub collected: bool,
    pub libraries: Option<&'f [Alive<'a>]>,
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub enum Next<'a> {
    Ask(Question),
    Do(Plan<'a>),
}

#[inline(always)]
pub fn next<'a>(known: &impl Outline, answers: &Answers<'_, 'a>) -> Next<'a> {
    if let Some(streams) = answers.streams {
        let consumer = known.consumer();
        let is_declined = matches!(consumer, Consumer::Declined);
        let decided = decide(&EndFacts {
            is_unnamed: matches!(consumer, Consumer::Unnamed(_)),
            idle: if is_declined { Elided::NotAsked } else { Elided::NoConsumer },
            at: known.at(),
            producer_place: known.producer_place(),
            streams,
            libraries: answers.libraries,
            in_call: known.in_call(),
            collected: answers.collected,
        });
        return decided.map_or(Next::Ask(Question::Libraries), Next::Do);
    }
    let nothing = |why| Next::Do(Plan::Nothing(why));
    match (answers.both_live, answers.producer_stays) {
        (Some(Some((user, producer))), _) => return Next::Do(Plan::Edge(user, producer)),
        (_, Some(true)) => return nothing(Elided::SameStream),
        (Some(None), _) | (_, Some(false)) => return Next::Ask(Question::Streams),
        (None, None) => {}
    }
    match first(known) {
        Err(why) => nothing(why),
        Ok(asks) => match (asks, answers.all_on_legacy) {
            (Question::AllOnLegacy, Some(true)) => nothing(Elided::SameStream),
            (Question::OneMarkDoes, Some(true)) => {
                Next::Do(Plan::Order(Parties::one(Alive::standing_in(known.at()))))
            }
            (Question::AllOnLegacy | Question::OneMarkDoes, Some(false)) => {
                Next::Ask(Question::Streams)
            }
            (asks, _) => Next::Ask(asks),
        },
    }
}

#[inline(always)]
fn first(known: &impl Outline) -> Result<Question, Elided> {
    if known.has_further_users() {
        return Ok(Question::Streams);
    }
    let stays = || !known.has_upstream() && !known.may_change();
    let lent = known.lent();
    if lent.is_some_and(|at| !(known.is_producer(Alive::legacy(at)) && stays())) {
        return Ok(Question::Streams);
    }
    match known.consumer() {
        Consumer::Nobody | Consumer::Unread => Err(Elided::NoConsumer),
        Consumer::Declined => Err(Elided::NotAsked),
        Consumer::OnProducer(_) if stays() => Err(Elided::SameStream),
        _ if lent.is_some() || known.has_upstream() => Ok(Question::Streams),
        Consumer::OnProducer(_) => Ok(Question::ProducerStays),
        Consumer::On(stream) if stream.is_kept() && known.has_producer() && !known.may_move() => {
            Ok(Question::BothLive)
        }
        // Only if the legacy stream is the producer's own. At the end of a call a wait is made in any case: the
        // producer's next work may be on a stream that does not follow the legacy stream.
        Consumer::Unnamed(seen)
            if seen.is_empty()
                && !known.in_call()
                && !known.may_change()
                && known.is_producer(Alive::standing_in(known.at())) =>
        {
            Ok(Question::AllOnLegacy)
        }
        Consumer::Unnamed(seen)
            if seen.is_empty()
                && !known.has_producer()
                && !known.may_move()
                && !known.is_collected()
                && known.at() == known.producer_place() =>
        {
            Ok(Question::OneMarkDoes)
        }
        _ => Ok(Question::Streams),
    }
}
