//! Plans the end of a lease: which streams wait for which before the memory is given back. Pure: it calls neither
//! Python nor a driver.
//!
//! The caller repeats [`next`], with the answers so far, until it returns a plan:
//!
//! ```text
//! nothing is asked    no consumer, no order wanted, or the producer's own -> nothing
//!                     stream
//! one question        the producer stays                                  -> nothing
//!                     all libraries are on the legacy stream              -> nothing; if the producer is unknown,
//!                                                                            one mark
//!                     both streams are alive                              -> one order
//! the streams         each with its role and its state: alive, met or lost (`Found`)
//!                     no user worked on the memory                        -> nothing
//!                     a user's stream is unknown or lost, or an upstream  -> ask for the libraries' current streams
//!                     stream is lost
//!                     users     = the live ones; if one is unknown, met or lost: also the legacy stream, and the
//!                                 libraries'
//!                     producers = the live ones (none: the legacy stream stands in, and the memory is kept
//!                                 until the users' work is done), and the ones upstream
//!                     a lost stream is left, or the producer is unknown   -> the host waits
//!                     and the owner is garbage
//!                     the producer is known, and all are one stream       -> nothing
//!                     else                                                -> each producer waits for each user
//! ```
//!
//! The caller carries the plan out: it makes streams wait ([`crate::capture::route`] says how), marks the users' work,
//! or makes the host wait. `tests/data/end.toml` has the rows. `tests/rust/end.rs` compares every combination of up
//! to three streams with a model of the order of work.

use super::end_streams::{EndFacts, decide};
pub use super::end_streams::{Found, Lost, Plan, Role};
use super::parties::Parties;
use crate::device::Place;
use crate::stream::{Alive, Elided};

/// What a holder of memory recorded about a stream.
pub trait Known {
    /// Whether something keeps the stream alive, or the legacy default stream stands in for it.
    fn is_kept(&self) -> bool;
}

/// What is known about the consumer of the memory.
#[derive(Debug, Clone)]
pub enum Consumer<K> {
    /// No consumer. The memory was at most passed on.
    Nobody,
    /// A reader of the dict, who has not read the dict yet.
    Unread,
    /// A consumer that wants no order (-1).
    Declined,
    /// A consumer on the producer's own stream. The value records the stream if the stream may be closed, or if the
    /// producer's dict may name another stream later. Otherwise it is `None`.
    OnProducer(Option<K>),
    /// A reader that named no stream. It may work on any blocking stream of its place, or on a library's current
    /// stream. The list has the streams that were recorded for it, such as a library's current stream when the memory
    /// was read.
    Unnamed(Vec<K>),
    /// A consumer on this stream.
    On(K),
}

/// What is known about an end before any library or the driver is asked.
pub trait Outline {
    /// The holder's stream type.
    type Stream: Known;
    /// What is known about the consumer of the memory.
    fn consumer(&self) -> &Consumer<Self::Stream>;
    /// The consumer's place.
    fn at(&self) -> Place;
    /// Whether users besides the consumer worked on the memory. Borrowers ([`Self::lent`]) do not count.
    fn has_further_users(&self) -> bool;
    /// Whether streams besides the producer's own are recorded on which the memory may be used again
    /// ([`Role::Upstream`]).
    fn has_upstream(&self) -> bool;
    /// The place where the exchange API lent the memory, if it did. Borrowers use the legacy default stream of that
    /// place.
    fn lent(&self) -> Option<Place>;
    /// Whether the producer's own stream is known, and is kept or has a stand-in.
    fn has_producer(&self) -> bool;
    /// Whether `stream` is the producer's own stream, or the plain legacy default stream while that stands in for the
    /// producer's. False if `stream` and the recorded stream are both stand-ins: they may stand for two streams.
    fn is_producer(&self, stream: Alive<'_>) -> bool;
    /// Whether the producer's stream may be closed, or the producer may move from it to another stream. False if the
    /// stream is unknown.
    fn may_change(&self) -> bool;
    /// Whether the producer may move to another stream. A producer that named no stream may move if its dict may name a
    /// first one later.
    fn may_move(&self) -> bool;
    /// Whether the end counts as the end of a call's argument. The producer's next work, after the call, may be on
    /// another stream.
    fn in_call(&self) -> bool;
    /// The producer's place.
    fn producer_place(&self) -> Place;
    /// Whether the garbage collector may be clearing the memory's owner: it found the view, and only a Python object
    /// keeps the memory.
    fn is_collected(&self) -> bool;
}

/// A question that [`next`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether the producer is still on its recorded stream: it has not moved, and the stream is not closed. If so, no
    /// stream waits, since the consumer works on that stream.
    ProducerStays,
    /// Whether all imported libraries work on the legacy default stream. If so, no stream waits.
    AllOnLegacy,
    /// Whether all imported libraries work on the legacy default stream, asked if the producer's stream is unknown. If
    /// so, the legacy default stream stands in for the consumer's and the producer's stream, and the memory is kept
    /// until the work that is pending there is done.
    OneMarkDoes,
    /// Whether the consumer's stream and the producer's stream are both alive. If so, the producer's stream waits for
    /// the consumer's stream.
    BothLive,
    /// What role each stream has, and whether it is alive.
    Streams,
    /// The imported libraries' current streams.
    Libraries,
}

/// The answers so far; `None` for a question without an answer yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answers<'f, 'a> {
    /// The answer to [`Question::ProducerStays`].
    pub producer_stays: Option<bool>,
    /// The answer to [`Question::AllOnLegacy`] or [`Question::OneMarkDoes`], whichever was asked: whether all imported
    /// libraries work on the legacy default stream.
    pub all_on_legacy: Option<bool>,
    /// The answer to [`Question::BothLive`]: the consumer's stream and the producer's stream, or `Some(None)` if one of
    /// them is not alive.
    pub both_live: Option<Option<(Alive<'a>, Alive<'a>)>>,
    /// The answer to [`Question::Streams`]. A stream may have several entries, such as one for each of its roles.
    pub streams: Option<&'f [(Role, Found<'a>)]>,
    /// Whether the garbage collector clears the memory's owner, or may clear it. Read only if [`Self::streams`] is set.
    pub collected: bool,
    /// The answer to [`Question::Libraries`].
    pub libraries: Option<&'f [Alive<'a>]>,
}

/// The next step of an end.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub enum Next<'a> {
    /// The caller answers this question.
    Ask(Question),
    /// The caller carries this plan out.
    Do(Plan<'a>),
}

/// Returns the next step of giving the memory back: a question for the caller to answer, or the plan to carry out.
/// Usually at most one question is needed.
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
    // If one of these two questions was answered, the answer gives the next step.
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

/// The first question, or why no stream waits.
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
        // Ask this only if the legacy stream is the producer's own, and not a stand-in. At the end of a call a wait is
        // made in any case: the producer's next work may be on a stream that does not follow the legacy one.
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
