//! A CUDA driver of stubs, to be loaded as `libcuda.so.1`.
//!
//! It has every entry point that `src/driver/cuda` looks up, under the driver's own name and with its
//! signature. Each answers at once and does nothing on a device. So the real door runs on any machine: it
//! is loaded, asked, refused and counted (`tests/python/test_cuda_door.py`, `tests/counts`).
//!
//! What it claims:
//! - two devices, each with a primary context at a fixed address;
//! - every address above the first page is device memory of device 0; what was allocated here is memory of
//!   the device whose context was current;
//! - a stream handle is any number, and belongs to device 0, or to device 1 from `SECOND` on;
//! - events are always reached; no stream is ever captured.
//!
//! A test changes that with three functions: [`fake_driver_fail`] has an entry point answer with a code,
//! [`fake_driver_say`] changes a claim, [`fake_driver_calls`] tells how often one was called.

mod answers;
mod entries;

pub use answers::*;
