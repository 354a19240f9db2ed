//! GPU memory with a deleter.

use cai_bridge::{Array, DeviceStream, Dtype, Owner};
use pyo3::prelude::*;

/// GPU memory, and the deleter to call at its end.
pub(crate) struct Block {
    memory: Array,
    stream: DeviceStream,
    deleter: Option<Py<PyAny>>,
}

impl Block {
    pub(crate) fn new(memory: Array, stream: DeviceStream, deleter: Option<Py<PyAny>>) -> Self {
        Self { memory, stream, deleter }
    }
}

// SAFETY: every method describes `memory`, an array of its own, which stays alive; `stream` is the
// stream of its work.
unsafe impl Owner for Block {
    type Stream = DeviceStream;

    fn stream(&self) -> &DeviceStream {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.memory.ptr()
    }

    fn dtype(&self) -> Dtype {
        self.memory.dtype()
    }

    fn shape(&self) -> &[i64] {
        self.memory.shape()
    }
}

impl Drop for Block {
    /// Runs on the thread that drops the last tensor of the memory.
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter.take() {
            Python::try_attach(|py| {
                deleter
                    .call0(py)
                    .inspect_err(|error| error.clone_ref(py).write_unraisable(py, None))
                    .ok()
            });
        }
    }
}
