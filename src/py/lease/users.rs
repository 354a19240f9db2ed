//! Who works on the memory at its end: the streams that are waited for, and the one that nothing stands in for.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::Holding;
use super::warned;
use crate::error::Result;
use crate::lease::{Failure, Streams};
use crate::py::streams::{KeepAlive, StreamRef};
use crate::stream::{Alive, Stream};

impl Holding {
    /// The streams that the consumer is known to work on, and whether others have to stand in for what is
    /// not known.
    pub(super) fn users<'a>(
        &'a self,
        py: Python<'_>,
        producers: &[Alive<'a>],
    ) -> Result<(Streams<'a>, bool), Failure<PyErr>> {
        let mut users = Streams::new();
        let covered = match &self.consumer {
            Consumer::Nobody | Consumer::Unread | Consumer::Declined => false,
            Consumer::OnProducer(Some(kept))
                if !producers.first().is_some_and(|first| self.is_producer(*first)) =>
            {
                // The producer has moved; the consumer has not.
                if let Some(kept) = kept.kept() {
                    users.extend(kept.confirm(py, &self.driver)?);
                }
                users.is_empty()
            }
            Consumer::OnProducer(_) => {
                users.extend(producers.first().copied());
                false
            }
            Consumer::On(kept) => {
                users.extend(kept.confirm(py, &self.driver)?);
                users.is_empty()
            }
            Consumer::Unnamed(seen) => {
                for kept in seen.iter().filter_map(KeepAlive::kept) {
                    users.extend(kept.confirm(py, &self.driver)?);
                }
                true
            }
            Consumer::Unkept(..) => true,
        };
        Ok((users, covered))
    }

    /// A consumer's stream, if nothing keeps it alive and it is not in `users`: a non-blocking one, which no
    /// other stream stands in for, and whose context still exists. And the line that named it.
    pub(super) fn uncovered(&self, users: &[Alive<'_>]) -> Option<(u64, Option<&warned::Line>)> {
        let lost = |kept: &StreamRef| kept.is_of_this_life(&self.driver).then(|| kept.stream());
        let lost_of = |known: &KeepAlive| match known {
            KeepAlive::By(kept) | KeepAlive::StandIn(kept) => lost(kept),
            KeepAlive::Nobody(handle) => Some(Stream::Handle(*handle)),
        };
        let is_user = |stream: Stream| users.iter().any(|user| user.stream() == stream);
        let found = |stream: Option<Stream>| stream.filter(|stream| !is_user(*stream));
        let (stream, line) = match &self.consumer {
            Consumer::Unkept(handle, line) => (found(Some(Stream::Handle(*handle))), line.as_ref()),
            Consumer::On(kept) => (found(lost(kept)), None),
            Consumer::OnProducer(Some(known)) => (found(lost_of(known)), None),
            Consumer::Unnamed(seen) => (seen.iter().find_map(|known| found(lost_of(known))), None),
            _ => return None,
        };
        stream.map(|stream| (stream.handle(), line))
    }
}
