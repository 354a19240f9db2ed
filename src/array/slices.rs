//! cudarc's memory as arrays.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice, UnifiedSlice, ValidAsZeroBits,
};

use super::element::{Element, dtype_of};
use super::events::{self, Events};
use super::owner::Owner;
use super::stream::WorkStream;
use super::{Array, ArrayMut};
use crate::device::{Device, MemoryKind};
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// Memory of cudarc's, whatever kind it is.
struct Foreign<M> {
    /// Freed where it is dropped.
    _memory: M,
    stream: Arc<CudaStream>,
    ptr: u64,
    dtype: Dtype,
    shape: [i64; 1],
    device: Device,
}

// SAFETY: each constructor below takes address, length and type from cudarc's memory, which lives as long as this, and
// reads the address by a call that makes the stream wait.
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
    // DLPack's header asks for 0 where every GPU reaches the memory.
    let id = if kind == MemoryKind::Device { stream.place().ordinal } else { 0 };
    let device = Device { kind, id };
    let (dtype, shape) = (dtype_of::<T>()?, [length]);
    Array::from_owner(Foreign { _memory: memory, stream, ptr, dtype, shape, device })?.writable()
}

/// The address of `memory`, once `stream` waits for the other streams that cudarc used it on, readers too: it is written
/// next. Where that fails the caller has to forget it.
fn ready<T>(
    memory: &mut (impl DevicePtr<T> + DevicePtrMut<T>),
    stream: &Arc<CudaStream>,
) -> Result<u64> {
    let (events, ptr) = Events::of(memory, stream);
    // SAFETY: the memory is borrowed.
    unsafe { events.wait(stream) }?;
    Ok(ptr)
}

impl Array {
    /// An array of a slice of cudarc's, which is ready on the slice's stream, and freed there once nothing uses it
    /// any more. A part of it is an array's [`strided`](Array::strided).
    ///
    /// # Errors
    ///
    /// A length that no shape has.
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

    /// A read-only array of a slice that others have as well, ready on the slice's stream. When nothing uses the array any
    /// more, cudarc is told of the reads: whoever has the slice to itself then may write it on any stream.
    ///
    /// # Errors
    ///
    /// A length that no shape has; or the wait for the slice's last writer failed.
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
        // SAFETY: cudarc's own slice.
        unsafe { Self::from_device_ptr(slice) }
    }

    /// A read-only array of memory that others have as well, of any type that has cudarc's `DevicePtr`, such as a model's
    /// storage.
    ///
    /// # Safety
    ///
    /// `memory` has the elements at the address that its [`DevicePtr`] gives, in device memory of its stream's GPU, as
    /// long as it lives. Whoever has it by a shared reference alone only reads them.
    ///
    /// # Errors
    ///
    /// Those of [`Array::from_shared`].
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
    ///     // SAFETY: the slice's own address, and it is written by nobody.
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

    /// An array of pinned host memory, which every GPU reaches, for work on `stream`.
    ///
    /// # Errors
    ///
    /// A length that no shape has.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::Array;
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = CudaContext::new(0)?;
    /// // SAFETY: written before it is read.
    /// let pinned = unsafe { context.alloc_pinned::<f32>(16) }?;
    /// let x = Array::from_pinned(pinned, &context.default_stream())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_pinned<T: Element + ValidAsZeroBits>(
        slice: PinnedHostSlice<T>,
        stream: &Arc<CudaStream>,
    ) -> Result<ArrayMut> {
        let at = (slice.as_ptr()?.expose_provenance() as u64, slice.len());
        // Freed by the host, which must not be before the work of `stream`.
        foreign::<T>(
            WaitOnDrop(ManuallyDrop::new(slice), Arc::clone(stream)),
            Arc::clone(stream),
            at,
            MemoryKind::Host,
        )
    }

    /// An array of managed memory, which every GPU reaches, for work on `stream`.
    ///
    /// # Errors
    ///
    /// A length that no shape has; memory that is attached to the host or to another stream.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cai_bridge::Array;
    /// use cai_bridge::cudarc::driver::CudaContext;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = CudaContext::new(0)?;
    /// // SAFETY: written before it is read.
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

/// Memory that others have as well.
struct Shared<T, M: DevicePtr<T> + Send + Sync + 'static> {
    memory: Arc<M>,
    stream: Arc<CudaStream>,
    element: PhantomData<fn() -> T>,
}

impl<T, M: DevicePtr<T> + Send + Sync + 'static> Drop for Shared<T, M> {
    /// Has cudarc's next write run after what reads the memory on the stream.
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

/// Memory that the host frees: it waits for its stream first.
struct WaitOnDrop<M>(ManuallyDrop<M>, Arc<CudaStream>);

impl<M> Drop for WaitOnDrop<M> {
    fn drop(&mut self) {
        if self.1.synchronize().is_ok() {
            // SAFETY: once, here. Where the wait failed the memory is left.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
