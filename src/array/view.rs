//! Views: an array's elements with a checked type, as arguments of a kernel.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use super::Array;
use super::scope::Brand;
use crate::error::{Error, Kind, Result};

/// An array's elements of the checked type `T`, for work in the scope `'id` that reads them.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Error, View};
///
/// /// Whether a kernel that takes floats by fours can take the view.
/// fn by_fours(view: &View<'_, '_, f32>) -> bool {
///     view.ptr() % 16 == 0 && view.len() % 4 == 0
/// }
/// ```
pub struct View<'a, 'id, T> {
    pub(super) array: Cow<'a, Array>,
    pub(super) brand: Brand<'id>,
    pub(super) element: PhantomData<fn() -> T>,
}

/// An array's elements of the checked type `T`, for work in the scope `'id` that reads and writes them.
///
/// An [`Array`](crate::Array) has no such view, since it may be read-only. So this does not compile:
///
/// ```compile_fail,E0599
/// # use cai_bridge::{Array, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: &mut Array) -> Result<(), Error> {
///     scope(stream, |s| x.on_mut(s)?.view_mut::<f32>().map(drop))
/// }
/// ```
///
/// An [`ArrayMut`](crate::ArrayMut) has such a view: the code that made the `ArrayMut` has checked that the array is
/// not read-only.
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
    /// The address of the first element on the device; 0 if there are no elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(view: &cai_bridge::View<'_, '_, f32>) {
    /// assert_eq!(view.ptr() % 4, 0);
    /// # }
    /// ```
    pub const fn ptr(&self) -> u64 {
        match &self.array {
            Cow::Borrowed(array) => array.ptr(),
            Cow::Owned(array) => array.ptr(),
        }
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

    /// Whether there are no elements.
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

impl<'id, T> View<'_, 'id, T> {
    /// Splits the view in two along `axis`: the elements with an index below `at`, and the others.
    ///
    /// # Errors
    ///
    /// [`Reshape`](Kind::Reshape): no such axis, or `at` is negative or beyond the axis's extent.
    ///
    /// # Examples
    ///
    /// ```
    /// # use cai_bridge::{Error, View};
    /// # fn example(rows: &View<'_, '_, f32>) -> Result<(), Error> {
    /// let (first, others) = rows.split_at(0, 1)?;
    /// assert_eq!(first.len() + others.len(), rows.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn split_at(&self, axis: usize, at: i64) -> Result<(View<'_, 'id, T>, View<'_, 'id, T>)> {
        let (before, after) = self.array.split_at(axis, at)?;
        let part =
            |array| View { array: Cow::Owned(array), brand: PhantomData, element: PhantomData };
        Ok((part(before), part(after)))
    }
}

impl<'id, T> ViewMut<'_, 'id, T> {
    /// Splits the view as [`View::split_at`] does, into two writable parts. One kernel can take both.
    ///
    /// # Errors
    ///
    /// The errors of [`View::split_at`]. [`Reshape`](Kind::Reshape) also for strides that may reach one element twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Error, Grid, Kernel, scope};
    ///
    /// static COPY: Kernel = Kernel::new("copy", "").on_host(|call| {
    ///     let values = call.values::<f32>(0)?;
    ///     call.store(1, &values)
    /// });
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::from_host(&stream, &[1.0_f32, 2.0, 3.0, 4.0], &[4])?;
    /// scope(&stream, |s| {
    ///     let mut x = x.on_mut(s)?.view_mut::<f32>()?;
    ///     let (from, mut to) = x.split_at_mut(0, 2)?;
    ///     // SAFETY: the kernel copies the first two floats to the last two.
    ///     unsafe { s.launch(&COPY, Grid::cover(2, 2), (&*from, &mut to)) }
    /// })?;
    /// assert_eq!(x.to_vec::<f32>(&stream)?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn split_at_mut(
        &mut self,
        axis: usize,
        at: i64,
    ) -> Result<(ViewMut<'_, 'id, T>, ViewMut<'_, 'id, T>)> {
        let array = &self.0.array;
        if !array.descriptor.layout().is_without_overlap() {
            let got = format!("{:?} by {:?}, with elements twice", array.shape(), array.strides());
            return Err(Error::new(Kind::Reshape, got));
        }
        let (before, after) = self.0.split_at(axis, at)?;
        Ok((ViewMut(before), ViewMut(after)))
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
