//! Leases that hold Python references: how a lease ends, and where ends wait that cannot finish yet.

mod conversion;
mod end;
mod ends;
mod generation;
mod hand_on;
mod holding;
mod home;
mod known;
mod tenant;
mod tensor;
mod used;
mod warned;
mod watch;

pub(crate) use end::Orders;
pub(crate) use ends::{_end, _settle, look, look_at_all};
pub(crate) use holding::{Holding, Tenant};
pub(crate) use known::goes_on;
pub(crate) use tensor::Unconsumed;
pub(crate) use watch::Watch;
