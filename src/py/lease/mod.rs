//! Leases that hold Python's references: how each ends, and who looks after those that cannot end yet.

mod conversion;
mod ends;
mod gather;
mod generation;
mod hand_on;
mod holding;
mod home;
mod known;
mod orders;
mod outline;
mod settle;
mod tenant;
mod tensor;
mod used;
mod warned;
mod watch;

pub(crate) use ends::{_end, _settle, look, look_at_all};
pub(crate) use holding::{Holding, Tenant};
pub(crate) use known::goes_on;
pub(crate) use orders::Orders;
pub(crate) use tensor::Unconsumed;
pub(crate) use watch::Watch;
