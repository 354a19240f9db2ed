//! Graphs: the recorded work of a capture, which each launch queues again.
//!
//! A launch follows the earlier work on its stream and the graph's previous launch. Later work on the stream follows
//! all of the graph. Inside the graph only the captured order holds: branches that nothing orders stay unordered.

use std::sync::Arc;

use super::call_log::DriverResult;
use super::capture::{Capture, CaptureMode};
use super::clock::{Clock, Lane};
use super::codes;
use super::operation::{Node, Work};
use super::stream_table::{CaptureId, CaptureMember, LegacyOrdering, StreamId};
use super::{MachineState, Simulated};
use crate::device::Context;
use crate::error::Result;
use crate::stream::{Stream, Thread};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Graph(usize);

#[derive(Debug)]
pub(super) struct Executable {
    nodes: Arc<[Node]>,
    times: Vec<u64>,
    lanes: Vec<Lane>,
    end: Clock,
}

impl MachineState {
    fn begin_capture(&mut self, stream: Stream, mode: CaptureMode) -> DriverResult<()> {
        let origin = self.stream(stream)?;
        if self.streams.get(origin).ordering == LegacyOrdering::Legacy {
            return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(origin).is_some() {
            return Err(codes::ILLEGAL_STATE);
        }
        let id = CaptureId::numbered(self.captures.begun);
        self.captures.begun += 1;
        let thread = Thread::current();
        let capture =
            Capture { mode, origin, thread, spoiled: false, times: vec![0], nodes: Vec::new() };
        self.captures.open.insert(id, capture);
        self.place(
            origin,
            CaptureMember { capture: id, lane: Lane::numbered(0), clock: Clock::default() },
        );
        Ok(())
    }

    fn end_capture(&mut self, stream: Stream) -> Result<Graph, (u32, Vec<Node>)> {
        let plain = |code| (code, Vec::new());
        let id = self.stream(stream).map_err(plain)?;
        let illegal = || plain(codes::ILLEGAL_STATE);
        let capture = self.capture_of(id).ok_or_else(illegal)?;
        let open = self.captures.open.get_mut(&capture).ok_or_else(illegal)?;
        if open.origin != id {
            open.spoiled = true;
            return Err(plain(codes::STREAM_CAPTURE_UNMATCHED));
        }
        if open.mode != CaptureMode::Relaxed && open.thread != Thread::current() {
            open.spoiled = true;
            return Err(plain(codes::STREAM_CAPTURE_WRONG_THREAD));
        }
        let origin = self
            .streams
            .get(id)
            .member
            .as_ref()
            .map(|member| member.clock.clone())
            .unwrap_or_default();
        let done = self.leave_capture(capture).ok_or_else(illegal)?;
        if done.spoiled {
            return Err((codes::STREAM_CAPTURE_INVALIDATED, done.nodes));
        }
        if !done.is_joined(&origin) {
            return Err((codes::STREAM_CAPTURE_UNJOINED, done.nodes));
        }
        Ok(self.add_graph(done.nodes, done.times))
    }

    fn leave_capture(&mut self, capture: CaptureId) -> Option<Capture> {
        let members: Vec<StreamId> =
            self.streams.ids().filter(|id| self.capture_of(*id) == Some(capture)).collect();
        for member in members {
            self.streams.get_mut(member).member = None;
        }
        self.captures.open.remove(&capture)
    }

    /// Release the lock before you drop the result: the drop may call the simulated device.
    pub(super) fn leave_captures_in(&mut self, context: Context) -> Vec<Capture> {
        let of_it = self.streams.ids().filter(|id| self.streams.get(*id).context == context);
        let captures: Vec<CaptureId> = of_it.filter_map(|id| self.capture_of(id)).collect();
        captures.into_iter().filter_map(|capture| self.leave_capture(capture)).collect()
    }

    fn add_graph(&mut self, nodes: Vec<Node>, times: Vec<u64>) -> Graph {
        let lanes = times.iter().map(|_| self.schedule.add_lane()).collect();
        let graph = Graph(self.graphs.len());
        self.graphs.push(Executable { nodes: nodes.into(), times, lanes, end: Clock::default() });
        graph
    }

    /// The nodes that wait for an event outside the graph, each with the point that its event marks now.
    fn waited_for_outside(&mut self, nodes: &[Node]) -> Vec<(Lane, u64, Clock)> {
        let external = nodes.iter().filter_map(|node| match node.operation.work {
            Work::External(event) => Some((node.lane, node.time, event)),
            _ => None,
        });
        external.map(|(lane, time, event)| (lane, time, self.latest(event))).collect()
    }

    fn launch_graph(&mut self, graph: Graph, stream: Stream) -> DriverResult<()> {
        let id = self.stream(stream)?;
        self.refuse_implicit(id)?;
        self.refuse_capturing(id)?;
        let Some(executable) = self.graphs.get(graph.0) else {
            return Err(codes::INVALID_VALUE);
        };
        let (nodes, lanes, times) =
            (Arc::clone(&executable.nodes), executable.lanes.clone(), executable.times.clone());
        let mut start = executable.end.clone();
        self.advance(id);
        start.join(&self.streams.get(id).clock);
        let bases: Vec<(Lane, u64)> =
            lanes.iter().map(|lane| (*lane, self.schedule.time(*lane))).collect();
        let place: Arc<str> =
            format!("graph#{} on {}", graph.0 + 1, self.streams.get(id).name).into();
        let outside = self.waited_for_outside(&nodes);
        for node in &*nodes {
            let mut clock = start.clone();
            for (lane, time) in node.clock.entries() {
                let (lane, base) = bases[lane.index()];
                clock.reach(lane, base.saturating_add(time));
            }
            for (lane, time, event) in &outside {
                if node.clock.covers(*lane, *time) {
                    clock.join(event);
                }
            }
            let (lane, base) = bases[node.lane.index()];
            let operation = &node.operation;
            let (name, work) = (Arc::clone(&operation.name), operation.work.clone());
            let time = base.saturating_add(node.time);
            let who = self.enqueue_at(lane, time, &clock, name, Arc::clone(&place), work);
            self.touch_all(&who, &clock, &operation.reads, &operation.writes);
        }
        let mut end = start;
        for (_, _, event) in &outside {
            end.join(event);
        }
        for (lane, steps) in lanes.iter().zip(times) {
            end.reach(*lane, self.schedule.advance(*lane, steps));
        }
        self.streams.get_mut(id).clock.join(&end);
        if let Some(executable) = self.graphs.get_mut(graph.0) {
            executable.end = end;
        }
        Ok(())
    }
}

impl Simulated {
    pub fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        self.make("cuStreamBeginCapture", |state| state.begin_capture(stream, mode))
    }

