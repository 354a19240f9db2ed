//! Leases that hold Python's references: how each ends, and who looks after those that cannot end yet.

mod ending;
mod holding;
mod pending;
mod warned;

pub(crate) use ending::Tenant;
pub(crate) use holding::Holding;
pub(crate) use pending::{_end, _settle, look, look_at_all};
