//! A launch of a kernel, as the program requested it, and what may be known of its bytes.

use crate::entries::Row;

/// A launch of a kernel: the function, its arguments, its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) arguments: u64,
    pub(crate) extra: u64,
    pub(crate) stream: u64,
}

pub(crate) fn launch(row: Row, arguments: &[u64]) -> Option<Launch> {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    match row {
        Row::cuLaunchKernel | Row::cuLaunchCooperativeKernel => Some(Launch {
            function: argument(0),
            arguments: argument(9),
            extra: argument(10),
            stream: argument(8),
        }),
        Row::cuLaunchKernelEx => {
            let config = argument(0) as *const u64;
            // SAFETY: the caller passes a `CUlaunchConfig`, as in `run`.
            let stream = if config.is_null() { 0 } else { unsafe { config.add(4).read() } };
            Some(Launch {
                function: argument(1),
                arguments: argument(2),
                extra: argument(3),
                stream,
            })
        }
        _ => None,
    }
}

/// A launch has flags. This one: its memory was compared.
pub(crate) const COMPARED: u64 = 1;
/// The repeated launch left other bytes.
pub(crate) const VARIES: u64 = 2;
/// The host's patience ended: the launch may wait for other work.
pub(crate) const LOST: u64 = 4;
/// The launch was not compared: other work was running, or a capture was active.
pub(crate) const BESIDE: u64 = 8;
/// The kernel may wait for other kernels.
pub(crate) const WAITS: u64 = 16;
// Why the launch was not repeated. Its attributes, or the nodes of its graph, do not allow it.
pub(crate) const FIXED: u64 = 32;
/// The launch was given managed memory or memory of another process, or host memory in which bytes changed.
pub(crate) const FOREIGN: u64 = 64;
/// The launch was given more memory than can be kept.
pub(crate) const LARGE: u64 = 128;
/// The driver refused something.
pub(crate) const FAILED: u64 = 256;
