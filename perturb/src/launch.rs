//! A launch of a kernel, as the program requested it, and the flags that say what is known of its bytes.

use crate::entries::Row;

/// A launch of a kernel: the function, the addresses of its arguments in the two forms that the driver takes,
/// its stream.
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
            // SAFETY: the program passes a `CUlaunchConfig`: seven unsigned ints, four bytes of padding, and
            // the stream.
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

/// A flag of a launch: its memory before and after was compared.
pub(crate) const COMPARED: u64 = 1;
/// A flag of a launch: repeated from the same memory, it left other bytes.
pub(crate) const VARIES: u64 = 2;
/// A flag of a launch: the host's patience ended before the launch was done. It may wait for other work.
pub(crate) const LOST: u64 = 4;
/// A flag of a launch: it was not compared, because other work may have run beside it, or a capture was active.
pub(crate) const BESIDE: u64 = 8;
/// A flag of a launch: it was not compared, because its kernel may wait for other kernels.
pub(crate) const WAITS: u64 = 16;
/// A flag of a launch: it was not repeated, because its attributes, or the nodes of its graph, do not allow it.
pub(crate) const FIXED: u64 = 32;
/// A flag of a launch: it was not repeated, or repeating it proved nothing. It was given managed memory or
/// memory that another process may use, or bytes changed in host memory that it was given.
pub(crate) const FOREIGN: u64 = 64;
/// A flag of a launch: it was not repeated, because it was given more memory than is kept.
pub(crate) const LARGE: u64 = 128;
/// A flag of a launch: a driver call for the comparison or the repeat failed.
pub(crate) const FAILED: u64 = 256;
