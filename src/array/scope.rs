//! A scope of work on a stream. Before the scope's work on an array, the scope's stream waits for the array's producer
//! and for other open scopes on the same memory. When the scope ends, the producer's stream and the other open scopes
//! wait for the scope's stream. Two scopes that only read do not wait for each other.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Array;
use super::origin::{self, Origin, Use};
use super::retry;
use super::stream::{RustStream, WorkStream};
use super::users::UsedBytes;
use crate::descriptor::Descriptor;
use crate::error::{Error, Kind, Result};

/// Calls `work` with a [`Scope`], in which `work` queues GPU work on `stream`.
///
/// When `work` first [takes](Array::on) an array, `stream` waits for the array's producer: work queued on `stream` from
/// then on runs after what the producer had queued. When `work` returns, even by an error or a panic, the producer's
/// stream waits for `stream`. The host waits for GPU work only if no stream can wait instead.
///
/// Scopes may be nested, on the same stream or on different ones, and may run in several threads. A
/// [launch](Scope::launch) waits for earlier work of other open scopes on the same memory, unless both scopes only
/// read. When a scope ends, the other open scopes on its memory wait for it, with the same exception.
///
/// A view belongs to the scope in which it was taken. So these examples do not compile:
///
/// ```compile_fail
/// // A view that outlives its scope.
/// # use cai_bridge::{Array, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: &Array) -> Result<(), Error> {
///     let view = scope(stream, |s| x.on(s)?.view::<f32>())?;
///     drop(view);
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// // A view that outlives its array.
/// # use cai_bridge::{Array, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: Array) -> Result<(), Error> {
///     scope(stream, |s| {
///         let view = x.on(s)?.view::<f32>()?;
///         drop(x);
///         let _ = view.len();
///         Ok(())
///     })
/// }
/// ```
///
/// ```compile_fail,E0521
/// // A view used in another scope than its own.
/// # use cai_bridge::{Array, DeviceStream, Error, Grid, Kernel, scope};
/// fn wrong(a: &DeviceStream, b: &DeviceStream, k: &'static Kernel, x: &Array) -> Result<(), Error> {
///     scope(a, |a| {
///         let view = x.on(a)?.view::<f32>()?;
///         // SAFETY: this never runs.
///         scope(b, |b| unsafe { b.launch(k, Grid::cover(1, 1), (&view,)) })
///     })
/// }
/// ```
///
/// ```compile_fail,E0499
/// // Two writable views of one array.
/// # use cai_bridge::{ArrayMut, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: &mut ArrayMut) -> Result<(), Error> {
///     scope(stream, |s| {
///         let one = x.on_mut(s)?.view_mut::<f32>()?;
///         let other = x.on_mut(s)?.view_mut::<f32>()?;
///         drop((one, other));
///         Ok(())
///     })
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A scope that two threads use.
/// # use cai_bridge::{Array, DeviceStream, Error, scope};
/// fn wrong(stream: &DeviceStream, x: &Array) -> Result<(), Error> {
///     scope(stream, |s| {
///         std::thread::scope(|threads| {
///             threads.spawn(|| x.on(s).map(drop));
///         });
///         Ok(())
///     })
/// }
/// ```
///
/// This compiles:
///
/// ```
/// # use cai_bridge::{Array, DeviceStream, Error, Grid, Kernel, scope};
/// fn right(a: &DeviceStream, b: &DeviceStream, k: &'static Kernel, x: &Array) -> Result<(), Error> {
///     scope(a, |_| {
///         scope(b, |b| {
///             let view = x.on(b)?.view::<f32>()?;
///             // SAFETY: the kernel takes one address of a float.
///             unsafe { b.launch(k, Grid::cover(1, 1), (&view,)) }
///         })
///     })
/// }
/// ```
///
/// # Errors
///
/// The error of `work`. Or an error if the wait at the end fails or a graph capture prevents it. After such an error
/// the memory is kept alive, and later calls of `scope` and [`Array::to_dlpack`] try to make the wait again. If the
/// context is destroyed or broken, the memory is dropped instead.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Error, scope};
///
/// let cuda = SimulatedCuda::new(1);
/// let x = Array::from_host(&cuda.stream(0)?, &[1.0_f32, 2.0, 3.0], &[3])?;
/// let length = scope(&cuda.stream(0)?, |s| {
///     let view = x.on(s)?.view::<f32>()?; // the stream of `s` waits for the one that filled `x`
///     Ok::<_, Error>(view.len())
/// })?;
/// assert_eq!(length, 3);
/// # Ok::<(), Error>(())
/// ```
pub fn scope<S, R, E>(
    stream: &S,
    work: impl for<'id> FnOnce(&Scope<'id, S>) -> Result<R, E>,
) -> Result<R, E>
where
    S: WorkStream,
    E: From<Error>,
{
    retry::look();
    let used = ScopeMemory::new(RustStream::of(stream));
    let scope = Scope { stream, used, brand: PhantomData };
    let done = work(&scope)?;
    scope.used.end()?;
    Ok(done)
}