    /// `cuStreamEndCapture` and `cuGraphInstantiate`. Fails if the capture was invalidated or a fork was not joined.
    pub fn end_capture(&self, stream: Stream) -> Result<Graph> {
        // Drop the recorded work only after the lock is released: the drop may call the simulated device.
        let mut kept = Vec::new();
        self.make("cuStreamEndCapture", |state| {
            state.end_capture(stream).map_err(|(code, nodes)| {
                kept = nodes;
                code
            })
        })
    }

    pub fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.make("cuGraphLaunch", |state| state.launch_graph(graph, stream))
    }

    /// Ends every capture and empties every graph, so that neither keeps objects alive. Queued work stays queued.
    pub fn forget_graphs(&self) {
        let mut state = self.lock();
        let open = std::mem::take(&mut state.captures.open);
        let members: Vec<StreamId> = state.streams.ids().collect();
        for member in members {
            state.streams.get_mut(member).member = None;
        }
        let none: Arc<[Node]> = Arc::from(Vec::new());
        let graphs = state.graphs.iter_mut();
        let nodes: Vec<Arc<[Node]>> =
            graphs.map(|graph| std::mem::replace(&mut graph.nodes, Arc::clone(&none))).collect();
        // Release the lock first: dropping what the work holds may call the simulated device.
        drop(state);
        drop((open, nodes));
    }
}
