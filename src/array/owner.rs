//! The trait of a value that owns an array's memory.

use super::stream::WorkStream;
use crate::device::Device;
use crate::dtype::Dtype;

/// Owns the memory of an array, and says where the memory is, which elements it has, and on which stream it is ready.
///
/// The crate drops the owner after the last array, view, tensor or Python object of the memory, and after
/// [`stream`](Owner::stream) waits for all their work. So an owner that frees the memory on that stream frees it in
/// order. If the wait fails, the crate keeps the owner and tries again later. For a scope or a tensor, calls of
/// [`scope`](crate::scope) and [`Array::to_dlpack`](crate::Array::to_dlpack) try again. For a Python object, calls from
/// Python and a thread of the crate try again. If the context is destroyed or broken, the crate drops the owner without
/// a wait. A forked child never drops an owner that its parent gave to the crate. The crate may drop the owner on any
/// thread. If the drop panics, the crate catches the panic and logs it.
///
/// # Safety
///
/// While the owner exists, `ptr`, `shape` and `strides` describe memory of `device` with elements of `dtype`, and the
/// memory is ready for work queued on `stream`. All other code uses the memory in the order of `stream`. If the array
/// is read-only, other code may also read the memory out of order.
///
/// # Examples
///
/// ```
/// use cai_bridge::testing::SimulatedCuda;
/// use cai_bridge::{Array, Device, DeviceStream, Dtype, Owner};
///
/// /// A part of a memory pool.
/// struct Block {
///     whole: Array,
///     shape: [i64; 1],
///     stream: DeviceStream,
/// }
///
/// // SAFETY: the whole is as long or longer, and ready on the same stream.
/// unsafe impl Owner for Block {
///     type Stream = DeviceStream;
///
///     fn stream(&self) -> &DeviceStream {
///         &self.stream
///     }
///
///     fn ptr(&self) -> u64 {
///         self.whole.ptr()
///     }
///
///     fn dtype(&self) -> Dtype {
///         self.whole.dtype()
///     }
///
///     fn shape(&self) -> &[i64] {
///         &self.shape
///     }
///
///     fn strides(&self) -> Option<&[i64]> {
///         Some(&[1])
///     }
///
///     fn device(&self) -> Device {
///         self.whole.device()
///     }
///
///     fn readonly(&self) -> bool {
///         true
///     }
/// }
///
/// let stream = SimulatedCuda::new(1).stream(0)?;
/// let whole = Array::from_host(&stream, &[1.0_f32, 2.0, 3.0], &[3])?.into();
/// let part = Array::from_owner(Block { whole, shape: [2], stream: stream.clone() })?;
/// assert_eq!(part.to_vec::<f32>(&stream)?, [1.0, 2.0]);
/// assert!(part.readonly());
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[allow(unsafe_code)]
pub unsafe trait Owner: Send + 'static {
    /// The type of the stream on which the memory is ready.
    type Stream: WorkStream;

    /// The stream on which the memory is ready.
    fn stream(&self) -> &Self::Stream;

    /// The address of the first element. Not called for an array without elements.
    fn ptr(&self) -> u64;

    /// The element type.
    fn dtype(&self) -> Dtype;

    /// The extents.
    fn shape(&self) -> &[i64];

    /// The strides in elements; by default `None`, which means C-contiguous.
    fn strides(&self) -> Option<&[i64]> {
        None
    }

    /// Where the memory is. By default [`Device::cuda`] of the stream's GPU; override this for pinned or managed
    /// memory.
    fn device(&self) -> Device {
        Device::cuda(self.stream().place().ordinal)
    }

    /// Whether the memory must not be written. By default it may be.
    fn readonly(&self) -> bool {
        false
    }
}
