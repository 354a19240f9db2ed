//! The libraries that the bridge knows, a file each. Nothing else names one.

mod peculiar;

use super::library::{self, Library};

/// All of them, in the order in which they are asked.
static ALL: [&dyn Library; 1] = [&peculiar::Peculiar];

/// Has them be known, before the first array comes.
pub(crate) fn know() {
    library::know(&ALL);
}
