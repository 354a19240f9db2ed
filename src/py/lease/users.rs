//! Who works on the memory at its end: the streams that are waited for, and the one that nothing stands in for.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::Holding;
use super::warned;
use crate::driver::Handle;
use crate::error::Result;
use crate::lease::{Failure, Streams};
use crate::py::streams::{KeepAlive, StreamName, StreamRef};
use crate::stream::Alive;

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
    pub(super) fn uncovered(
        &self,
        users: &[Alive<'_>],
    ) -> Result<Option<(u64, Option<&warned::Line>)>> {
        let lost = |kept: &StreamRef| kept.is_of_this_life(&self.driver).then(|| kept.name());
        let lost_of = |known: &KeepAlive| match known {
            KeepAlive::By(kept) | KeepAlive::StandIn(kept) => lost(kept),
            KeepAlive::Nobody(name) => Some(*name),
        };
        let (names, line): (Vec<_>, _) = match &self.consumer {
            Consumer::Unkept(name, line) => (vec![*name], line.as_deref()),
            Consumer::On(kept) => (lost(kept).into_iter().collect(), None),
            Consumer::OnProducer(Some(known)) => (lost_of(known).into_iter().collect(), None),
            Consumer::Unnamed(seen) => (seen.iter().filter_map(lost_of).collect(), None),
            _ => return Ok(None),
        };
        for name in names {
            if !is_one_of(name, users, &self.driver)? {
                return Ok(Some((name.stream().handle(), line)));
            }
        }
        Ok(None)
    }
}

fn is_one_of(name: StreamName, users: &[Alive<'_>], driver: &Handle) -> Result<bool> {
    for user in users {
        if name.is(driver, *user)? {
            return Ok(true);
        }
    }
    Ok(false)
}
