//! Arrays to and from DLPack's managed tensors, without Python.
#![allow(unsafe_code)]

use std::sync::Arc;

use dlpark::Managed;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};

use super::Array;
use super::origin::{self, Origin, RustMemory};
use super::retry;
use super::stream::{RustStream, WorkStream};
use crate::descriptor::Descriptor;
use crate::dlpack::{decode, encode};
use crate::driver::fork::Process;
use crate::error::{Error, Kind, Result};

/// An owned DLPack tensor, as the crate [`dlpark`](crate::dlpark) defines it. Dropping the value calls the tensor's
/// deleter; [`into_raw`](Managed::into_raw) passes the tensor to C, which must then call the deleter.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Tensor};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x = Array::from_host(&stream, &[1.0_f32, 2.0], &[2])?;
/// let tensor: Tensor = x.to_dlpack(&stream)?;
/// assert_eq!(tensor.version().major, 1);
/// # Ok::<(), cai_bridge::Error>(())
/// ```
pub type Tensor = Managed<DLManagedTensorVersioned>;

/// An owned DLPack tensor in the structure from before version 1, which has no version and no flags. For code that
/// knows only this structure.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, LegacyTensor};
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let x = Array::from_host(&stream, &[1.0_f32, 2.0], &[2])?;
/// let tensor: LegacyTensor = x.to_dlpack_legacy(&stream)?;
/// drop(tensor);
/// # Ok::<(), cai_bridge::Error>(())
/// ```
pub type LegacyTensor = Managed<DLManagedTensor>;

struct TensorOwner {
    origin: Option<Arc<dyn Origin>>,
    user: Arc<RustStream>,
    process: Process,
}

impl Drop for TensorOwner {
    /// Ends the consumer's use of the memory. A forked child leaks the memory instead.
    fn drop(&mut self) {
        let Some(origin) = self.origin.take() else { return };
        if !self.process.is_current() {
            std::mem::forget(origin);
        } else if let Err(error) = retry::settle(origin, &self.user) {
            tracing::warn!(
                target: "cai_bridge", door = "to_dlpack", %error, order = "failed",
                "the producer's stream cannot wait; the memory is kept"
            );
        }
    }
}

impl Array {
    /// Makes a tensor for a consumer that works on `stream`. The tensor is ready on `stream`. When the consumer deletes
    /// the tensor, the stream of the array's producer waits for the work that is then queued on `stream`.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::on`]. A writable array gives the error [`Borrowed`](Kind::Borrowed) even if the borrower
    /// only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let (mine, theirs) = (cuda.stream(0)?, cuda.stream(0)?);
    /// let x = Array::from_host(&mine, &[1.0_f32, 2.0], &[2])?;
    /// let tensor = x.to_dlpack(&theirs)?;
    /// drop(x); // the tensor keeps the memory
    /// // SAFETY: the tensor was made for this stream, and nothing else uses the memory.
    /// let y = unsafe { Array::from_dlpack(tensor, &theirs) }?;
    /// assert_eq!(y.to_vec::<f32>(&theirs)?, [1.0, 2.0]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn to_dlpack(&self, stream: &impl WorkStream) -> Result<Tensor> {
        encode::versioned(&self.descriptor, self.tensor_owner(stream)?)
    }

    /// Makes a legacy tensor, as [`to_dlpack`](Array::to_dlpack) makes a versioned one.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::to_dlpack`]. [`ReadOnlyLegacy`](Kind::ReadOnlyLegacy): the array is read-only.
    /// [`SubByte`](Kind::SubByte): the elements are narrower than a byte, and each is padded to a whole byte. The
    /// legacy structure has no flags to say so.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, ErrorKind};
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let x = Array::from_host(&stream, &[1.0_f32, 2.0], &[2])?;
    /// let tensor = x.to_dlpack_legacy(&stream)?;
    /// // SAFETY: the tensor was made for this stream, and nothing else uses the memory.
    /// let y = unsafe { Array::from_dlpack_legacy(tensor, &stream) }?;
    /// assert_eq!(y.to_vec::<f32>(&stream)?, [1.0, 2.0]);
    /// let refused = x.into_readonly().to_dlpack_legacy(&stream).err();
    /// assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::ReadOnlyLegacy));
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn to_dlpack_legacy(&self, stream: &impl WorkStream) -> Result<LegacyTensor> {
        encode::check_legacy(&self.descriptor)?;
        encode::legacy(&self.descriptor, self.tensor_owner(stream)?)
    }

    /// Hands the array's memory over to a consumer that works on `stream`.
    fn tensor_owner(&self, stream: &impl WorkStream) -> Result<Box<TensorOwner>> {
        retry::look();
        let user = Arc::new(RustStream::of(stream));
        if !stream.backend().is_of(self.origin.driver()) {
            let got = format!("{} of another driver than the array's", user.alive().stream());
            return Err(Error::new(Kind::StreamDevice, got));
        }
        self.check_device(user.alive())?;
        if self.ptr() != 0 {
            origin::hand_over("to_dlpack", &*self.origin, user.alive(), &self.descriptor)?;
        }
        let origin = Some(Arc::clone(&self.origin));
        Ok(Box::new(TensorOwner { origin, user, process: Process::current() }))
    }

    /// Makes an array from `tensor`. Pass as `stream` the stream of the tensor's producer, or the stream that the
    /// tensor was exported for. After the array's last use, `stream` is made to wait for all work on the memory, and
    /// then the tensor is deleted. The host does not wait.
    ///
    /// # Safety
    ///
    /// The memory is ready for work queued on `stream`. Until the tensor is deleted, other code uses the memory only in
    /// the order of `stream`, unless that code and this array only read. The crate cannot check this: a tensor does not
    /// name its stream.
    ///
    /// # Errors
    ///
    /// A DLPack version other than 1, memory that CUDA cannot reach, an invalid shape, stride, address or element type,
    /// or no driver. The tensor is then deleted.
    ///
    /// # Examples
    ///
    /// See [`Array::to_dlpack`].
    pub unsafe fn from_dlpack(tensor: Tensor, stream: &impl WorkStream) -> Result<Self> {
        let descriptor = decode::managed(&tensor)?;
        Self::of_tensor(descriptor, tensor, stream)
    }

    /// Makes an array from a legacy tensor, as [`from_dlpack`](Array::from_dlpack) does from a versioned one. The
    /// legacy structure has no read-only flag, so the array is writable.
    ///
    /// # Safety
    ///
    /// The caller must keep the contract of [`Array::from_dlpack`]. In addition, writing to the memory must be allowed.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::from_dlpack`].
    ///
    /// # Examples
    ///
    /// See [`Array::to_dlpack_legacy`].
    pub unsafe fn from_dlpack_legacy(
        tensor: LegacyTensor,
        stream: &impl WorkStream,
    ) -> Result<Self> {
        let descriptor = decode::managed_legacy(&tensor)?;
        Self::of_tensor(descriptor, tensor, stream)
    }

    fn of_tensor(
        descriptor: Descriptor,
        tensor: impl Send + 'static,
        stream: &impl WorkStream,
    ) -> Result<Self> {
        let (driver, producer) = (stream.driver()?, RustStream::of(stream));
        let origin = Arc::new(RustMemory::new(driver, producer, Box::new(tensor)));
        Ok(Self { descriptor, origin })
    }
}
