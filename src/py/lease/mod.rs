//! Leases that hold Python's references: how each ends, and who looks after those that cannot end yet.

mod consumer;
mod conversion;
mod ends;
mod generation;
mod hand_on;
mod holding;
mod no_order;
mod orders;
mod ready;
mod ready_on;
mod settle;
mod tenant;
mod tensor;
mod users;
mod warned;
mod watch;

pub(crate) use ends::{_end, _settle, look, look_at_all};
pub(crate) use holding::{Holding, Tenant};
pub(crate) use orders::Orders;
pub(crate) use tensor::Unconsumed;
pub(crate) use watch::Watch;
