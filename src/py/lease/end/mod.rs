//! The end of held memory: gather its facts, let [`crate::lease::plan`] decide, carry out the plan.

mod gather;
mod orders;
mod settle;

pub(crate) use orders::Orders;
pub(super) use settle::{End, settle};
