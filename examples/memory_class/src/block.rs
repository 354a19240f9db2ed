//! Memory with a deleter.

use cai_bridge::{Array, DeviceStream, Dtype, Owner};
use pyo3::prelude::*;

/// Memory, and what is called at its end.
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

// SAFETY: the memory's own description, and its own stream.
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
    /// Runs on any thread: the one that drops the last tensor of the memory.
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
