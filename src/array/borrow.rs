//! Lends a view to cudarc, for direct calls of cudarc's functions.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};

use super::element::Element;
use super::events::CudarcEvents;
use super::origin::Origin;
use super::scope::Scope;
use super::stream::{Backend, RustStream, WorkStream};
use super::users::{Lent, UsedBytes};
use super::view::{View, ViewMut};
use crate::error::{Error, Kind, Result};

/// A [`View`] lent to cudarc. [`view`](Self::view) returns cudarc's own view of the same elements, a [`CudaView`].
///
/// cudarc may use the memory on another stream than the scope's. cudarc's events order this other stream if two
/// conditions hold:
///
/// - The other stream has the same `Arc<CudaContext>` as the scope's stream. Make it by
///   `stream.context().new_stream()`. A second `CudaContext::new` compares equal, but counts its own streams and tracks
///   its own events.
/// - [`is_managing_stream_synchronization`](cudarc::driver::CudaContext::is_managing_stream_synchronization) is true:
///   the context has a stream besides its default ones, and event tracking is not disabled.
///
/// Then the other stream waits for the scope's stream, and the scope's stream waits for the other one when this borrow
/// is dropped, or at the scope's end. If a condition does not hold, either wait may be missing, and the crate reports
/// no error, since it does not see the other stream. Then call `other.join(&stream)` before the work and
/// `stream.join(&other)` after it, also after an error. If several other streams read, join each of them yourself:
/// cudarc's event stands for one reader only.
///
/// The crate does not see what cudarc queues. So while the borrow exists, the crate refuses other work on overlapping
/// memory ([`Borrowed`](Kind::Borrowed)), in this scope too, unless the borrower and the work only read. If the borrow
/// is forgotten, the crate refuses such work until the scope ends. The borrow cannot leave its scope, so this does not
/// compile:
///
/// ```compile_fail,E0521
/// # use cai_bridge::{Array, CudaBorrow, Error, scope};
/// # use cai_bridge::cudarc::driver::CudaStream;
/// # type Stream = std::sync::Arc<CudaStream>;
/// fn wrong<'x>(stream: &Stream, x: &'x Array, kept: &mut Vec<CudaBorrow<'x, f32>>) -> Result<(), Error> {
///     scope(stream, |s| {
///         let view = Box::leak(Box::new(x.on(s)?.view::<f32>()?));
///         kept.push(view.cuda(s)?);
///         Ok(())
///     })
/// }
/// ```
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
///
/// /// Copies on a second stream: cudarc orders it, or else the joins do.
/// fn copied(stream: &std::sync::Arc<CudaStream>, x: &Array) -> Result<Vec<f32>, Error> {
///     let other = stream.context().new_stream()?;
///     let is_ordered = stream.context().is_managing_stream_synchronization();
///     scope(stream, |s| {
///         let x = x.on(s)?.view::<f32>()?;
///         let x = x.cuda(s)?;
///         if !is_ordered {
///             other.join(stream)?;
///         }
///         let copied = other.clone_dtoh(&x.view());
///         if !is_ordered {
///             stream.join(&other)?;
///         }
///         Ok(copied?)
///     })
/// }
/// ```
pub struct CudaBorrow<'v, T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    lease: Option<ScopeBorrow>,
    view: PhantomData<&'v T>,
}

struct ScopeBorrow {
    origin: Arc<dyn Origin>,
    scope: Arc<RustStream>,
    lent: Arc<dyn Lent>,
}

struct LentToCuda {
    work: UsedBytes,
    stream: Arc<CudaStream>,
    events: CudarcEvents,
}

impl Lent for LentToCuda {
    fn work(&self) -> UsedBytes {
        self.work
    }

    fn take_back(&self) -> Result<()> {
        // SAFETY: the events are alive: `CudaBorrow` gives up the slice that has them only after this call has
        // succeeded.
        unsafe { self.events.wait(&self.stream) }
    }
}

