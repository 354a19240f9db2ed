//! The users' and the producer's streams when a lease ends, and the waits between them.

use smallvec::SmallVec;

use super::Settlement;
use crate::capture::CaptureStatus;
use crate::driver::{BlockingCall, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Mark, Purpose};
use crate::stream::{Alive, Stream, between};

pub type Streams<'a> = SmallVec<[Alive<'a>; 4]>;

#[derive(Debug, Clone)]
pub struct Parties<'a> {
    pub users: Streams<'a>,
    /// Never empty. The producer's stream comes before the upstream streams.
    pub producers: Streams<'a>,
    /// Whether the producer's stream is known. If not, `producers` has the legacy default stream in its place.
    pub known: bool,
}

impl<'a> Parties<'a> {
    pub fn one(stream: Alive<'a>) -> Self {
        let of = |stream| Streams::from_slice(&[stream]);
        Self { users: of(stream), producers: of(stream), known: false }
    }
}

impl Parties<'_> {
    pub(super) fn are_one_stream(&self) -> bool {
        let mut pairs =
            self.users.iter().flat_map(|user| self.producers.iter().map(move |next| (user, next)));
        pairs.all(|(user, next)| between(*user, *next).is_some())
    }

    /// Makes each captured stream of the producers wait for each captured stream of the users in the same capture. A
    /// wait of the host does not cover captured work.
    pub fn join(&self, driver: &Handle, detach: impl Fn(BlockingCall<'_>)) -> Result<()> {
        let calls = driver.get()?;
        let inside = |stream: &Alive<'_>| {
            if stream.stream() == Stream::Legacy {
                return Ok(false);
            }
            Ok::<_, Error>(matches!(order::status_of(calls, *stream)?, CaptureStatus::Inside(_)))
        };
        for user in &self.users {
            if inside(user)? {
                for producer in &self.producers {
                    if inside(producer)? {
                        let door = Purpose::give_back("release");
                        order::connect(door, driver, *user, *producer, &detach)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the producers' streams wait for the users' streams. If the producer's stream is unknown, the memory must
    /// be kept until the returned marks are reached. `captured` gets each user for which a producer waits in a graph
    /// only, or does not wait because of a capture.
    pub fn settle<'a>(
        &'a self,
        driver: &Handle,
        detach: impl Fn(BlockingCall<'_>),
        mut captured: impl FnMut(Alive<'a>),
    ) -> Result<Settlement<Vec<Mark>>> {
        let door = Purpose::give_back("release");
        let edges = || {
            self.users.iter().flat_map(|user| self.producers.iter().map(move |next| (*user, *next)))
        };
        // A mark on the legacy stream follows the work of all blocking streams, so no wait is needed.
        let by_mark =
            |edge: &(Alive<'_>, Alive<'_>)| !self.known && edge.0.is(edge.1) && edge.0.stands_in();
        for (user, producer) in edges().filter(|edge| !by_mark(edge)) {
            if !order::connect(door, driver, user, producer, &detach)?.is_for_good() {
                captured(user);
            }
        }
        if self.known {
            return Ok(Settlement::Done);
        }
        let calls = driver.get()?;
        let mut marks = Vec::new();
        let mut marked: Result<()> = Ok(());
        detach(&mut || {
            marked = self.users.iter().try_for_each(|user| {
                marks.push(order::mark(calls, *user)?);
                Ok(())
            });
        });
        for (user, next) in edges().filter(by_mark) {
            order::report(door, user, next, marked.is_ok());
        }
        match (marked, edges().find(by_mark)) {
            (Ok(()), _) => Ok(Settlement::Until(marks)),
            (Err(error), by_mark) => {
                order::forget(driver, marks);
                match by_mark {
                    _ if error.kind() != Kind::CaptureLegacy => Err(error),
                    Some((user, next)) => Err(order::refused(error.kind(), user, next)),
                    None => Ok(Settlement::Later),
                }
            }
        }
    }
}
