//! The end of held memory: what is known of it is gathered, [`crate::lease::plan`] decides, and that is done.

mod gather;
mod orders;
mod settle;

pub(crate) use orders::Orders;
pub(super) use settle::{End, settle};
