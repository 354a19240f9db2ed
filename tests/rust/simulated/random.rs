//! Long random programs, against an oracle that is slow and obvious: the transitive closure of the
//! edges that the rules give.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::simulated::{Simulated, Span};
use cai_bridge::driver::{Driver, Event};
use cai_bridge::stream::Stream;

/// A small generator of random numbers (xorshift), so that a seed means the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// A set of nodes.
type Set = HashSet<usize>;

/// What is known of a program: nodes in program order, each with all nodes that happen before it.
#[derive(Default)]
struct Oracle {
    before: Vec<Set>,
    last_on: HashMap<usize, usize>,
    last_host: Option<usize>,
    recorded: HashMap<usize, usize>,
    /// The node, block, bytes and kind of each access, by the number of its operation.
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

    /// Something queued on a stream: after the stream, the host, and what is implicitly before.
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

    /// Every pair of operations that touch the same bytes, one of them writing, and are unordered.
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

struct Program {
    cuda: Arc<Simulated>,
    random: Random,
    lanes: Vec<LaneRule>,
    blocks: Vec<u64>,
    /// Events with their device: one is recorded on streams of its device only.
    events: Vec<(Event, i32)>,
    oracle: Oracle,
    ran: Arc<Mutex<Vec<u64>>>,
}

impl Program {
    fn new(seed: u64) -> Self {
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
        Self { cuda, random: Random(seed), lanes, blocks, events, oracle, ran }
    }

    /// A random lane, whose device is made current: the legacy stream is named by it.
    fn lane(&mut self) -> usize {
        let lane = self.random.below(self.lanes.len());
        self.cuda.set_device(self.lanes[lane].device).unwrap();
        lane
    }

