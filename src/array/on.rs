//! An array in a scope, before its element type and layout are checked.

use std::borrow::Cow;
use std::marker::PhantomData;

use super::element::{Element, dtype_of};
use super::scope::{Brand, Scope};
use super::stream::WorkStream;
use super::view::{View, ViewMut};
use super::{Array, ArrayMut};
use crate::error::{Error, Kind, Result};

/// An array that work in a [`scope`](crate::scope) may read. Its element type and layout are not checked yet.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Error, ErrorKind, scope};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x = Array::from_host(&stream, &[1.0_f32; 4], &[4])?;
/// scope(&stream, |s| {
///     assert_eq!(x.on(s)?.view::<f32>()?.len(), 4);
///     let refused = x.on(s)?.view::<f64>().unwrap_err();
///     assert_eq!(refused.kind(), ErrorKind::ElementType);
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct On<'a, 'id> {
    array: &'a Array,
    brand: Brand<'id>,
}

/// An array that work in a [`scope`](crate::scope) may read and write. Its element type and layout are not checked yet.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Error, scope};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let mut x = Array::empty::<f32>(&stream, &[4])?;
/// scope(&stream, |s| {
///     assert_eq!(x.on_mut(s)?.view_mut::<f32>()?.len(), 4);
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct OnMut<'a, 'id> {
    array: &'a mut ArrayMut,
    brand: Brand<'id>,
}

impl Array {
    /// Takes the array in the scope `s`, for work that reads it. Work that the scope queues from now on runs after what
    /// the array's producer had queued when the scope first took this memory, through this or another array. It also
    /// runs after what other open scopes that write to this memory have queued.
    ///
    /// # Errors
    ///
    /// [`StreamDevice`](Kind::StreamDevice): the stream belongs to another driver, or the array is in device memory of
    /// another GPU. [`Borrowed`](Kind::Borrowed): a scope has lent memory to cudarc for writing, and the array overlaps
    /// that memory. Other errors if the driver fails or a graph capture prevents a wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Error, ErrorKind, scope};
    ///
    /// let cuda = SimulatedCuda::new(2);
    /// let x = Array::from_host(&cuda.stream(0)?, &[1.0_f32], &[1])?;
    /// let refused = scope(&cuda.stream(1)?, |s| x.on(s).map(drop)).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::StreamDevice);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on<'a, 'id, S: WorkStream>(&'a self, s: &Scope<'id, S>) -> Result<On<'a, 'id>> {
        s.take(self, false)?;
        Ok(On { array: self, brand: PhantomData })
    }
}

impl ArrayMut {
    /// Takes the array in the scope `s`, for work that reads and writes it. Work that the scope queues from now on runs
    /// after the work that the array's producer had queued when the scope first took this memory for writing. It also
    /// runs after what all other open scopes on this memory have queued.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::on`]. [`Borrowed`](Kind::Borrowed) also if the overlapping memory is lent for reading.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Error, scope};
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::empty::<u8>(&stream, &[4])?;
    /// scope(&stream, |s| x.on_mut(s).map(drop))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on_mut<'a, 'id, S: WorkStream>(
        &'a mut self,
        s: &Scope<'id, S>,
    ) -> Result<OnMut<'a, 'id>> {
        s.take(self, true)?;
        Ok(OnMut { array: self, brand: PhantomData })
    }
}

impl<'a, 'id> On<'a, 'id> {
    /// Checks that the elements have type `T` and are C-contiguous, and returns a view of them.
    ///
    /// # Errors
    ///
    /// [`ElementType`](Kind::ElementType): the elements are not of type `T`. [`NotContiguous`](Kind::NotContiguous):
    /// the array is not C-contiguous.
    ///
    /// # Examples
    ///
    /// ```
    /// # use cai_bridge::testing::SimulatedCuda;
    /// # use cai_bridge::{Array, Error, ErrorKind, scope};
    /// # let stream = SimulatedCuda::new(1).stream(0)?;
    /// let columns = Array::from_host(&stream, &[1_i32, 2, 3, 4], &[2, 2])?.strided(0, &[2, 2], &[1, 2])?;
    /// let refused = scope(&stream, |s| columns.on(s)?.view::<i32>().map(drop)).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::NotContiguous);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn view<T: Element>(self) -> Result<View<'a, 'id, T>> {
        contiguous(self.array)?;
        self.strided()
    }

    /// Checks that the elements have type `T`, and returns a view of them. The strides may be any.
    ///
    /// # Errors
    ///
    /// [`ElementType`](Kind::ElementType): the elements are not of type `T`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use cai_bridge::testing::SimulatedCuda;
    /// # use cai_bridge::{Array, Error, scope};
    /// # let stream = SimulatedCuda::new(1).stream(0)?;
    /// let columns = Array::from_host(&stream, &[1_i32, 2, 3, 4], &[2, 2])?.strided(0, &[2, 2], &[1, 2])?;
    /// scope(&stream, |s| {
    ///     let view = columns.on(s)?.strided::<i32>()?;
    ///     assert_eq!(view.strides(), [1, 2]);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn strided<T: Element>(self) -> Result<View<'a, 'id, T>> {
        element::<T>(self.array)?;
        let array = Cow::Borrowed(self.array);
        Ok(View { array, brand: self.brand, element: PhantomData })
    }
}

impl<'a, 'id> OnMut<'a, 'id> {
    /// Checks that the elements have type `T` and are C-contiguous, and returns a view for reading and writing them.
    ///
    /// # Errors
    ///
    /// The errors of [`On::view`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use cai_bridge::testing::SimulatedCuda;
    /// # use cai_bridge::{Array, Error, scope};
    /// # let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::empty::<f64>(&stream, &[2, 3])?;
    /// let shape = scope(&stream, |s| x.on_mut(s)?.view_mut::<f64>().map(|x| x.shape().to_vec()))?;
    /// assert_eq!(shape, [2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn view_mut<T: Element>(self) -> Result<ViewMut<'a, 'id, T>> {
        contiguous(self.array)?;
        self.strided_mut()
    }

    /// Checks that the elements have type `T`, and returns a view for reading and writing them. The strides may be any.
    ///
    /// # Errors
    ///
    /// The errors of [`On::strided`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use cai_bridge::testing::SimulatedCuda;
    /// # use cai_bridge::{Array, Error, scope};
    /// # let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::empty::<f64>(&stream, &[4])?.strided(0, &[2], &[2])?;
    /// scope(&stream, |s| x.on_mut(s)?.strided_mut::<f64>().map(drop))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn strided_mut<T: Element>(self) -> Result<ViewMut<'a, 'id, T>> {
        element::<T>(self.array)?;
        let array: &'a ArrayMut = self.array;
        let array = Cow::Borrowed(&**array);
        Ok(ViewMut(View { array, brand: self.brand, element: PhantomData }))
    }
}

fn element<T: Element>(array: &Array) -> Result<()> {
    let (wanted, found) = (dtype_of::<T>()?, array.dtype());
    if wanted == found {
        return Ok(());
    }
    Err(Error::new(Kind::ElementType, format!("{found:?} for a function that takes {wanted:?}")))
}

fn contiguous(array: &Array) -> Result<()> {
    if array.is_contiguous() {
        return Ok(());
    }
    let got = format!("{:?} (in elements) for shape {:?}", array.strides(), array.shape());
    Err(Error::new(Kind::NotContiguous, got))
}
