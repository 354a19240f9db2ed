//! Leases that hold Python references: how they end, and where ends that cannot finish yet are kept.

mod call_watch;
mod consumer_side;
mod conversion;
mod end;
mod generation;
mod handed_out;
mod held_memory;
mod known_memory;
mod memory_guard;
mod next_consumer;
mod pending_ends;
mod producer_side;
mod tensor;
mod warned;

pub(crate) use call_watch::CallWatch;
pub(crate) use consumer_side::Captured;
pub(crate) use end::Orders;
pub(crate) use held_memory::{HeldMemory, MemoryGuard};
pub(crate) use known_memory::goes_on;
pub(crate) use pending_ends::{_end, _settle, look, look_at_all};
pub(crate) use producer_side::Readiness;
pub(crate) use tensor::Unconsumed;