    fn spans(&mut self, most: usize) -> Vec<(usize, u64, u64)> {
        (0..self.random.below(most + 1))
            .map(|_| {
                let start = self.random.below(BLOCK);
                let end = start + 1 + self.random.below(BLOCK - start);
                (
                    self.random.below(self.blocks.len()),
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
        let event = of_device[self.random.below(of_device.len())];
        self.cuda.record_on(event, self.lanes[lane].stream).unwrap();
        let node = self.oracle.action(&self.lanes, lane, None);
        self.oracle.recorded.insert(event.handle, node);
    }

    fn wait(&mut self) {
        let lane = self.lane();
        let event = self.events[self.random.below(self.events.len())].0;
        self.cuda.wait_on(self.lanes[lane].stream, event).unwrap();
        if let Some(record) = self.oracle.recorded.get(&event.handle).copied() {
            self.oracle.action(&self.lanes, lane, Some(record));
        }
    }

    fn host_access(&mut self) {
        let Some((block, start, end)) = self.spans(1).pop() else { return };
        let node = self.oracle.host(None);
        let sequence = self.oracle.operation(node);
        let write = self.random.below(2) == 0;
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
        match self.random.below(3) {
            0 => {
                self.cuda.synchronize_stream(self.lanes[lane].stream).unwrap();
                let end = self.oracle.action(&self.lanes, lane, None);
                self.oracle.host([end]);
            }
            1 => {
                let event = self.events[self.random.below(self.events.len())].0;
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

    fn run(&mut self, steps: usize, syncs: bool) {
        for _ in 0..steps {
            match self.random.below(100) {
                0..50 => self.launch(),
                50..68 => self.record(),
                68..90 => self.wait(),
                90..97 => self.host_access(),
                _ if syncs => self.sync(),
                _ => self.launch(),
            }
        }
    }

    fn reported(&self) -> Vec<(u64, u64)> {
        let reports = self.cuda.reports();
        reports
            .iter()
            .map(|report| (report.first.as_ref().unwrap().sequence, report.second.sequence))
            .collect()
    }
}

#[test]
fn reports_are_what_the_closure_of_the_edges_says() {
    let (mut found, mut hidden) = (0, 0);
    for seed in 1..=60 {
        let mut program = Program::new(seed * 0x9E37_79B9);
        program.run(150, seed % 3 != 0);
        let races = program.oracle.races();
        let reported = program.reported();
        let unique: HashSet<(u64, u64)> = reported.iter().copied().collect();
        assert_eq!(unique.len(), reported.len(), "seed {seed}: a pair is reported once");
        assert!(unique.is_subset(&races), "seed {seed}: {:?}", unique.difference(&races));
        for (a, b) in races.difference(&unique) {
            // A pair may be left out only where one that is reported stands in for it.
            let stands_in =
                |other: &&(u64, u64)| other.1 == *b && program.oracle.happens_before(*a, other.0);
            assert!(unique.iter().find(stands_in).is_some(), "seed {seed}: #{a} and #{b} race");
        }
        found += unique.len();
        hidden += races.len() - unique.len();
    }
    assert!(
        found > 1000 && hidden > 100,
        "the programs test something: {found} reported, {hidden} hidden"
    );
}

#[test]
fn work_runs_in_the_least_helpful_legal_order() {
    for seed in 1..=30 {
        let mut program = Program::new(seed * 0x9E37_79B9);
        program.run(150, false);
        program.cuda.run_all().unwrap();
        let ran = program.ran.lock().unwrap().clone();
        let mut left: HashSet<u64> = ran.iter().copied().collect();
        assert_eq!(left.len(), ran.len(), "seed {seed}: each once");
        for next in ran {
            let ready =
                |a: &u64| !left.iter().any(|b| b != a && program.oracle.happens_before(*b, *a));
            let last = left.iter().copied().filter(ready).max();
            assert_eq!(last, Some(next), "seed {seed}");
            left.remove(&next);
        }
        assert_eq!(program.cuda.pending(), 0);
    }
}

#[test]
fn syncs_run_what_they_cover_in_a_legal_order() {
    for seed in 1..=30 {
        let mut program = Program::new(seed * 0x9E37_79B9);
        program.run(200, true);
        program.cuda.run_all().unwrap();
        let ran = program.ran.lock().unwrap().clone();
        for (at, later) in ran.iter().enumerate() {
            for earlier in &ran[at + 1..] {
                assert!(
                    !program.oracle.happens_before(*earlier, *later),
                    "seed {seed}: #{earlier} before #{later}"
                );
            }
        }
    }
}

#[test]
fn the_same_program_gives_the_same_reports_and_the_same_order() {
    let run = || {
        let mut program = Program::new(42);
        program.run(2_000, true);
        program.cuda.run_all().unwrap();
        let ran = program.ran.lock().unwrap().clone();
        (program.cuda.reports(), ran)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_hundred_thousand_operations_stay_quick() {
    let cuda = Simulated::new(1);
    let mut random = Random(7);
    let streams: Vec<Stream> =
        (0..8).map(|at| Stream::Handle(cuda.create_stream(0, at % 2 == 0).unwrap())).collect();
    let blocks: Vec<u64> =
        (0..16).map(|_| cuda.alloc(0, 4096, MemoryKind::Device, "").unwrap()).collect();
    let event = cuda.create_event().unwrap();
    for step in 0..100_000_u64 {
        let (from, to) = (streams[random.below(8)], streams[random.below(8)]);
        cuda.record_on(event, from).unwrap();
        cuda.wait_on(to, event).unwrap();
        let start = random.below(64) * 64;
        let len = (1 + random.below(64 - start / 64)) * 64;
        let span = Span {
            ptr: blocks[random.below(16)] + u64::try_from(start).unwrap(),
            len: len.try_into().unwrap(),
        };
        let (reads, writes) =
            if step % 3 == 0 { (vec![], vec![span]) } else { (vec![span], vec![]) };
        cuda.launch(to, "op", &reads, &writes, |_| ()).unwrap();
    }
    cuda.synchronize_context().unwrap();
    assert_eq!(cuda.pending(), 0);
}
