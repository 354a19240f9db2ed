//! Makes the orders of an end: collects the state of the streams, lets [`crate::lease::end_rules`] decide, and carries
//! out the plan.

mod carry_out;
mod gather;
mod orders;

pub(super) use carry_out::{EndContext, UnsettledEnd};
pub(crate) use orders::Orders;
