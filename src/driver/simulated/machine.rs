//! What a Rust program asks of the simulated device, besides the calls of [`Driver`]. The device may be in this
//! library, or another library of the process may lend it ([`crate::driver::lent`]).

use std::sync::Arc;

use super::{Simulated, Span};
use crate::driver::Driver;
use crate::error::Result;
use crate::stream::{Stream, Thread};

/// The function of a piece of queued work. Its argument is the device that runs the work.
pub type Task = dyn Fn(&dyn Machine) + Send + Sync;

/// The simulated device. A `stream` is a stream's handle.
pub trait Machine: Driver {
    /// Makes a non-blocking stream.
    fn new_stream(&self, ordinal: i32) -> Result<u64>;

    fn end_stream(&self, stream: u64) -> Result<()>;

    /// Queues `task` and checks its declared accesses. On a stream under capture, each launch of the graph does both.
    fn queue(
        &self,
        stream: u64,
        name: &str,
        reads: &[Span],
        writes: &[Span],
        task: Arc<Task>,
    ) -> Result<()>;

    /// Only for running work. Makes no check for races: [`queue`](Self::queue) checks the declared reads.
    fn load(&self, ptr: u64, bytes: &mut [u8]) -> Result<()>;

    /// Only for running work. Makes no check for races: [`queue`](Self::queue) checks the declared writes.
    fn store(&self, ptr: u64, bytes: &[u8]) -> Result<()>;

    /// Checks the read for races. Runs no queued work.
    fn read_on_host(&self, ptr: u64, bytes: &mut [u8]) -> Result<()>;

    fn failed(&self, kernel: &str, why: &str);
}

impl Machine for Simulated {
    fn new_stream(&self, ordinal: i32) -> Result<u64> {
        self.create_stream(ordinal, false)
    }

    fn end_stream(&self, stream: u64) -> Result<()> {
        self.destroy_stream(stream)
    }

    fn queue(
        &self,
        stream: u64,
        name: &str,
        reads: &[Span],
        writes: &[Span],
        task: Arc<Task>,
    ) -> Result<()> {
        let stream = Stream::from_native(stream, Thread::current());
        self.launch(stream, name, reads, writes, move |cuda| task(cuda))
    }

    fn load(&self, ptr: u64, bytes: &mut [u8]) -> Result<()> {
        let found = Self::load(self, ptr, length(bytes))?;
        bytes.copy_from_slice(&found);
        Ok(())
    }

    fn store(&self, ptr: u64, bytes: &[u8]) -> Result<()> {
        Self::store(self, ptr, bytes)
    }

    fn read_on_host(&self, ptr: u64, bytes: &mut [u8]) -> Result<()> {
        let found = self.host_read(ptr, length(bytes), "read on the host")?;
        bytes.copy_from_slice(&found);
        Ok(())
    }

    fn failed(&self, kernel: &str, why: &str) {
        self.report_failed(kernel, why);
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
