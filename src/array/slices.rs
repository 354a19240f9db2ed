//! Makes arrays from cudarc's slices, from its pinned and managed memory, and from other types with its `DevicePtr`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice, UnifiedSlice, ValidAsZeroBits,
};

use super::element::{Element, dtype_of};
use super::events::{self, CudarcEvents};
use super::owner::Owner;
use super::stream::WorkStream;
use super::unlocked::{answered, unlocked};
use super::{Array, ArrayMut};
use crate::device::{Device, MemoryKind};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

struct Foreign<M> {
    _memory: M,
    stream: Arc<CudaStream>,
    ptr: u64,
    dtype: Dtype,
    shape: [i64; 1],
    device: Device,
}

// SAFETY: each constructor below takes the address, length and type from cudarc's memory, which lives as long as this
// value. The call that returns the address also makes the stream, or the host, wait until the memory is ready. The
// array owns the memory, so no other code uses it; only `from_device_ptr` shares memory, and its array is read-only.
unsafe impl<M: Send + 'static> Owner for Foreign<M> {
    type Stream = Arc<CudaStream>;

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.ptr
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[i64] {
        &self.shape
    }

    fn device(&self) -> Device {
        self.device
    }
}

fn foreign<T: Element>(
    memory: impl Send + 'static,
    stream: Arc<CudaStream>,
    (ptr, length): (u64, usize),
    kind: MemoryKind,
) -> Result<ArrayMut> {
    let length =
        i64::try_from(length).map_err(|_| Error::new(Kind::ShapeOverflow, length.to_string()))?;
    // `dlpack.h`: `device_id` is 0 for pinned and managed memory.
    let id = if kind == MemoryKind::Device { stream.place().ordinal } else { 0 };
    let device = Device { kind, id };
    let (dtype, shape) = (dtype_of::<T>()?, [length]);
    Array::from_owner(Foreign { _memory: memory, stream, ptr, dtype, shape, device })?.writable()
}

/// Waits by [`CudarcEvents::wait`] for cudarc's reads and writes of `memory`, and returns the address of `memory`. On
/// an error the caller must not drop `memory`: cudarc's work on `memory` may be pending.
fn ready<T>(
    memory: &mut (impl DevicePtr<T> + DevicePtrMut<T> + Send),
    stream: &Arc<CudaStream>,
) -> Result<u64> {
    let (events, ptr) = CudarcEvents::of(memory, stream);
    // SAFETY: `memory`, the caller's reference, keeps the memory alive.
    unsafe { events.wait(stream) }?;
    Ok(ptr)
}

