//! An operation of a record: work on the device, or an access by the host.

/// An operation, for the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The operation's row in the table of functions; `u32::MAX` for the host.
    pub(crate) row: u32,
    /// The index of the operation's name; `u32::MAX` for none.
    pub(crate) name: u32,
    pub(crate) stream: u32,
    pub(crate) number: u32,
    pub(crate) stack: u32,
    /// The launch's number among launches of this name, from 0.
    pub(crate) place: u32,
    /// The operation's number in `cai-bridge perturb`, plus 1; 0: it has none.
    pub(crate) numbered: u64,
    /// The flags of a launch that was looked at ([`launch`](crate::launch)).
    pub(crate) flags: u64,
}

impl Operation {
    /// An access by the host itself, which has no row.
    pub(crate) const OF_HOST: Self = Self {
        row: u32::MAX,
        name: u32::MAX,
        stream: 0,
        number: 0,
        stack: 0,
        place: 0,
        numbered: 0,
        flags: 0,
    };
}
