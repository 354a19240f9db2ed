//! Whose streams an end is between, and the orders that it makes of them.

use smallvec::SmallVec;

use super::Settlement;
use crate::capture::Part;
use crate::driver::{Call, Handle};
use crate::error::{Error, Kind, Result};
use crate::order::{self, Mark, Purpose};
use crate::stream::{Alive, Stream, between};

/// Some streams. An end seldom has more than two on a side, and allocates nothing for them.
pub type Streams<'a> = SmallVec<[Alive<'a>; 4]>;

/// The streams of both sides, as far as they are known and alive.
#[derive(Debug, Clone)]
pub struct Parties<'a> {
    /// The streams that consumers worked on.
    pub users: Streams<'a>,
    /// The producer's, and those upstream. At least one.
    pub producers: Streams<'a>,
    /// Whether the first of these is the producer's own. Where it is not, but stands in for it, the
    /// producer may go on working on one that does not follow it.
    pub known: bool,
}

impl<'a> Parties<'a> {
    /// Of an end between two streams that are not known, where `stream` stands in for both.
    pub fn one(stream: Alive<'a>) -> Self {
        let of = |stream| Streams::from_slice(&[stream]);
        Self { users: of(stream), producers: of(stream), known: false }
    }
}

impl Parties<'_> {
    /// Whether each of the producers' streams is in order after each of the users' by itself.
    pub(super) fn are_one_stream(&self) -> bool {
        let mut pairs =
            self.users.iter().flat_map(|user| self.producers.iter().map(move |next| (user, next)));
        pairs.all(|(user, next)| between(*user, *next).is_some())
    }

    /// Joins what forked in a graph capture, where the host waits for all else.
    pub fn join(&self, driver: &Handle, detach: impl Fn(Call<'_>)) -> Result<()> {
        let calls = driver.get()?;
        let inside = |stream: &Alive<'_>| {
            if stream.stream() == Stream::Legacy {
                return Ok(false);
            }
            Ok::<_, Error>(matches!(order::part_of(calls, *stream)?, Part::Inside(_)))
        };
        for user in &self.users {
            if inside(user)? {
                for producer in &self.producers {
                    if inside(producer)? {
                        let door = Purpose::give_back("release");
                        order::connect(door, driver, (*user, *producer), &detach)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes every stream of the producer's wait for every one of the consumers', and marks where the
    /// work of these ends if that has to be waited for. `detach` runs what may block.
    pub fn settle(
        &self,
        driver: &Handle,
        detach: impl Fn(Call<'_>),
    ) -> Result<Settlement<Vec<Mark>>> {
        let door = Purpose::give_back("release");
        let edges = || {
            self.users.iter().flat_map(|user| self.producers.iter().map(move |next| (*user, *next)))
        };
        // A mark on a stream is a record there, which orders what one stream stands in for.
        let by_mark =
            |edge: &(Alive<'_>, Alive<'_>)| !self.known && edge.0.is(edge.1) && edge.0.stands_in();
        for edge in edges().filter(|edge| !by_mark(edge)) {
            order::connect(door, driver, edge, &detach)?;
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
