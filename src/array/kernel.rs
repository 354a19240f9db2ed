//! Kernels: PTX for a GPU, and a function of Rust's that stands in for it on the simulated device.

use std::fmt;
#[cfg(feature = "cudarc")]
use std::sync::Mutex;

use super::element::Element;
use super::on_host::OnHost;
use super::view::{View, ViewMut};
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

/// A kernel, to be [launched](crate::Scope::launch): its PTX, and what stands in for it on the simulated device.
///
/// # Examples
///
/// ```
/// use cai_bridge::Kernel;
///
/// # const PTX: &str = "";
/// static DOUBLE: Kernel = Kernel::new("double", PTX)
///     .on_host(|call| {
///         let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
///         call.store(0, &doubled)
///     });
/// assert_eq!(DOUBLE.name(), "double");
/// ```
pub struct Kernel {
    name: &'static str,
    ptx: &'static str,
    on_host: Option<fn(&OnHost<'_>) -> Result<()>>,
    /// The `CUfunction` by each `CUcontext` that it was loaded in.
    #[cfg(feature = "cudarc")]
    pub(super) loaded: Mutex<Vec<(usize, usize)>>,
}

impl Kernel {
    /// The entry `name` of `ptx`, which is compiled by the driver where it is first launched.
    ///
    /// # Examples
    ///
    /// See [`Kernel`].
    pub const fn new(name: &'static str, ptx: &'static str) -> Self {
        Self {
            name,
            ptx,
            on_host: None,
            #[cfg(feature = "cudarc")]
            loaded: Mutex::new(Vec::new()),
        }
    }

    /// The same with what does its work on the simulated device.
    ///
    /// # Examples
    ///
    /// See [`Kernel`].
    #[must_use]
    pub const fn on_host(mut self, work: fn(&OnHost<'_>) -> Result<()>) -> Self {
        self.on_host = Some(work);
        self
    }

    /// Its name.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(cai_bridge::Kernel::new("double", "").name(), "double");
    /// ```
    pub const fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(feature = "cudarc")]
    pub(super) const fn ptx(&self) -> &'static str {
        self.ptx
    }

    pub(super) fn stand_in(&self) -> Result<fn(&OnHost<'_>) -> Result<()>> {
        let none = || {
            Error::new(
                Kind::NoBackend,
                format!("the kernel {}, which has no on_host function", self.name),
            )
        };
        self.on_host.ok_or_else(none)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ptx, .. } = self;
        write!(f, "Kernel({name}, {} bytes of PTX)", ptx.len())
    }
}

/// How many blocks of how many threads run.
///
/// # Examples
///
/// ```
/// use cai_bridge::Grid;
///
/// assert_eq!(Grid::cover(1000, 256).blocks, [4, 1, 1]);
/// let tiles = Grid { blocks: [8, 8, 1], threads: [16, 16, 1], shared: 0 };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, along x, y and z.
    pub blocks: [u32; 3],
    /// Threads a block, along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Grid {
    /// As many blocks of `threads` threads along x as have `n` threads or more, at least one.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(cai_bridge::Grid::cover(0, 128).blocks, [1, 1, 1]);
    /// ```
    pub fn cover(n: usize, threads: u32) -> Self {
        let threads = threads.max(1);
        let blocks = n.div_ceil(usize::try_from(threads).unwrap_or(1)).max(1);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared: 0 }
    }
}

/// An argument as a kernel is given it.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub enum Slot {
    /// A number: its bytes first, and the name of its type.
    Number([u8; 8], &'static str),
    /// An array's memory, and whether it is written.
    Memory(Descriptor, bool),
}

mod sealed {
    pub trait Sealed {}
}

/// An argument of a [launch](crate::Scope::launch) in the scope `'id`: a [`View`] or a [`ViewMut`] of that scope,
/// which the kernel is given as an address, or a [`Scalar`].
///
/// # Examples
///
/// ```
/// use cai_bridge::{Argument, View};
///
/// fn takes<'id>(_: impl Argument<'id>) {}
///
/// fn both<'id>(view: &View<'_, 'id, f32>) {
///     takes(view);
///     takes(2.5_f32);
/// }
/// ```
pub trait Argument<'id>: sealed::Sealed {
    #[doc(hidden)]
    fn slot(self) -> Slot;
}

impl<T> sealed::Sealed for &View<'_, '_, T> {}
impl<T> sealed::Sealed for &mut ViewMut<'_, '_, T> {}

impl<'id, T: Element> Argument<'id> for &View<'_, 'id, T> {
    fn slot(self) -> Slot {
        Slot::Memory(self.array.descriptor.clone(), false)
    }
}

impl<'id, T: Element> Argument<'id> for &mut ViewMut<'_, 'id, T> {
    fn slot(self) -> Slot {
        Slot::Memory(self.0.array.descriptor.clone(), true)
    }
}

/// A number that a kernel takes: `i32`, `u32`, `i64`, `u64`, `f32` or `f64`.
///
/// # Examples
///
/// ```
/// use cai_bridge::Scalar;
///
/// fn size<T: Scalar>() -> usize {
///     size_of::<T>()
/// }
/// assert_eq!(size::<f32>(), 4);
/// ```
pub trait Scalar: Element + sealed::Sealed {}

macro_rules! scalars {
    ($($type:ty),+) => {
        $(
            impl sealed::Sealed for $type {}
            impl Scalar for $type {}

            impl Argument<'_> for $type {
                fn slot(self) -> Slot {
                    let mut number = [0; 8];
                    let bytes = self.to_le_bytes();
                    number[..bytes.len()].copy_from_slice(&bytes);
                    Slot::Number(number, Self::NAME)
                }
            }
        )+
    };
}

scalars!(i32, u32, i64, u64, f32, f64);

/// A kernel's arguments: a tuple of up to ten [`Argument`]s.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Arguments, View, ViewMut};
///
/// fn takes<'id>(_: impl Arguments<'id>) {}
///
/// fn saxpy<'id>(x: &View<'_, 'id, f32>, y: &mut ViewMut<'_, 'id, f32>) {
///     takes((2.0_f32, x, y, 16_u32));
/// }
/// ```
pub trait Arguments<'id>: sealed::Sealed {
    #[doc(hidden)]
    fn slots(self) -> Vec<Slot>;
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name),+> sealed::Sealed for ($($name,)+) {}

        impl<'id, $($name: Argument<'id>),+> Arguments<'id> for ($($name,)+) {
            fn slots(self) -> Vec<Slot> {
                #[allow(non_snake_case, reason = "the types' names")]
                let ($($name,)+) = self;
                vec![$($name.slot()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
