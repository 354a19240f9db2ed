//! What known libraries do that their protocols do not say, asked once a type. The rows are in the libraries' own files.
//!
//! Each row names the version it was seen on and the test that shows it, so that it can be looked at again
//! when the library moves on.

/// Something that a library does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Its arrays never change, which a legacy capsule cannot say.
    Immutable,
    /// Its `__dlpack__` ignores the stream that it is asked for. Its arrays are ready on the stream that its
    /// environment has.
    IgnoresStream,
    /// Its arrays are ready on its current stream, which a function of its own names where it has no exchange API. Its
    /// `__dlpack__` makes a stream wait for that one, and does not name it.
    ReadyOnCurrent,
    /// Its dict is cheaper than its `__dlpack__`, and names the stream that the other would order after: its
    /// current one. Nothing but that stream's object, which it has, keeps it alive.
    NamesCurrentStream,
    /// Its dict has no strides for arrays whose strides are those of a contiguous one but for some that are 0, as a
    /// broadcast array's.
    LeavesOutStrides,
    /// Its arrays have their stream's object as `stream`, which says at less cost than their dict that it
    /// lives.
    KeepsStreamObject,
    /// Its dict has version 2, without a stream, and is slower to read than its exchange API.
    SilentDict,
    /// A class of its tensors may refuse every question but the export, by a `__torch_function__` of its own.
    WrapsTensors,
    /// Its stream objects have no way to be closed: each keeps its stream for as long as it is held.
    NeverClosesStreams,
    /// Its dict names no stream, or the stream 0, for arrays on its default stream.
    DefaultStreamUnnamed,
    /// Its dict of version 3 has None as `stream` where nothing is pending, as the specification says.
    NoneIsNothing,
    /// Its dict is of version 3 and has no `stream`, whatever is pending.
    NeverNamesStream,
    /// The same, and its dict has None as `stream`.
    AlwaysNamesNone,
    /// Its `__dlpack__` does as DLPack says: the stream that it is asked for waits, and the memory is where it says.
    KeepsToDlpack,
    /// Its `__dlpack__` orders nothing, whatever stream it is asked for.
    OrdersNothing,
    /// It hands out a dict that it read of another array before: nothing keeps the stream that the dict names.
    StoresDict,
    /// Its `__dlpack__` refuses every stream but None, which stands for the legacy default one.
    TakesNoStream,
    /// Its `__dlpack__` makes one capsule in an array's life; its dict says as much each time.
    OneCapsule,
    /// It works on a default stream, unless it is told another, and ignores the streams of dicts. `library` is the
    /// module that is imported where it is used.
    IgnoresDicts,
}

/// What of a class a habit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Its `__dlpack__`.
    Dlpack,
    /// Its dict.
    Cai,
    /// Each of them.
    Both,
    /// Neither.
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

/// A habit of a library's.
#[derive(Debug)]
pub(crate) struct HabitRow {
    /// What the names of its modules begin with.
    pub(crate) library: &'static str,
    pub(crate) habit: Habit,
    /// The version that it was seen on.
    pub(crate) version: &'static str,
    /// The test that shows it, below `tests`.
    pub(crate) test: &'static str,
}

/// A row.
pub(crate) const fn known(
    library: &'static str,
    habit: Habit,
    version: &'static str,
    test: &'static str,
) -> HabitRow {
    HabitRow { library, habit, version, test }
}

/// Whether a module of that name is of `library`.
pub(crate) fn is_of(module: &str, library: &str) -> bool {
    module.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Some of them, which is asked several times at each import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits(u32);

impl Habits {
    pub(crate) const NONE: Self = Self(0);

    /// These and that of `row`.
    pub(crate) const fn and(self, row: &HabitRow) -> Self {
        Self(self.0 | row.habit.bit())
    }

    pub(crate) const fn has(self, habit: Habit) -> bool {
        self.0 & habit.bit() != 0
    }

    /// Whether nothing is known of it.
    pub(crate) const fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is known to do anything but what the protocols say.
    pub(crate) const fn are_peculiar(self) -> bool {
        self.0 & !(Habit::KeepsToDlpack.bit() | Habit::NoneIsNothing.bit()) != 0
    }
}