/// An open scope: its stream, and the arrays that work on the stream uses. [`scope`] passes it to its closure.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Array, DeviceStream, Error, Scope, WorkStream};
///
/// /// Steps of a longer computation are functions of the scope.
/// fn step<'id>(s: &Scope<'id, DeviceStream>, x: &Array) -> Result<u64, Error> {
///     let view = x.on(s)?.view::<f32>()?;
///     assert_eq!(s.stream().place().ordinal, x.device().id);
///     Ok(view.ptr())
/// }
/// ```
pub struct Scope<'id, S> {
    stream: &'id S,
    used: ScopeMemory,
    brand: Brand<'id>,
}

/// Invariant in `'id`, so that the compiler refuses a view of one scope in another scope.
pub(crate) type Brand<'id> = PhantomData<fn(&'id ()) -> &'id ()>;

impl<S: WorkStream> Scope<'_, S> {
    /// The stream of this scope.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Error, WorkStream, scope};
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// scope(&stream, |s| {
    ///     assert_eq!(s.stream().handle(), stream.handle());
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn stream(&self) -> &S {
        self.stream
    }

    pub(super) fn take(&self, array: &Array, writes: bool) -> Result<()> {
        let to = self.used.user.alive();
        if !self.stream.backend().is_of(array.origin.driver()) {
            let got = format!("{} of another driver than the array's", to.stream());
            return Err(Error::new(Kind::StreamDevice, got));
        }
        array.check_device(to)?;
        if array.descriptor.ptr() == 0 {
            return Ok(());
        }
        self.used.take(&array.origin, &array.descriptor, writes)
    }

    pub(super) fn in_turn<R>(&self, uses: &[Use], queue: impl FnOnce() -> Result<R>) -> Result<R> {
        origin::in_turn(uses, self.used.user(), queue)
    }

    #[cfg(feature = "cudarc")]
    pub(super) const fn user(&self) -> &Arc<RustStream> {
        self.used.user()
    }
}

impl<S: WorkStream> fmt::Debug for Scope<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.used.user)
    }
}

pub(super) struct ScopeMemory {
    user: Arc<RustStream>,
    origins: RefCell<Vec<Arc<dyn Origin>>>,
}

impl ScopeMemory {
    pub(super) fn new(user: RustStream) -> Self {
        Self { user: Arc::new(user), origins: RefCell::default() }
    }

    fn has(&self, origin: &Arc<dyn Origin>) -> bool {
        self.origins.borrow().iter().any(|known| Arc::ptr_eq(known, origin))
    }

    /// Makes the scope a user of the memory, and keeps the memory alive until the scope ends. After an error, the scope
    /// is a user only if it was a user before.
    pub(super) fn take(
        &self,
        origin: &Arc<dyn Origin>,
        array: &Descriptor,
        writes: bool,
    ) -> Result<()> {
        let known = self.has(origin);
        let taken = origin::enter(&**origin, &self.user, UsedBytes::of(array, writes));
        match (&taken, known) {
            (Ok(()), false) => self.origins.borrow_mut().push(Arc::clone(origin)),
            (Err(_), false) => origin.users().remove(&self.user),
            _ => {}
        }
        taken
    }

    /// Ends the scope's use of all memory that it has taken. Goes on after an error, and returns the first error.
    pub(super) fn end(&self) -> Result<()> {
        let mut done = Ok(());
        for origin in self.origins.take() {
            done = done.and(retry::settle(origin, &self.user));
        }
        done
    }

    /// The scope's stream. The address of this `RustStream` identifies the scope among the memory's users.
    pub(super) const fn user(&self) -> &Arc<RustStream> {
        &self.user
    }
}

impl Drop for ScopeMemory {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(
                target: "cai_bridge", door = "scope", %error, order = "failed",
                "the producer's stream cannot wait; the memory is kept"
            );
        }
    }
}
