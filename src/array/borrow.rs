//! A view as cudarc has it.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut, DevicePtrMut};

use super::element::Element;
use super::origin::Origin;
use super::scope::Scope;
use super::stream::{Backend, RustStream, WorkStream};
use super::view::{View, ViewMut};
use crate::error::{Error, Kind, Result};

/// What cudarc's [`CudaView`] of a [`View`] borrows from. Where cudarc uses it on another stream of the same context,
/// that stream waits for the scope's, and the scope's for it when this is dropped: by cudarc's events, if it tracks any.
///
/// As long as it lives, work of other scopes on the same memory is refused ([`Borrowed`](Kind::Borrowed)), unless both
/// only read: the crate does not see what cudarc queues.
///
/// # Examples
///
/// ```no_run
/// use cai_bridge::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
/// use cai_bridge::{Array, Error, scope};
/// # use cai_bridge::cudarc::driver::CudaStream;
///
/// fn run(stream: &std::sync::Arc<CudaStream>, f: &CudaFunction, x: &Array) -> Result<(), Error> {
///     scope(stream, |s| {
///         let x = x.on(s)?.view::<f32>()?;
///         let x = x.cuda(s)?;
///         // SAFETY: the function takes the address of floats that it reads.
///         unsafe { stream.launch_builder(f).arg(&x.view()).launch(LaunchConfig::for_num_elems(1)) }?;
///         Ok(())
///     })
/// }
/// ```
pub struct CudaBorrow<'v, T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    _borrowed: Option<BorrowGuard>,
    view: PhantomData<&'v T>,
}

/// Memory that a scope has borrowed, until dropped.
struct BorrowGuard {
    origin: Arc<dyn Origin>,
    scope: Arc<RustStream>,
    writes: bool,
}

impl BorrowGuard {
    /// `None` where there is no memory.
    fn begin<S: WorkStream>(
        view: &View<'_, '_, impl Sized>,
        s: &Scope<'_, S>,
        writes: bool,
    ) -> Result<Option<Self>> {
        if view.is_empty() {
            return Ok(None);
        }
        let origin = &view.array.origin;
        s.in_turn(&[(Arc::clone(origin), writes)], || {
            origin.users().borrow(s.user(), writes, true);
            let (origin, scope) = (Arc::clone(origin), Arc::clone(s.user()));
            Ok(Some(Self { origin, scope, writes }))
        })
    }
}

impl Drop for BorrowGuard {
    fn drop(&mut self) {
        self.origin.users().borrow(&self.scope, self.writes, false);
    }
}

/// The same of a [`ViewMut`].
///
/// # Examples
///
/// ```no_run
/// # use cai_bridge::{ArrayMut, Error, scope};
/// # use cai_bridge::cudarc::driver::CudaStream;
/// fn zero(stream: &std::sync::Arc<CudaStream>, x: &mut ArrayMut) -> Result<(), Error> {
///     scope(stream, |s| {
///         let mut x = x.on_mut(s)?.view_mut::<f32>()?;
///         stream.memset_zeros(&mut x.cuda_mut(s)?.view_mut())?;
///         Ok(())
///     })
/// }
/// ```
pub struct CudaBorrowMut<'v, T>(CudaBorrow<'v, T>);

fn borrow<'v, T, S: WorkStream>(
    view: &View<'_, '_, T>,
    s: &Scope<'_, S>,
    writes: bool,
) -> Result<CudaBorrow<'v, T>> {
    if !view.array.is_contiguous() {
        return Err(Error::new(Kind::NotContiguous, format!("{:?}", view.strides())));
    }
    let Backend::Cuda(stream) = s.stream().backend() else {
        return Err(Error::new(Kind::NoBackend, "a stream that is not cudarc's"));
    };
    let borrowed = BorrowGuard::begin(view, s, writes)?;
    // SAFETY: the view's address, length and type were checked, and its memory lives longer than the borrow,
    // which gives the slice up without freeing anything.
    let slice = unsafe { stream.upgrade_device_ptr::<T>(view.ptr(), view.len()) };
    // The slice is given up where this fails, too.
    let mut borrow =
        CudaBorrow { slice: ManuallyDrop::new(slice), _borrowed: borrowed, view: PhantomData };
    // Other streams that cudarc uses the view on wait for this one, as for the last writer of a slice.
    let (_, used) = borrow.slice.device_ptr_mut(stream);
    drop(used);
    stream.context().check_err()?;
    Ok(borrow)
}

impl<'id, T: Element> View<'_, 'id, T> {
    /// The view for cudarc's own calls, on the stream of the scope `s`.
    ///
    /// # Errors
    ///
    /// The stream is not cudarc's, or the view is not contiguous.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrow`].
    pub fn cuda<S: WorkStream>(&self, s: &Scope<'id, S>) -> Result<CudaBorrow<'_, T>> {
        borrow(self, s, false)
    }
}

impl<'id, T: Element> ViewMut<'_, 'id, T> {
    /// The view for cudarc's own calls, on the stream of the scope `s`.
    ///
    /// # Errors
    ///
    /// As for [`View::cuda`].
    ///
    /// # Examples
    ///
    /// See [`CudaBorrowMut`].
    pub fn cuda_mut<S: WorkStream>(&mut self, s: &Scope<'id, S>) -> Result<CudaBorrowMut<'_, T>> {
        borrow(self, s, true).map(CudaBorrowMut)
    }
}

impl<T> CudaBorrow<'_, T> {
    /// cudarc's view.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrow`].
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }
}

impl<T> CudaBorrowMut<'_, T> {
    /// cudarc's view.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrowMut`].
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.0.slice.as_view_mut()
    }
}

impl<T> Drop for CudaBorrow<'_, T> {
    /// The scope's stream waits for whatever other streams cudarc has used the memory on.
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        let _ = slice.leak();
    }
}

impl<T> fmt::Debug for CudaBorrow<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBorrow({} elements)", self.slice.len())
    }
}

impl<T> fmt::Debug for CudaBorrowMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBorrowMut({} elements)", self.0.slice.len())
    }
}
