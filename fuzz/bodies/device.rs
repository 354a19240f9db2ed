//! Legal programs on the simulated device, checked against a slow and obvious oracle: the transitive closure of the
//! edges that the rules give.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{Simulated, Span};
use cai_bridge::driver::{Driver, Event};
use cai_bridge::stream::Stream;

use super::choices::{Bytes, Choices};

/// The oracle takes quadratic time, so programs are short.
const STEPS: usize = 200;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let syncs = bytes.flag();
    let mut program = Program::new(bytes);
    for _ in 0..STEPS {
        if program.choices.is_over() {
            break;
        }
        program.step(syncs);
    }
    program.check_reports();
    program.cuda.run_all().unwrap();
    program.check_run(!syncs);
}

type Set = HashSet<usize>;

/// The oracle's record of a program: nodes in program order, each with all nodes that happen before it.
#[derive(Default)]
struct Oracle {
    before: Vec<Set>,
    last_on: HashMap<usize, usize>,
    last_host: Option<usize>,
    recorded: HashMap<usize, usize>,
    /// For each access: the operation's number, its node, the block, its start and end in bytes, and whether it writes.
    accesses: Vec<(u64, usize, usize, u64, u64, bool)>,
    sequence: u64,
    nodes: HashMap<u64, usize>,
}

impl Oracle {
    fn node(&mut self, after: impl IntoIterator<Item = usize>) -> usize {
        let mut before = Set::new();
        for earlier in after {
            before.extend(&self.before[earlier]);
            before.insert(earlier);
        }
        self.before.push(before);
        self.before.len() - 1
    }

    /// Adds work on a stream. It happens after earlier work on the stream, after the host's last node, and after
    /// implicitly ordered work.
    fn action(&mut self, lanes: &[LaneRule], lane: usize, more: Option<usize>) -> usize {
        let rule = &lanes[lane];
        let mut after: Vec<usize> = self
            .last_on
            .get(&lane)
            .copied()
            .into_iter()
            .chain(self.last_host)
            .chain(more)
            .collect();
        for (other, theirs) in
            lanes.iter().enumerate().filter(|(_, theirs)| theirs.device == rule.device)
        {
            let implicit = (rule.legacy && theirs.blocking) || (rule.blocking && theirs.legacy);
            if implicit {
                after.extend(self.last_on.get(&other));
            }
        }
        let node = self.node(after);
        self.last_on.insert(lane, node);
        node
    }

    fn host(&mut self, more: impl IntoIterator<Item = usize>) -> usize {
        let after: Vec<usize> = self.last_host.into_iter().chain(more).collect();
        let node = self.node(after);
        self.last_host = Some(node);
        node
    }

    fn operation(&mut self, node: usize) -> u64 {
        self.sequence += 1;
        self.nodes.insert(self.sequence, node);
        self.sequence
    }

    fn happens_before(&self, a: u64, b: u64) -> bool {
        self.before[self.nodes[&b]].contains(&self.nodes[&a])
    }

    /// Every unordered pair of operations that touch the same bytes, at least one by writing.
    fn races(&self) -> HashSet<(u64, u64)> {
        let mut races = HashSet::new();
        for (at, (b, _, block_b, start_b, end_b, writes_b)) in self.accesses.iter().enumerate() {
            for (a, _, block_a, start_a, end_a, writes_a) in &self.accesses[..at] {
                let same_bytes = block_a == block_b && start_a < end_b && start_b < end_a;
                if a != b && same_bytes && (*writes_a || *writes_b) && !self.happens_before(*a, *b)
                {
                    races.insert((*a, *b));
                }
            }
        }
        races
    }
}

#[derive(Debug)]
struct LaneRule {
    stream: Stream,
    device: i32,
    legacy: bool,
    blocking: bool,
}

const BLOCK: usize = 24;

