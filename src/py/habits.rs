//! What known libraries do that the bridge does not expect of an unknown library. It looks a type's habits up when it
//! first meets the type, and caches them. The rows are in `libraries`: in the library's own file, or in
//! `habits_only.rs`.
//!
//! Each row names the version on which the habit was seen and a test that shows it, so that it can be checked again on
//! newer versions.

/// A habit of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// The library's arrays never change. A legacy capsule cannot say so.
    Immutable,
    /// `__dlpack__` ignores the requested stream. Arrays are ready on the library's current stream, which it calls the
    /// environment's (tvm-ffi).
    IgnoresStream,
    /// Arrays are ready on the library's current stream. `__dlpack__` makes the requested stream wait for the current
    /// stream, but does not tell which stream is current. The library's exchange API or a function of the library does.
    ReadyOnCurrent,
    /// Reading the dict is cheaper than calling `__dlpack__`. The dict names the library's current stream, and only the
    /// library's stream object keeps that stream alive.
    NamesCurrentStream,
    /// The dict leaves out the strides of an array that is contiguous but for strides of 0, such as a broadcast array.
    LeavesOutStrides,
    /// Arrays have their stream object as the attribute `stream`. Reading it is cheaper than reading the dict, and the
    /// object keeps the stream alive.
    KeepsStreamObject,
    /// The dict has version 2 and no stream, and is slower to read than the exchange API.
    SilentDict,
    /// Some tensor subclasses (wrappers such as `ReadOnlyTensorWrapper`) raise from `__torch_function__` for every
    /// operation except the DLPack export. Even reading `requires_grad` raises.
    WrapsTensors,
    /// The library's stream objects cannot be closed: each keeps its stream alive as long as the object is held.
    NeverClosesStreams,
    /// In a dict of version 3, None or 0 as `stream`, or no `stream`, means the library's default stream.
    DefaultStreamUnnamed,
    /// In a dict of version 3, None as `stream`, or no `stream`, means that nothing is pending, as the specification
    /// says.
    NoneIsNothing,
    /// The dict has version 3 and no `stream`, even while work is pending.
    NeverNamesStream,
    /// The dict has version 3 and None as `stream`, even while work is pending.
    AlwaysNamesNone,
    /// `__dlpack__` follows DLPack: the memory is on the stated device, and the requested stream waits. For a library
    /// that also has [`Self::IgnoresStream`], only the device is as DLPack says.
    KeepsToDlpack,
    /// `__dlpack__` makes no stream wait, whatever stream is requested.
    OrdersNothing,
    /// The library hands out a dict that it read from another array earlier. The dict's stream may be destroyed by now.
    StoresDict,
    /// `__dlpack__` accepts only None as `stream`, which means the legacy default stream.
    TakesNoStream,
    /// `__dlpack__` makes only one capsule per array. The dict gives the same facts at any time.
    OneCapsule,
    /// As a consumer, the library ignores the streams that dicts name. It works on a default stream unless the program
    /// passes another stream to it. In such a row, `library` is the module that the program imports to use the library.
    IgnoresDicts,
}

/// Which protocol a habit concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// `__dlpack__`.
    Dlpack,
    /// The CAI dict.
    Cai,
    /// Both protocols.
    Both,
    /// Neither: the library itself.
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

/// One habit of one library.
#[derive(Debug)]
pub(crate) struct HabitRow {
    /// The dotted name of a package or module, such as `torch`. By [`is_of`], the modules inside the package belong to
    /// it, too.
    pub(crate) library: &'static str,
    pub(crate) habit: Habit,
    /// The version on which the habit was seen.
    pub(crate) version: &'static str,
    /// The test file that shows the habit, as a path below `tests`.
    pub(crate) test: &'static str,
}

/// Makes a row of the table of habits.
pub(crate) const fn known(
    library: &'static str,
    habit: Habit,
    version: &'static str,
    test: &'static str,
) -> HabitRow {
    HabitRow { library, habit, version, test }
}

/// Whether `module` belongs to `library`.
pub(crate) fn is_of(module: &str, library: &str) -> bool {
    module.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A set of habits, as bits, since each import looks for several of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits(u32);

impl Habits {
    pub(crate) const NONE: Self = Self(0);

    /// Adds the habit of `row`.
    pub(crate) const fn and(self, row: &HabitRow) -> Self {
        Self(self.0 | row.habit.bit())
    }

    pub(crate) const fn has(self, habit: Habit) -> bool {
        self.0 & habit.bit() != 0
    }

    /// Whether the set is empty.
    pub(crate) const fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the set has a habit that the protocols do not say: any but [`Habit::KeepsToDlpack`] and
    /// [`Habit::NoneIsNothing`].
    pub(crate) const fn are_peculiar(self) -> bool {
        self.0 & !(Habit::KeepsToDlpack.bit() | Habit::NoneIsNothing.bit()) != 0
    }
}
