//! Plans the end of a lease: which streams wait for which before the memory is given back. Calls neither Python nor a
//! driver. The caller repeats [`next`], with the answers so far, until it returns a plan (tests/rust/end.rs,
//! tests/data/end.toml).

use super::end_streams::{EndFacts, decide};
pub use super::end_streams::{Found, Lost, Plan, Role};
use super::parties::Parties;
use crate::device::Place;
use crate::stream::{Alive, Elided};

pub trait Known {
    /// Whether the bridge can tell, at the end, if the stream still exists.
    fn is_kept(&self) -> bool;
}

#[derive(Debug, Clone)]
pub enum Consumer<K> {
    Nobody,
    /// A consumer that named no stream and has not read the CAI dict yet.
    Unread,
    /// A consumer that passed -1 as its stream: no stream waits for this consumer.
    Declined,
    OnProducer(Option<K>),
    /// A consumer that read the CAI dict and named no stream. It may have worked on the streams in the list, and on
    /// others.
    Unnamed(Vec<K>),
    On(K),
}

pub trait Outline {
    type Stream: Known;
    fn consumer(&self) -> &Consumer<Self::Stream>;
    fn at(&self) -> Place;
    /// Whether there is a user besides the consumer: a recorded user, or the stream that the caller names at the end.
    /// Borrowers ([`Self::lent`]) do not count.
    fn has_further_users(&self) -> bool;
    fn has_upstream(&self) -> bool;
    /// `None` if the exchange API has not lent the memory. Borrowers work on the legacy default stream of this place.
    fn lent(&self) -> Option<Place>;
    fn has_producer(&self) -> bool;
    fn is_producer(&self, stream: Alive<'_>) -> bool;
    /// Whether, before the end, the producer's stream object can be closed, or the producer's dict can name another
    /// stream. False if the producer's stream is unknown.
    fn may_change(&self) -> bool;
    /// Whether the producer's dict may name a stream at the end that it did not name before.
    fn may_move(&self) -> bool;
    /// Whether a call's argument ends: after the call, the producer's next work may be on another stream.
    fn in_call(&self) -> bool;
    fn producer_place(&self) -> Place;
    /// Whether the garbage collector may be clearing the object that keeps the memory.
    fn is_collected(&self) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether the producer still works on its recorded stream, and that stream is not closed.
    ProducerStays,
    /// Whether all imported libraries work on the legacy default stream. Asked if the producer works on it.
    AllOnLegacy,
    /// Whether all imported libraries work on the legacy default stream. Asked if the producer's stream is unknown.
    OneMarkDoes,
    BothLive,
    Streams,
    Libraries,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Answers<'f, 'a> {
    pub producer_stays: Option<bool>,
    pub all_on_legacy: Option<bool>,
    /// `Some(None)` if one of the two streams may be destroyed.
    pub both_live: Option<Option<(Alive<'a>, Alive<'a>)>>,
    pub streams: Option<&'f [(Role, Found<'a>)]>,
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
        // After a call the producer's next work may be on a stream that does not wait for the legacy stream.
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
