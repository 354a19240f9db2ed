//! What known libraries do that the protocols do not say. The rows are in `libraries`. Each row names the version on
//! which the habit was seen, and a test that shows it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// The library's arrays never change. A legacy capsule cannot say so.
    Immutable,
    /// `__dlpack__` ignores the requested stream. Arrays are ready on the library's current stream.
    IgnoresStream,
    /// Arrays are ready on the library's current stream. `__dlpack__` makes the requested stream wait for that stream.
    ReadyOnCurrent,
    /// The dict names the library's current stream. Only the library's stream object keeps that stream alive.
    NamesCurrentStream,
    /// The dict leaves out the strides of an array that is contiguous except for strides of 0, as a broadcast array is.
    LeavesOutStrides,
    /// Arrays have their stream object as the attribute `stream`. The object keeps the stream alive.
    KeepsStreamObject,
    /// The dict has version 2 and no stream.
    SilentDict,
    /// Some tensor subclasses raise for every operation except the DLPack export, even for reading `requires_grad`.
    WrapsTensors,
    /// Each of the library's stream objects keeps its stream alive as long as the object is held.
    NeverClosesStreams,
    /// A dict of version 3 without a stream, or with the stream 0, means the library's default stream.
    DefaultStreamUnnamed,
    /// A dict of version 3 without a stream means that nothing is pending, as the specification says.
    NoneIsNothing,
    /// The dict has version 3 and no `stream`, even while work is pending.
    NeverNamesStream,
    /// The dict has version 3 and None as `stream`, even while work is pending.
    AlwaysNamesNone,
    /// `__dlpack__` follows DLPack, except where another habit of the library says otherwise.
    KeepsToDlpack,
    /// `__dlpack__` makes no stream wait, whatever stream is requested.
    OrdersNothing,
    /// The library hands out a dict that it read from another array earlier. The dict's stream may be destroyed by now.
    StoresDict,
    /// `__dlpack__` accepts only None as `stream`, which means the legacy default stream.
    TakesNoStream,
    /// `__dlpack__` makes only one capsule per array. The dict gives the same facts at any time.
    OneCapsule,
    /// As a consumer, the library ignores the streams that dicts name, and works on a default stream. In such a row,
    /// `library` is the module that the program imports.
    IgnoresDicts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Dlpack,
    Cai,
    Both,
    Library,
}

impl Habit {
    const fn bit(self) -> u32 {
        1 << self as u32
    }

    pub(crate) const fn about(self) -> About {
        match self {
            Self::Immutable
            | Self::IgnoresStream
            | Self::KeepsToDlpack
            | Self::OrdersNothing
            | Self::TakesNoStream
            | Self::OneCapsule => About::Dlpack,
            Self::KeepsStreamObject
            | Self::SilentDict
            | Self::LeavesOutStrides
            | Self::DefaultStreamUnnamed
            | Self::NoneIsNothing
            | Self::NeverNamesStream
            | Self::AlwaysNamesNone
            | Self::StoresDict => About::Cai,
            Self::NamesCurrentStream => About::Both,
            Self::ReadyOnCurrent
            | Self::WrapsTensors
            | Self::NeverClosesStreams
            | Self::IgnoresDicts => About::Library,
        }
    }
}

#[derive(Debug)]
pub(crate) struct HabitRow {
    /// The dotted name of a package or module, such as `torch`. The name includes the modules inside the package.
    pub(crate) library: &'static str,
    pub(crate) habit: Habit,
    pub(crate) version: &'static str,
    pub(crate) test: &'static str,
}

pub(crate) const fn known(
    library: &'static str,
    habit: Habit,
    version: &'static str,
    test: &'static str,
) -> HabitRow {
    HabitRow { library, habit, version, test }
}

pub(crate) fn is_of(module: &str, library: &str) -> bool {
    module.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits(u32);

impl Habits {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn and(self, row: &HabitRow) -> Self {
        Self(self.0 | row.habit.bit())
    }

    pub(crate) const fn has(self, habit: Habit) -> bool {
        self.0 & habit.bit() != 0
    }

    pub(crate) const fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has a habit besides `KeepsToDlpack` and `NoneIsNothing`, which only follow the protocols.
    pub(crate) const fn are_peculiar(self) -> bool {
        self.0 & !(Habit::KeepsToDlpack.bit() | Habit::NoneIsNothing.bit()) != 0
    }
}