/// A legal program on two devices, with its oracle.
pub struct Program<C> {
    pub cuda: Arc<Simulated>,
    choices: C,
    lanes: Vec<LaneRule>,
    blocks: Vec<u64>,
    /// Each event with its device. An event is only recorded on streams of its device.
    events: Vec<(Event, i32)>,
    oracle: Oracle,
    pub ran: Arc<Mutex<Vec<u64>>>,
}

impl<C: Choices> Program<C> {
    pub fn new(choices: C) -> Self {
        let cuda = Simulated::new(2);
        let mut lanes = Vec::new();
        let mut events = Vec::new();
        for device in 0..2 {
            lanes.push(LaneRule { stream: Stream::Legacy, device, legacy: true, blocking: false });
            for blocking in [true, true, false, false] {
                let stream = Stream::Handle(cuda.create_stream(device, blocking).unwrap());
                lanes.push(LaneRule { stream, device, legacy: false, blocking });
            }
            cuda.set_device(device).unwrap();
            events.extend((0..3).map(|_| (cuda.create_event().unwrap(), device)));
        }
        let bytes = u64::try_from(BLOCK).unwrap();
        let blocks = ["x", "y"]
            .map(|label| cuda.alloc(0, bytes, MemoryKind::Device, label).unwrap())
            .to_vec();
        let (oracle, ran) = (Oracle::default(), Arc::default());
        Self { cuda, choices, lanes, blocks, events, oracle, ran }
    }

    /// Picks a lane and makes its device current, since the legacy stream means that of the current device.
    fn lane(&mut self) -> usize {
        let lane = self.choices.below(self.lanes.len());
        self.cuda.set_device(self.lanes[lane].device).unwrap();
        lane
    }

    fn spans(&mut self, most: usize) -> Vec<(usize, u64, u64)> {
        (0..self.choices.below(most + 1))
            .map(|_| {
                let start = self.choices.below(BLOCK);
                let end = start + 1 + self.choices.below(BLOCK - start);
                (
                    self.choices.below(self.blocks.len()),
                    start.try_into().unwrap(),
                    end.try_into().unwrap(),
                )
            })
            .collect()
    }

    fn raw(&self, spans: &[(usize, u64, u64)]) -> Vec<Span> {
        spans
            .iter()
            .map(|(block, start, end)| Span { ptr: self.blocks[*block] + start, len: end - start })
            .collect()
    }

    fn launch(&mut self) {
        let lane = self.lane();
        let (reads, writes) = (self.spans(2), self.spans(1));
        let node = self.oracle.action(&self.lanes, lane, None);
        let sequence = self.oracle.operation(node);
        for (spans, write) in [(&reads, false), (&writes, true)] {
            let accesses = spans
                .iter()
                .map(|(block, start, end)| (sequence, node, *block, *start, *end, write));
            self.oracle.accesses.extend(accesses);
        }
        let ran = Arc::clone(&self.ran);
        self.cuda
            .launch(
                self.lanes[lane].stream,
                "op",
                &self.raw(&reads),
                &self.raw(&writes),
                move |_| {
                    ran.lock().unwrap().push(sequence);
                },
            )
            .unwrap();
    }

    fn record(&mut self) {
        let lane = self.lane();
        let device = self.lanes[lane].device;
        let of_device: Vec<Event> =
            self.events.iter().filter(|event| event.1 == device).map(|event| event.0).collect();
        let event = of_device[self.choices.below(of_device.len())];
        self.cuda.record_on(event, self.lanes[lane].stream).unwrap();
        let node = self.oracle.action(&self.lanes, lane, None);
        self.oracle.recorded.insert(event.handle, node);
    }

    fn wait(&mut self) {
        let lane = self.lane();
        let event = self.events[self.choices.below(self.events.len())].0;
        self.cuda.wait_on(self.lanes[lane].stream, event).unwrap();
        if let Some(record) = self.oracle.recorded.get(&event.handle).copied() {
            self.oracle.action(&self.lanes, lane, Some(record));
        }
    }

