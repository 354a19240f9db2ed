//! Arrays in memory that the crate allocates, and their values on the host.
#![allow(unsafe_code)]

use std::sync::Arc;

#[cfg(feature = "cudarc")]
use super::cuda::fill;
use super::element::{Element, addresses, bytes, dtype_of, values};
use super::owner::Owner;
use super::scope::scope;
use super::stream::{Backend, RustStream, WorkStream};
use super::unlocked::unlocked;
use super::{Array, ArrayMut};
use crate::buffer::{self, Buffer};
use crate::driver::Handle;
use crate::driver::simulated::Span;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};
use crate::layout::Layout;
use crate::stream::Alive;

struct StreamOrderedMemory<S> {
    driver: Handle,
    stream: S,
    /// The stream that [`Buffer::free`] gets. A per-thread default stream is the stream of the thread that allocated.
    producer: RustStream,
    buffer: Buffer,
    dtype: Dtype,
    shape: Vec<i64>,
}

// SAFETY: the driver allocated memory for `shape` elements of `dtype`, ready for work on the stream, and frees it only
// when this value is dropped. Besides the array's users only `from_host` uses the memory, on the same stream.
unsafe impl<S: WorkStream> Owner for StreamOrderedMemory<S> {
    type Stream = S;

    fn stream(&self) -> &S {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.buffer.ptr()
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[i64] {
        &self.shape
    }
}

impl<S> Drop for StreamOrderedMemory<S> {
    fn drop(&mut self) {
        if let Err(error) = self.buffer.free(&self.driver, self.producer.alive()) {
            tracing::warn!(target: "cai_bridge", door = "memory", %error, "memory was not freed");
        }
    }
}

impl Array {
    /// Makes a C-contiguous array of `shape` in new memory, for work on `stream`. The values are not initialised. On a
    /// device with memory pools the driver allocates and frees the memory in the order of `stream`. On other devices
    /// the host waits for the device when the memory is freed.
    ///
    /// # Errors
    ///
    /// An invalid shape, an unknown element type, too little memory, no driver, or an error of the driver.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let x = Array::empty::<f32>(&stream, &[2, 3])?;
    /// assert_eq!(x.shape(), [2, 3]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn empty<T: Element>(stream: &impl WorkStream, shape: &[i64]) -> Result<ArrayMut> {
        let (dtype, driver) = (dtype_of::<T>()?, stream.driver()?);
        let (layout, _) = Layout::from_elements(shape, None, dtype.element_size())?;
        let size = (layout.size() * dtype.element_size()).unsigned_abs();
        let (mut taken, producer) = (Ok(Buffer::NONE), RustStream::of(stream));
        if size > 0 {
            let calls = driver.get()?;
            unlocked(&mut || taken = Buffer::uninitialised(calls, size, producer.alive()));
        }
        let (buffer, stream, shape) = (taken?, stream.clone(), shape.to_vec());
        Self::from_owner(StreamOrderedMemory { driver, stream, producer, buffer, dtype, shape })?
            .writable()
    }

    /// Makes a C-contiguous array of `shape` for work on `stream`, with a copy of `values` in C order.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::empty`]. [`Reshape`](Kind::Reshape): `shape` has another number of elements than
    /// `values`. [`NoBackend`](Kind::NoBackend): the stream belongs to another runtime. Other errors if the copy fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let x = Array::from_host(&stream, &[1_i64, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(x.to_vec::<i64>(&stream)?, [1, 2, 3, 4]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn from_host<T: Element>(
        stream: &impl WorkStream,
        values: &[T],
        shape: &[i64],
    ) -> Result<ArrayMut> {
        let made = Self::empty::<T>(stream, shape)?;
        if usize::try_from(made.descriptor.layout().size()) != Ok(values.len()) {
            return Err(Error::new(
                Kind::Reshape,
                format!("{} values for {shape:?}", values.len()),
            ));
        }
        let ptr = made.descriptor.ptr();
        if ptr == 0 {
            return Ok(made);
        }
        match stream.backend() {
            #[cfg(feature = "cudarc")]
            Backend::Cuda(stream) => fill(stream, ptr, bytes(values))?,
            Backend::Simulated(stream) => {
                let values = bytes(values).to_vec();
                let span = Span { ptr, len: u64::try_from(values.len()).unwrap_or(0) };
                let task = Arc::new(move |machine: &dyn crate::driver::simulated::Machine| {
                    let _ = machine.store(ptr, &values);
                });
                stream.machine()?.queue(stream.handle(), "from_host", &[], &[span], task)?;
            }
            Backend::Other => {
                return Err(Error::new(Kind::NoBackend, "a stream of another runtime"));
            }
        }
        Ok(made)
    }

    /// Copies the values to the host in C order, in a [`scope`] on `stream`. The host waits until the copy is done.
    ///
    /// # Errors
    ///
    /// [`ElementType`](Kind::ElementType): the elements are not of type `T`. [`HostMemory`](Kind::HostMemory): the host
    /// lacks memory for the values. The errors of [`Array::on`].
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let rows = Array::from_host(&stream, &[1_u8, 2, 3, 4], &[2, 2])?;
    /// let columns = rows.strided(0, &[2, 2], &[1, 2])?;
    /// assert_eq!(columns.to_vec::<u8>(&stream)?, [1, 3, 2, 4]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self, stream: &impl WorkStream) -> Result<Vec<T>> {
        scope(stream, |s| {
            self.on(s)?.strided::<T>()?;
            if self.descriptor.ptr() == 0 {
                return Ok(Vec::new());
            }
            let (driver, kept) = (self.origin.driver(), RustStream::of(stream));
            s.in_turn(&[self.used(false)], || match driver {
                Handle::Borrowed(_) => self.gathered(driver, kept.alive()),
                _ => self.copied(driver, kept.alive()),
            })
        })
    }

    fn copied<T: Element>(&self, driver: &Handle, on: Alive<'_>) -> Result<Vec<T>> {
        let mut copied = Ok(None);
        unlocked(&mut || copied = buffer::on_host(driver, &self.descriptor, on));
        let length = self.descriptor.layout().size() * self.dtype().element_size();
        let length = usize::try_from(length).unwrap_or(0);
        let read = copied?.and_then(|memory| memory.read(0, length));
        Ok(read.map(|read| values(&read)).unwrap_or_default())
    }

    /// A borrowed simulated device cannot copy, so the host waits for the work on `on` and then reads each value.
    fn gathered<T: Element>(&self, driver: &Handle, on: Alive<'_>) -> Result<Vec<T>> {
        let (calls, mut waited) = (driver.get()?, Ok(()));
        unlocked(&mut || waited = calls.wait_stream(on));
        waited?;
        let Some(machine) = driver.machine() else { return Ok(Vec::new()) };
        let mut element = vec![0; size_of::<T>()];
        let mut gathered = Vec::new();
        for ptr in addresses(&self.descriptor) {
            machine.read_on_host(ptr, &mut element)?;
            gathered.extend(values::<T>(&element));
        }
        Ok(gathered)
    }
}