/// A [`ViewMut`] lent to cudarc for writing. The rules of [`CudaBorrow`] apply.
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
    if view.is_empty() {
        return Ok(CudaBorrow { slice: slice_of(view, stream)?, lease: None, view: PhantomData });
    }
    let used = view.array.used(writes);
    let (work, origin, scope) = (used.work, Arc::clone(&used.origin), Arc::clone(s.user()));
    s.in_turn(&[used], || {
        let mut slice = slice_of(view, stream)?;
        let (events, _) = CudarcEvents::of(&mut *slice, stream);
        // If the slice has a write event, record it: cudarc makes other streams wait by this event.
        // SAFETY: the events belong to the slice, which exists until the borrow ends.
        unsafe { events.record(stream) }?;
        let lent: Arc<dyn Lent> = Arc::new(LentToCuda { work, stream: Arc::clone(stream), events });
        origin.users().lend(&scope, Arc::clone(&lent));
        let lease =
            Some(ScopeBorrow { origin: Arc::clone(&origin), scope: Arc::clone(&scope), lent });
        Ok(CudaBorrow { slice, lease, view: PhantomData })
    })
}

fn slice_of<T>(
    view: &View<'_, '_, T>,
    stream: &Arc<CudaStream>,
) -> Result<ManuallyDrop<CudaSlice<T>>> {
    // With event tracking, `upgrade_device_ptr` of cudarc 0.19 makes events, and panics if the driver refuses. So first
    // make an event by a call that returns the error.
    if stream.context().is_event_tracking() {
        drop(stream.context().new_event(None)?);
    }
    // SAFETY: the view's address, length and type are checked. The view outlives the borrow, which never frees the
    // memory.
    Ok(ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<T>(view.ptr(), view.len()) }))
}

impl<'id, T: Element> View<'_, 'id, T> {
    /// Lends the view to cudarc, on the stream of the scope `s`.
    ///
    /// # Errors
    ///
    /// [`NoBackend`](Kind::NoBackend): the scope's stream is not cudarc's. [`NotContiguous`](Kind::NotContiguous): the
    /// view is not C-contiguous. [`Borrowed`](Kind::Borrowed): another borrow overlaps the view, and one of the two
    /// writes. Other errors if the driver fails or a graph capture prevents a wait.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrow`].
    pub fn cuda<S: WorkStream>(&self, s: &Scope<'id, S>) -> Result<CudaBorrow<'_, T>> {
        borrow(self, s, false)
    }
}

impl<'id, T: Element> ViewMut<'_, 'id, T> {
    /// Lends the view to cudarc for writing, on the stream of the scope `s`.
    ///
    /// # Errors
    ///
    /// The errors of [`View::cuda`].
    ///
    /// # Examples
    ///
    /// See [`CudaBorrowMut`].
    pub fn cuda_mut<S: WorkStream>(&mut self, s: &Scope<'id, S>) -> Result<CudaBorrowMut<'_, T>> {
        borrow(self, s, true).map(CudaBorrowMut)
    }
}

impl<T> CudaBorrow<'_, T> {
    /// cudarc's view of the lent elements, for reading.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrow`].
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }
}

impl<T> CudaBorrowMut<'_, T> {
    /// cudarc's view of the lent elements, for reading and writing.
    ///
    /// # Examples
    ///
    /// See [`CudaBorrowMut`].
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.0.slice.as_view_mut()
    }
}

impl<T> Drop for CudaBorrow<'_, T> {
    fn drop(&mut self) {
        if let Some(ScopeBorrow { origin, scope, lent }) = self.lease.take() {
            let taken = origin.users().take_back(&scope, |one| Arc::ptr_eq(one, &lent));
            if taken.is_err() {
                return; // the scope's end tries again, and needs the slice's events
            }
        }
        // SAFETY: only this `drop` takes the slice out, and it runs once.
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