    fn host_access(&mut self) {
        let Some((block, start, end)) = self.spans(1).pop() else { return };
        let node = self.oracle.host(None);
        let sequence = self.oracle.operation(node);
        let write = self.choices.below(2) == 0;
        self.oracle.accesses.push((sequence, node, block, start, end, write));
        let at = self.blocks[block] + start;
        if write {
            let bytes = vec![0; (end - start).try_into().unwrap()];
            self.cuda.host_write(at, &bytes, "host").unwrap();
        } else {
            self.cuda.host_read(at, end - start, "host").unwrap();
        }
    }

    fn sync(&mut self) {
        let lane = self.lane();
        match self.choices.below(3) {
            0 => {
                self.cuda.synchronize_stream(self.lanes[lane].stream).unwrap();
                // A synchronization queues nothing. So a blocking stream does not take over work of the legacy stream.
                let end = match self.lanes[lane].legacy {
                    true => Some(self.oracle.action(&self.lanes, lane, None)),
                    false => self.oracle.last_on.get(&lane).copied(),
                };
                self.oracle.host(end);
            }
            1 => {
                let event = self.events[self.choices.below(self.events.len())].0;
                self.cuda.synchronize_event(event).unwrap();
                let record = self.oracle.recorded.get(&event.handle).copied();
                self.oracle.host(record);
            }
            _ => {
                self.cuda.synchronize_context().unwrap();
                let device = self.lanes[lane].device;
                let of_device =
                    self.lanes.iter().enumerate().filter(|(_, lane)| lane.device == device);
                let ends: Vec<usize> = of_device
                    .filter_map(|(lane, _)| self.oracle.last_on.get(&lane).copied())
                    .collect();
                self.oracle.host(ends);
            }
        }
    }

    fn step(&mut self, syncs: bool) {
        match self.choices.below(100) {
            0..50 => self.launch(),
            50..68 => self.record(),
            68..90 => self.wait(),
            90..97 => self.host_access(),
            _ if syncs => self.sync(),
            _ => self.launch(),
        }
    }

    pub fn run(&mut self, steps: usize, syncs: bool) {
        (0..steps).for_each(|_| self.step(syncs));
    }

    /// Checks the reported races against the closure. Returns how many were reported, and how many were left out.
    pub fn check_reports(&self) -> (usize, usize) {
        let races = self.oracle.races();
        let reports = self.cuda.reports();
        let reported = reports
            .iter()
            .map(|report| (report.first.as_ref().unwrap().sequence, report.second.sequence));
        let unique: HashSet<(u64, u64)> = reported.collect();
        assert_eq!(unique.len(), reports.len(), "a pair is reported once");
        assert!(unique.is_subset(&races), "{:?}", unique.difference(&races));
        for (a, b) in races.difference(&unique) {
            // A pair may be left out only if a reported pair covers it.
            let stands_in =
                |other: &&(u64, u64)| other.1 == *b && self.oracle.happens_before(*a, other.0);
            assert!(unique.iter().find(stands_in).is_some(), "#{a} and #{b} race");
        }
        (unique.len(), races.len() - unique.len())
    }

    /// Checks that all work ran once, in a legal order. If nothing forced it to run, the order must be the least
    /// helpful one.
    pub fn check_run(&self, unforced: bool) {
        let ran = self.ran.lock().unwrap().clone();
        let mut left: HashSet<u64> = ran.iter().copied().collect();
        assert_eq!((left.len(), self.cuda.pending()), (ran.len(), 0), "each once");
        for next in ran {
            let ready =
                |a: &u64| !left.iter().any(|b| b != a && self.oracle.happens_before(*b, *a));
            assert!(ready(&next), "#{next} before what it follows");
            if unforced {
                assert_eq!(left.iter().copied().filter(ready).max(), Some(next));
            }
            left.remove(&next);
        }
    }
}
