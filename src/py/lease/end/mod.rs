//! The end of held memory: gather its facts, let [`crate::lease::end_rules`] decide, carry out the plan.

mod carry_out;
mod gather;
mod orders;

pub(super) use carry_out::{EndContext, settle};
pub(crate) use orders::Orders;
