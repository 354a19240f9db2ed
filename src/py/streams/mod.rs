//! Streams as Python names them: what `stream=` may be, who keeps one alive, and what libraries work on.

pub(crate) mod argument;
pub(crate) mod current;
pub(crate) mod kept;
mod object;
mod pools;
mod voucher;
mod wait;

pub(crate) use argument::Argument;
pub(crate) use kept::{Keeping, Kept};
pub(crate) use object::handle_of;
pub(crate) use wait::{Unsaid, check_host_wait, wait_for_all};
