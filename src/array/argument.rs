//! A kernel's arguments: views of arrays, numbers, and other values passed by value.

use std::any::Any;
use std::sync::Arc;

use super::element::Element;
use super::origin::Use;
use super::view::{View, ViewMut};
use crate::descriptor::Descriptor;

#[doc(hidden)]
#[derive(Debug, Clone)]
pub enum Slot {
    /// The number's bytes, little-endian and padded with zeros, and the [`Element::NAME`] of the number's type.
    Number([u8; 8], &'static str),
    Value(Arc<dyn Any + Send + Sync>, &'static str),
    /// The flag says whether the kernel may write to the array.
    Memory(Descriptor, bool),
}

#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "no user is handed one")]
pub struct Used(pub(super) Use);

impl Used {
    fn of(view: &View<'_, '_, impl Sized>, writes: bool) -> Option<Self> {
        (!view.is_empty()).then(|| Self(view.array.used(writes)))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An argument of a [launch](crate::Scope::launch) in the scope `'id`: a `&View` or `&mut ViewMut` of that scope, a
/// [`Scalar`], or a value of another type in [`ByValue`]. The kernel gets a view as the address of its first element.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument of a kernel",
    label = "not an `Argument`",
    note = "`&View`, `&mut ViewMut`, `i8` to `i64`, `u8` to `u64`, `f32` and `f64` are; any other value is by `ByValue`",
    note = "with the feature \"half\" of cai_bridge `f16` and `bf16` of half 2 are, too"
)]
pub trait Argument<'id>: sealed::Sealed {
    #[doc(hidden)]
    fn slot(self) -> Slot;

    #[doc(hidden)]
    fn used(&self) -> Option<Used> {
        None
    }
}

impl<T> sealed::Sealed for &View<'_, '_, T> {}
impl<T> sealed::Sealed for &mut ViewMut<'_, '_, T> {}

impl<'id, T: Element> Argument<'id> for &View<'_, 'id, T> {
    fn slot(self) -> Slot {
        Slot::Memory(self.array.descriptor.clone(), false)
    }

    fn used(&self) -> Option<Used> {
        Used::of(self, false)
    }
}

impl<'id, T: Element> Argument<'id> for &mut ViewMut<'_, 'id, T> {
    fn slot(self) -> Slot {
        Slot::Memory(self.0.array.descriptor.clone(), true)
    }

    fn used(&self) -> Option<Used> {
        Used::of(self, true)
    }
}

/// A number that a kernel can take: an integer of 8 to 64 bits, `f32` or `f64`. With the feature `half` also
/// `half::f16` and `half::bf16`.
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

scalars!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
#[cfg(feature = "half")]
scalars!(half::f16, half::bf16);

/// A structure, array or other value that a kernel takes by value. The kernel gets the value's bytes, in C layout if
/// the type is `#[repr(C)]`. On the simulated device the function of [`Kernel::on_host`](crate::Kernel::on_host) gets
/// the value by [`OnHost::value`](crate::OnHost::value).
///
/// If the value contains an address, the crate does not know the memory there, and orders no work on it. To order that
/// work, also pass a view of the memory as an argument.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, ByValue, Error, Grid, Kernel, scope};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Line {
///     slope: f32,
///     start: f64,
/// }
///
/// static FILL: Kernel = Kernel::new("fill", "").on_host(|call| {
///     let line = call.value::<Line>(1)?;
///     call.store(0, &[line.start as f32, line.start as f32 + line.slope])
/// });
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let mut x = Array::empty::<f32>(&stream, &[2])?;
/// scope(&stream, |s| {
///     let mut x = x.on_mut(s)?.view_mut::<f32>()?;
///     let line = ByValue(Line { slope: 0.5, start: 1.0 });
///     // SAFETY: the kernel takes two floats' address, and a line.
///     unsafe { s.launch(&FILL, Grid::cover(2, 2), (&mut x, line)) }
/// })?;
/// assert_eq!(x.to_vec::<f32>(&stream)?, [1.0, 1.5]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ByValue<T>(pub T);

impl<T> sealed::Sealed for ByValue<T> {}

impl<T: Copy + Send + Sync + 'static> Argument<'_> for ByValue<T> {
    fn slot(self) -> Slot {
        Slot::Value(Arc::new(self.0), std::any::type_name::<T>())
    }
}

/// A kernel's arguments: a tuple of one to ten [`Argument`]s.
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

    #[doc(hidden)]
    fn uses(&self) -> Vec<Used>;
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

            fn uses(&self) -> Vec<Used> {
                #[allow(non_snake_case, reason = "the types' names")]
                let ($($name,)+) = self;
                [$($name.used()),+].into_iter().flatten().collect()
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
