//! Reads a graph's nodes from the driver when the graph is instantiated, or an executable graph is updated by
//! it.

use alloc::vec::Vec;
use core::ptr::null_mut;

use crate::driver;
use crate::record::{Graph, Kind, Log};

/// `CU_GRAPH_NODE_TYPE_KERNEL`. The constants below are the other kinds of nodes.
const KERNEL: i32 = 0;
const COPY: i32 = 1;
const SET: i32 = 2;
const HOST: i32 = 3;
const CHILD: i32 = 4;
const EMPTY: i32 = 5;
const WAIT_EVENT: i32 = 6;
const RECORD_EVENT: i32 = 7;
const SIGNAL: i32 = 8;
const WAIT_SEMAPHORE: i32 = 9;
const ALLOCATE: i32 = 10;
const FREE: i32 = 11;
const BATCH: i32 = 12;
/// The most levels of graphs to read, child graphs included.
const DEEPEST: usize = 8;

/// How a node touches memory: it reads bytes.
pub(crate) const READS: u64 = 0;
/// How a node touches memory: it writes bytes.
pub(crate) const WRITES: u64 = 1;
/// How a node touches memory: its kernel is given an address.
pub(crate) const GIVEN: u64 = 2;

/// A flag of a graph: a node waits for an event, a semaphore or a value. The second word of a graph's entry has
/// its flags.
pub(crate) const WAITS: u64 = 1;
/// A flag of a graph: some node could not be read.
pub(crate) const UNREAD: u64 = 2;
/// A flag of a graph: a node calls a host function.
pub(crate) const CALLS: u64 = 4;

/// What has been read of a graph so far.
struct Reading {
    graph: Graph,
    flags: u64,
    /// For each node that touches memory: its kind, its kernel or 0, the stack of the call that made it or 0,
    /// the number of its touches, and the touches. A touch is how, address, and either the end address or, for
    /// a given address, the parameter's place.
    nodes: Vec<u64>,
    /// The stack of the node that is being read.
    stack: u64,
    count: u64,
    /// The events that the graph records.
    events: Vec<u64>,
}

/// Writes an executable graph to the record: handle, flags, events and nodes. `graph` is the graph that it was
/// made of.
pub(crate) fn write(log: &mut Log, executable: u64, graph: u64) {
    let mut reading = Reading {
        graph: Graph { addresses: Vec::new(), plain: true },
        flags: 0,
        nodes: Vec::new(),
        stack: 0,
        count: 0,
        events: Vec::new(),
    };
    reading.read(log, graph, 0);
    let mut words = alloc::vec![executable, reading.flags, reading.events.len() as u64];
    words.extend_from_slice(&reading.events);
    words.push(reading.count);
    words.extend_from_slice(&reading.nodes);
    log.put(Kind::Graph, &words);
    log.graphs.insert(executable, reading.graph);
}

fn nodes_of(graph: u64) -> Option<Vec<u64>> {
    let mut count = 0;
    // SAFETY: the program has just instantiated the graph, or it is a child of such a graph. Without an array
    // the driver returns the number of nodes.
    unsafe {
        if driver::cuGraphGetNodes(graph, null_mut(), &raw mut count) != 0 {
            return None;
        }
        let mut nodes = alloc::vec![0; count];
        if count > 0 && driver::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) != 0 {
            return None;
        }
        nodes.truncate(count);
        Some(nodes)
    }
}

impl Reading {
    fn read(&mut self, log: &mut Log, graph: u64, depth: usize) {
        let Some(nodes) = nodes_of(graph).filter(|_| depth < DEEPEST) else {
            self.unread();
            return;
        };
        for node in nodes {
            let mut kind = 0;
            // SAFETY: the node belongs to the graph.
            if unsafe { driver::cuGraphNodeGetType(node, &raw mut kind) } != 0 {
                self.unread();
                continue;
            }
            // Take the stack out: a later node may get this handle.
            self.stack = log.nodes.remove(&node).unwrap_or(0);
            self.node(log, node, kind, depth);
        }
    }

    fn unread(&mut self) {
        self.flags |= UNREAD;
        self.graph.plain = false;
    }

    fn node(&mut self, log: &mut Log, node: u64, kind: i32, depth: usize) {
        let mut words = [0_u64; 32];
        let to = words.as_mut_ptr();
        // SAFETY: each of the driver's structures for a node is shorter than this array; the node is of this kind.
        let code = unsafe {
            match kind {
                KERNEL => driver::cuGraphKernelNodeGetParams_v2(node, to),
                COPY => driver::cuGraphMemcpyNodeGetParams(node, to),
                SET => driver::cuGraphMemsetNodeGetParams(node, to),
                CHILD => driver::cuGraphChildGraphNodeGetGraph(node, to),
                RECORD_EVENT => driver::cuGraphEventRecordNodeGetEvent(node, to),
                _ => 0,
            }
        };
        if code != 0 {
            self.unread();
            return;
        }
        match kind {
            KERNEL => self.kernel(log, &words),
            COPY => self.copy(&words),
            SET => self.set(&words),
            CHILD => self.read(log, words[0], depth + 1),
            EMPTY => {}
            WAIT_EVENT | WAIT_SEMAPHORE | BATCH => {
                self.flags |= WAITS;
                self.graph.plain = false;
            }
            RECORD_EVENT => {
                self.events.push(words[0]);
                self.graph.plain = false;
            }
            HOST => {
                self.flags |= CALLS;
                self.graph.plain = false;
            }
            SIGNAL | ALLOCATE | FREE => self.graph.plain = false,
            // An unknown kind of node may wait for something unknown.
            _ => self.unread(),
        }
    }

    fn push(&mut self, kind: i32, function: u64, touches: &[[u64; 3]]) {
        let kind = u64::from(kind.unsigned_abs());
        self.nodes.extend([kind, function, self.stack, touches.len() as u64]);
        self.nodes.extend(touches.iter().flatten());
        self.graph.addresses.extend(touches.iter().map(|one| one[1]));
        self.count += 1;
    }

    /// `CUDA_KERNEL_NODE_PARAMS_v2`: the function, seven unsigned ints, the arguments, the packed arguments,
    /// and the kernel that may replace the function.
    fn kernel(&mut self, log: &mut Log, words: &[u64; 32]) {
        let function = if words[0] == 0 { words[7] } else { words[0] };
        let kernel = log.kernel(function);
        let mut touches = Vec::new();
        // SAFETY: the driver returns the node's arguments in a form in which a launch takes them.
        unsafe {
            kernel.addresses(&log.memory, &log.descriptors, words[5], words[6], |place, word| {
                touches.push([GIVEN, word, place]);
            });
        }
        self.graph.plain &= !kernel.waits;
        self.push(KERNEL, function, &touches);
    }

    fn copy(&mut self, words: &[u64; 32]) {
        let mut touches = Vec::new();
        for (low, high, writes) in crate::copies::box_of(words) {
            touches.push([if writes { WRITES } else { READS }, low, high]);
        }
        self.push(COPY, 0, &touches);
    }

    /// `CUDA_MEMSET_NODE_PARAMS`: destination, pitch, value and size of an element, width, height.
    fn set(&mut self, words: &[u64; 32]) {
        let [to, pitch, sizes, width, height, ..] = *words;
        let row = (sizes >> 32).saturating_mul(width);
        let mut touches = Vec::new();
        for (low, high) in crate::copies::rows(to, pitch, row, height) {
            touches.push([WRITES, low, high]);
        }
        self.push(SET, 0, &touches);
    }
}
