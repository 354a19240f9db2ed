//! Which work waits for which: events, the host, values, graphs. Pure.

use super::{Checker, Clock, Event, For, Operation, Rule, Touch};

impl Checker {
    /// Adds a new event, which was never recorded.
    pub(crate) fn event(&mut self, event: u64) {
        self.events.insert(event, Event::Never);
    }

    pub(crate) fn forget(&mut self, event: u64) {
        self.events.remove(&event);
    }

    pub(crate) fn record(&mut self, event: u64, stream: usize) {
        if !self.has(Rule::Record) && self.events.contains_key(&event) {
            return;
        }
        self.arrive(stream);
        let clock = self.clock(stream);
        self.events.insert(event, Event::At(clock));
    }

    /// Makes an event stand for work that the check does not see.
    pub(crate) fn elsewhere(&mut self, event: u64) {
        self.events.insert(event, Event::Elsewhere);
    }

    /// Makes all known events stand for work that the check does not see: any of them may have been recorded.
    pub(crate) fn any_event(&mut self) {
        for event in self.events.values_mut() {
            *event = Event::Elsewhere;
        }
    }

    pub(crate) fn wait(&mut self, stream: usize, event: u64) {
        self.arrive(stream);
        match self.events.get(&event) {
            Some(Event::At(clock)) if self.has(Rule::Wait) => {
                let clock = clock.clone();
                self.join(stream, &clock);
            }
            Some(Event::Never | Event::At(_)) => {}
            Some(Event::Elsewhere) | None => self.unknown(stream),
        }
    }

    /// Puts the stream in fog, since it waits for unknown work, and counts this wait.
    pub(crate) fn unknown(&mut self, stream: usize) {
        self.unseen.orders += 1;
        if let Some(one) = self.streams.get_mut(stream)
            && self.without != Some(Rule::Fog)
        {
            one.clock.fog = true;
        }
    }

    fn everything(&self) -> Clock {
        let mut all = Clock::default();
        self.streams.iter().for_each(|one| all.join(&one.clock));
        all
    }

    fn pending(&self, what: For) -> Clock {
        match what {
            For::Stream(_) if !self.has(Rule::Stream) => Clock::default(),
            For::Event(_) if !self.has(Rule::Event) => Clock::default(),
            For::All if !self.has(Rule::All) => Clock::default(),
            For::Stream(stream) => {
                let mut clock = self.clock(stream);
                if stream == 0 {
                    self.join_blocking(0, &mut clock);
                }
                clock
            }
            For::Event(event) => match self.events.get(&event) {
                Some(Event::At(clock)) => clock.clone(),
                Some(Event::Never) => Clock::default(),
                Some(Event::Elsewhere) | None => Clock { fog: true, ..self.everything() },
            },
            For::All => self.everything(),
        }
    }

    /// A host thread begins to wait or to query.
    pub(crate) fn begin(&mut self, thread: u64, what: For) {
        let clock = self.pending(what);
        self.begun.insert(thread, clock);
    }

    /// A host thread has waited, or its query said that the work is done.
    pub(crate) fn waited(&mut self, thread: u64, what: For) {
        let begun = self.begun.remove(&thread);
        let clock = match begun {
            Some(begun) if self.has(Rule::Begin) => begun,
            _ => self.pending(what),
        };
        self.is_over(&clock);
        match what {
            For::Stream(stream) => {
                if let Some(one) = self.streams.get_mut(stream) {
                    one.clock.fog = false;
                }
            }
            For::All => self.streams.iter_mut().for_each(|one| one.clock.fog = false),
            For::Event(_) => {}
        }
    }

    /// The host has waited for a stream after it queued a copy there.
    pub(crate) fn copied(&mut self, thread: u64, stream: usize) {
        if self.has(Rule::Copy) {
            self.begun.remove(&thread);
            self.waited(thread, For::Stream(stream));
        }
    }

    /// From now on the host may know that the stream's work is done, so the work counts as done.
    pub(crate) fn told(&mut self, stream: usize) {
        let clock = self.clock(stream);
        self.is_over(&clock);
    }

    fn is_over(&mut self, clock: &Clock) {
        if clock.fog {
            // The work that the fog hid is done, and nobody knows which work that was. So all work counts as
            // done.
            let all = self.everything();
            self.host.join_known(&all);
        }
        self.host.join_known(clock);
    }

    /// The record has the call that queued a host function.
    pub(crate) fn function(&mut self, number: u64, stream: usize) {
        if !self.has(Rule::Function) {
            return;
        }
        let clock = self.clock(stream);
        if self.functions.remove(&number).is_some() {
            self.is_over(&clock);
        } else {
            self.functions.insert(number, Some(clock));
        }
    }

    /// A host function runs, so the work before it on its stream is done.
    pub(crate) fn ran(&mut self, number: u64) {
        match self.functions.remove(&number) {
            Some(Some(clock)) => self.is_over(&clock),
            _ => {
                self.functions.insert(number, None);
            }
        }
    }

    // Values.

    pub(crate) fn write_value(&mut self, stream: usize, address: u64, value: u64) {
        let clock = self.clock(stream);
        let known = self.values.entry(address).or_default();
        known.0.join(&clock);
        known.1.push(value);
    }

    /// A stream waits until memory has a value. `is_met` tells which values end the wait. The stream waits for
    /// all recorded writes there if one of them ends the wait; else it is in fog.
    pub(crate) fn wait_value(&mut self, stream: usize, address: u64, is_met: impl Fn(u64) -> bool) {
        self.arrive(stream);
        let known =
            self.values.get(&address).filter(|one| one.1.iter().any(|value| is_met(*value)));
        match known.map(|one| one.0.clone()) {
            Some(clock) if self.has(Rule::Value) => self.join(stream, &clock),
            Some(_) => {}
            // Work that the check does not see writes the value, or a later call will.
            None => self.unknown(stream),
        }
    }

    // Graphs.

    /// Launches an executable graph, as one operation that touches the memory of all its nodes.
    pub(crate) fn launch(
        &mut self,
        executable: u64,
        stream: usize,
        operation: Operation,
        touches: &[Touch],
    ) {
        if let Some(before) = self.launched.get(&executable).filter(|_| self.has(Rule::Graph)) {
            let before = before.clone();
            self.join(stream, &before);
        }
        self.work(stream, operation, touches);
        let clock = self.clock(stream);
        self.launched.insert(executable, clock);
    }
}
