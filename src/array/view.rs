//! An array's memory as a kernel takes it, checked.

use std::fmt;
use std::marker::PhantomData;

use super::Array;
use super::scope::Brand;

/// An array's elements in a scope, to be read there.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Error, View};
///
/// /// Whether a kernel that takes floats by fours can take this.
/// fn by_fours(view: &View<'_, '_, f32>) -> bool {
///     view.ptr() % 16 == 0 && view.len() % 4 == 0
/// }
/// ```
pub struct View<'a, 'id, T> {
    pub(super) array: &'a Array,
    pub(super) brand: Brand<'id>,
    pub(super) element: PhantomData<fn() -> T>,
}

/// An array's elements in a scope, to be written there.
///
/// Memory that is read-only has none, so this does not compile:
///
/// ```compile_fail,E0599
/// # use cai_bridge::{Array, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: &mut Array) -> Result<(), Error> {
///     scope(stream, |s| x.on_mut(s)?.view_mut::<f32>().map(drop))
/// }
/// ```
///
/// An [`ArrayMut`](crate::ArrayMut) has: its memory was checked when it was [made of an array](Array::writable), or taken in as
/// one.
///
/// # Examples
///
/// ```
/// # use cai_bridge::{Array, ArrayMut, DeviceStream, Error, scope};
/// fn right(stream: &DeviceStream, x: &mut ArrayMut) -> Result<(), Error> {
///     scope(stream, |s| x.on_mut(s)?.view_mut::<f32>().map(drop))
/// }
/// ```
pub struct ViewMut<'a, 'id, T>(pub(super) View<'a, 'id, T>);

impl<T> View<'_, '_, T> {
    /// The address of the first element on the device; 0 where there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// assert_eq!(view.ptr() % 4, 0);
    /// # }
    /// ```
    pub const fn ptr(&self) -> u64 {
        self.array.descriptor.ptr()
    }

    /// The number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// assert_eq!(view.len(), view.shape().iter().product::<i64>() as usize);
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        usize::try_from(self.array.descriptor.layout().size()).unwrap_or(0)
    }

    /// Whether there is no element.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// assert_eq!(view.is_empty(), view.len() == 0);
    /// # }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The extents.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// let [height, width] = *view.shape() else { return };
    /// # }
    /// ```
    pub fn shape(&self) -> &[i64] {
        self.array.shape()
    }

    /// The strides, in elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// assert_eq!(view.strides().len(), view.shape().len());
    /// # }
    /// ```
    pub fn strides(&self) -> &[i64] {
        self.array.strides()
    }
}

impl<'a, 'id, T> std::ops::Deref for ViewMut<'a, 'id, T> {
    type Target = View<'a, 'id, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> fmt::Debug for View<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({:?})", self.array)
    }
}

impl<T> fmt::Debug for ViewMut<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut({:?})", self.array)
    }
}