impl Array {
    /// Makes an array of a cudarc slice, with one dimension. The array is ready on the slice's stream. After the
    /// array's last use the slice is dropped, and cudarc frees the memory after the work on that stream.
    ///
    /// # Errors
    ///
    /// A length that does not fit in a shape, or a failed wait for the slice's earlier users.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::{Array, ArrayMut};
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = CudaContext::new(0)?.new_stream()?;
    /// let image: ArrayMut = Array::from_slice(stream.alloc_zeros::<f32>(12)?)?.reshape(&[3, 4])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_slice<T: Element>(slice: CudaSlice<T>) -> Result<ArrayMut> {
        let (stream, mut slice) = (Arc::clone(slice.stream()), ManuallyDrop::new(slice));
        let at = (ready(&mut *slice, &stream)?, slice.len());
        foreign::<T>(ManuallyDrop::into_inner(slice), stream, at, MemoryKind::Device)
    }

    /// Makes a read-only array, with one dimension, of a slice that other code shares. The array is ready on the
    /// slice's stream. If the slice has events, cudarc's writes after the array's last use wait for the array's reads.
    /// Then code that has the only reference to the slice may write on any stream of the slice's context.
    ///
    /// # Errors
    ///
    /// A length that does not fit in a shape, or a failed wait for the last write to the slice.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use cai_bridge::Array;
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let weights = Arc::new(CudaContext::new(0)?.new_stream()?.alloc_zeros::<f32>(12)?);
    /// let shared: Array = Array::from_shared(Arc::clone(&weights))?.reshape(&[3, 4])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_shared<T: Element>(slice: Arc<CudaSlice<T>>) -> Result<Self> {
        // SAFETY: a `CudaSlice` keeps its memory at one address, on its stream's GPU, until it is dropped. cudarc's
        // safe functions write to it only by a mutable reference.
        unsafe { Self::from_device_ptr(slice) }
    }

    /// Makes a read-only array, with one dimension, of shared memory of any type that implements cudarc's `DevicePtr`,
    /// such as a model's storage. Order is as in [`Array::from_shared`].
    ///
    /// # Safety
    ///
    /// While `memory` exists, the elements are at the address that [`DevicePtr`] returns, in device memory of the
    /// stream's GPU. Code that has a shared reference to `memory` only reads the elements.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::from_shared`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use cai_bridge::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceSlice, SyncOnDrop};
    /// use cai_bridge::{Array, Error};
    ///
    /// /// A layer's weights, in the crate that has them.
    /// struct Weights(CudaSlice<f32>);
    ///
    /// impl DeviceSlice<f32> for Weights {
    ///     fn len(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///
    ///     fn stream(&self) -> &Arc<CudaStream> {
    ///         self.0.stream()
    ///     }
    /// }
    ///
    /// impl DevicePtr<f32> for Weights {
    ///     fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
    ///         self.0.device_ptr(stream)
    ///     }
    /// }
    ///
    /// fn shared(weights: &Arc<Weights>) -> Result<Array, Error> {
    ///     // SAFETY: the address is the slice's own, and nobody writes to the slice.
    ///     unsafe { Array::from_device_ptr(Arc::clone(weights)) }
    /// }
    /// ```
    pub unsafe fn from_device_ptr<T, M>(memory: Arc<M>) -> Result<Self>
    where
        T: Element,
        M: DevicePtr<T> + Send + Sync + 'static,
    {
        let (stream, length) = (Arc::clone(memory.stream()), memory.len());
        let ptr = events::read(&*memory, &stream)?;
        let shared = Shared { memory, stream: Arc::clone(&stream), element: PhantomData };
        let made = foreign::<T>(shared, stream, (ptr, length), MemoryKind::Device)?;
        Ok(made.into_readonly())
    }

    /// Makes an array of pinned host memory, with one dimension, for work on `stream`. Every GPU can access the memory.
    /// The host waits for cudarc's earlier work on the memory, and, before it frees the memory, for `stream`.
    ///
    /// # Errors
    ///
    /// A length that does not fit in a shape, or a failed wait for the memory's earlier users.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::Array;
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = CudaContext::new(0)?;
    /// // SAFETY: the memory is written before it is read.
    /// let pinned = unsafe { context.alloc_pinned::<f32>(16) }?;
    /// let x = Array::from_pinned(pinned, &context.default_stream())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_pinned<T: Element + ValidAsZeroBits>(
        slice: PinnedHostSlice<T>,
        stream: &Arc<CudaStream>,
    ) -> Result<ArrayMut> {
        // `as_ptr` makes the host wait for cudarc's work on the memory.
        let ptr = answered(|| slice.as_ptr().map(|ptr| ptr.expose_provenance() as u64))?;
        let at = (ptr, slice.len());
        foreign::<T>(
            WaitOnDrop(ManuallyDrop::new(slice), Arc::clone(stream)),
            Arc::clone(stream),
            at,
            MemoryKind::Host,
        )
    }

    /// Makes an array of managed memory, with one dimension, for work on `stream`. Globally attached memory may be used
    /// on every GPU. Use memory attached to one stream only on that stream, and memory attached to the host only on
    /// GPUs with concurrent access to managed memory. The crate checks `stream`, but no stream that uses the array
    /// later. Before the host frees the memory, it waits for `stream`.
    ///
    /// # Errors
    ///
    /// A length that does not fit in a shape, or a failed wait for the memory's earlier users. Memory attached to
    /// another stream, or to the host on a GPU without concurrent access to managed memory.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::Array;
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = CudaContext::new(0)?;
    /// // SAFETY: the memory is written before it is read.
    /// let managed = unsafe { context.alloc_unified::<f32>(16, true) }?;
    /// let x = Array::from_managed(managed, &context.default_stream())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_managed<T: Element>(
        slice: UnifiedSlice<T>,
        stream: &Arc<CudaStream>,
    ) -> Result<ArrayMut> {
        slice.check_device_access(stream)?;
        let mut slice = ManuallyDrop::new(slice);
        let at = (ready(&mut *slice, stream)?, slice.len());
        let waited = WaitOnDrop(slice, Arc::clone(stream));
        foreign::<T>(waited, Arc::clone(stream), at, MemoryKind::Managed)
    }
}

struct Shared<T, M: DevicePtr<T> + Send + Sync + 'static> {
    memory: Arc<M>,
    stream: Arc<CudaStream>,
    element: PhantomData<fn() -> T>,
}

impl<T, M: DevicePtr<T> + Send + Sync + 'static> Drop for Shared<T, M> {
    /// If `memory` has a read event, makes cudarc's later writes wait for `stream` by that event. If that fails,
    /// `memory` is never freed.
    fn drop(&mut self) {
        if let Err(error) = events::end_read(&*self.memory, &self.stream) {
            tracing::warn!(
                target: "cai_bridge", door = "memory", %error, order = "failed",
                "a slice's next writer cannot wait for what read it; the slice is kept"
            );
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// Memory that the host frees, so the host first waits for the stream. If the wait fails, the memory is never freed.
struct WaitOnDrop<M: Send>(ManuallyDrop<M>, Arc<CudaStream>);

impl<M: Send> Drop for WaitOnDrop<M> {
    fn drop(&mut self) {
        let (memory, stream) = (&mut self.0, &self.1);
        unlocked(&mut || {
            if stream.synchronize().is_ok() {
                // SAFETY: only this line drops the value, once. If the wait failed, the memory is leaked instead.
                unsafe { ManuallyDrop::drop(memory) };
            }
        });
    }
}
