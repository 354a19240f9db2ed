//! The kinds of errors. Each row has the class of the Python exception, the field that a message names by default, and
//! the values that are allowed.

/// The class of the Python exception that an error becomes. An error that wraps a Python exception becomes that
/// exception instead.
///
/// # Examples
///
/// ```
/// use cai_bridge::{Class, ErrorKind};
///
/// assert_eq!(ErrorKind::ElementType.class(), Class::Type);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// `BufferError`: the array is well formed, but what the call asks for cannot be done with it.
    Buffer,
    /// `ValueError`: an argument, or what the producer says of its array, is malformed or wrong.
    Value,
    /// `TypeError`: an object, an argument or an element type is not one that the call accepts.
    Type,
    /// `cai_bridge.DriverError`, a `RuntimeError`: a call of the driver failed or cannot be made, or the simulated
    /// device found a mistake.
    Driver,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $class:ident, $field:literal, $allowed:literal;)+) => {
        /// What was wrong.
        ///
        /// # Examples
        ///
        /// ```
        /// use cai_bridge::ErrorKind;
        ///
        /// assert_eq!(ErrorKind::NotContiguous.class(), cai_bridge::Class::Buffer);
        /// assert_eq!(ErrorKind::NotContiguous.field(), "strides");
        /// assert_eq!(ErrorKind::NotContiguous.allowed(), "a C-contiguous array");
        /// assert!(ErrorKind::ALL.iter().any(|kind| kind.name() == "NotContiguous"));
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $name,)+
        }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name of the kind's variant, such as `NotContiguous`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The class of the Python exception that an error of this kind becomes.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)+ }
            }

            /// The field that an error of this kind names, unless the code that makes the error names another field.
            pub const fn field(self) -> &'static str {
                match self { $(Self::$name => $field,)+ }
            }

            /// The values that are allowed in the field.
            pub const fn allowed(self) -> &'static str {
                match self { $(Self::$name => $allowed,)+ }
            }
        }
    };
}

kinds! {
    /// The object speaks neither protocol.
    Protocol: Type, "object", "an object that speaks DLPack or the CUDA Array Interface";
    /// The object's `__cuda_array_interface__` is missing, or reading it raised `AttributeError`.
    NotCai: Type, "object", "an object with __cuda_array_interface__, or such a dict with owner=";
    /// A view's `__array__` was called, by which NumPy asks for values.
    NumpyArray: Type, "numpy", "cai_bridge.convert(x, 'numpy'), which copies to the host";
    /// Numbers were given in place of an array or of a tree with an array.
    Numbers: Type, "object", "an array, or a tree with one; a library makes an array of numbers itself, as torch.tensor(x) does";
    /// A class was given in place of one of its objects.
    Class: Type, "object", "an array, not its type";
    /// A CAI dict was given without `owner=`, or as its own owner.
    OwnerMissing: Value, "owner", "the object that keeps the memory alive; a dict holds no reference";
    /// `owner=` is a number, a text or another constant, which keeps no memory alive.
    OwnerConstant: Type, "owner", "the object that keeps the memory alive, which has it or refers to it";
    /// `owner=` was given with an object, which is its own owner.
    OwnerUnexpected: Value, "owner", "owner= only with a plain dict: an object is its own owner";

    /// The producer calls its memory CPU memory.
    CpuMemory: Buffer, "device", "CUDA memory: device (2), pinned host (3) or managed (13)";
    /// CPU memory, for a library whose arrays are on GPUs.
    CpuConverted: Buffer, "device", "CUDA memory: device (2), pinned host (3) or managed (13); pass copy=True to copy to the GPU";
    /// A device type other than CPU, CUDA, pinned and managed memory.
    DeviceKind: Buffer, "device", "CUDA memory: device (2), pinned host (3) or managed (13)";
    /// A device ordinal below 0, or too large.
    DeviceOrdinal: Value, "device", "a device id of 0 or more";
    /// The `device=` argument disagrees with the memory, or is malformed.
    DeviceArgument: Value, "device", "a device that can reach the memory: its number, 'cuda:0', or (device_type, device_id)";
    /// A device that this machine does not have.
    DeviceMissing: Value, "device", "a GPU of this machine";
    /// The producer names a GPU that the memory is not on, calls GPU memory pinned or managed, or names two GPUs.
    DeviceElsewhere: Value, "device", "the GPU that the memory is on";
    /// `dl_device=` names a device that cannot have the array, or `__dlpack__` returned another device's array.
    DlDevice: Buffer, "dl_device", "None, the array's own device, a GPU of this machine as (2, id), or (1, 0) for a copy in host memory";
    /// A pointer that the CUDA driver does not know.
    HostPointer: Value, "data", "a pointer that CUDA knows: device, managed or pinned memory";

    /// A typestr that does not parse.
    Typestr: Value, "typestr", "a NumPy typestr such as '<f4'";
    /// `descr` is malformed, or does not fit the typestr.
    Descr: Value, "descr", "None, [('', typestr)], or a list of fields that have the typestr's bytes";
    /// A big-endian type, which DLPack cannot express.
    BigEndian: Buffer, "typestr", "little-endian or one-byte types: DLPack has native byte order only";
    /// A type that the two protocols do not share, such as structured, object, string, datetime or long double.
    Dtype: Buffer, "dtype", "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, bfloat16, 8-bit floats";
    /// A type that a library does not have.
    DtypeConverted: Buffer, "dtype", "a type that the library has, or a view of the bits: x.view('uint8')";
    /// An element type whose lanes are not whole bytes.
    SubByte: Buffer, "dtype", "elements of whole bytes";
    /// A typestr such as `<V2` or `|V1`, for DLPack, and nothing names a type that fits.
    DtypeAmbiguous: Buffer, "typestr", "an object whose .dtype names the type, or from_cai(..., dtype='bfloat16') for <V2, and for |V1 dtype='float8_e4m3fn' or another 8-bit float";
    /// `dtype=` is unknown, of another size or byte order than the typestr's, or not a view's own type.
    DtypeArgument: Value, "dtype", "a type of the bytes that the typestr has";
    /// The object's `dtype`, its DLPack or a type name beside the typestr names another type than the typestr.
    DtypeDiffers: Value, "dtype", "one type in both; or from_cai(..., dtype=) with the right one";
    /// Zero lanes.
    Lanes: Value, "dtype.lanes", "1 or more";

    /// A negative extent.
    ShapeNegative: Value, "shape", "extents of 0 or more";
    /// An extent of more than 64 bits, or more elements or bytes than 63 bits count. An extent of 0 counts as 1.
    ShapeOverflow: Value, "shape", "at most 2**63 - 1 bytes in all";
    /// A stride, or what the array reaches, does not fit in the 64-bit address space.
    ExtentOverflow: Value, "strides", "an array that lies inside the 64-bit address space";
    /// The shape is not a tuple or list of integers.
    ShapeMalformed: Value, "shape", "a tuple of integers";
    /// More than 64 dimensions, where several lanes count as one more, or a negative number.
    Ndim: Value, "ndim", "0 to 64 dimensions";
    /// `shape` is NULL, though the tensor has dimensions.
    NullShape: Value, "shape", "a pointer to ndim extents";
    /// `strides` is NULL in DLPack 1.2 or later, though the tensor has dimensions.
    NullStrides: Value, "strides", "explicit strides, which DLPack requires since 1.2";
    /// The strides are not a tuple or list of integers, or not one for each dimension.
    StridesMalformed: Value, "strides", "None, or a tuple with one integer for each dimension";
    /// The size of an item or element is below 1 byte, or the layout is for elements of another size than the type's.
    ItemSize: Value, "itemsize", "1 or more bytes, as many for the layout as for the element type";
    /// Strides in bytes that are not a whole number of elements, for DLPack.
    StrideNotMultiple: Buffer, "strides", "multiples of the item size: DLPack counts strides in elements";
    /// Negative strides, for a library without them.
    StrideNegative: Buffer, "strides", "strides of 0 or more, or convert(..., copy=True)";
    /// Strides of an array that is not compact, for a library that takes only compact arrays.
    StridesNotCompact: Buffer, "strides", "a compact array, in whatever order of its axes, or convert(..., copy=True)";
    /// The data pointer is NULL, though the array has elements; or the pointer to the tensor is NULL.
    NullData: Value, "data", "a pointer, unless the array has no elements";
    /// An address or a stride by which a GPU cannot read the element type.
    Misaligned: Value, "data", "addresses that are multiples of the item's bytes, or the array made of bytes; convert(x, 'numpy') copies to the host";
    /// A `byte_offset` that runs past the address space.
    ByteOffset: Value, "byte_offset", "an offset that stays inside the 64-bit address space";

    /// A required key is missing from the dict.
    DictKey: Value, "__cuda_array_interface__", "a dict with 'shape', 'typestr', 'data' and 'version'";
    /// `__cuda_array_interface__`, or the object beside `owner=`, is not a dict.
    DictType: Value, "__cuda_array_interface__", "a dict";
    /// The `data` entry is malformed.
    DataMalformed: Value, "data", "a tuple (pointer as int, read-only as bool)";
    /// A masked array.
    Mask: Buffer, "mask", "None: a view has no mask; hand the values and the mask over as two arrays";
    /// The dict's `version` is malformed or unknown.
    CaiVersion: Value, "version", "an integer from 0 to 3";
    /// An unknown major version of DLPack.
    DlpackVersion: Buffer, "version", "DLPack major version 1";
    /// The `max_version=` argument is malformed.
    MaxVersion: Value, "max_version", "None, or a tuple (major, minor) of integers from 0 on";

    /// `readonly=`, `copy=` or `detach=` is neither `None` nor a bool.
    Flag: Type, "flag", "None, True or False";

    /// The number 0 as `stream=` or as a dict's stream. It may mean the legacy or the per-thread default stream.
    StreamZero: Value, "stream", "1 for the legacy default stream, 2 for the per-thread one, a handle, None, or as stream= the library's own stream object; 0 is ambiguous";
    /// A stream integer outside a dict that is negative, other than `stream=-1`, or has more than 64 bits.
    StreamNegative: Value, "stream", "None, -1, 1, 2 or a handle above 2";
    /// A dict's stream is `-1` or another negative number, or has more than 64 bits.
    StreamNoOrder: Value, "stream", "None, 1, 2 or a handle above 2: a dict has no -1";
    /// `stream=` is a bool, or neither an integer nor a stream object.
    StreamType: Type, "stream", "None, -1, 1, 2, a handle, or an object with __cuda_stream__";
    /// A stream in a dict that is a bool, or neither `None` nor an integer.
    StreamInDict: Type, "stream", "None, 1, 2 or a handle above 2, as an int: a dict has no stream objects";
    /// The driver returned `CUDA_ERROR_INVALID_HANDLE` for a stream.
    StreamUnknown: Driver, "stream", "a stream that exists";
    /// `__cuda_stream__` is not a method, or does not return what its protocol says.
    StreamProtocol: Value, "__cuda_stream__", "a method that returns a tuple (0, handle)";

    /// A stream of another device, or of another driver, than the array's.
    StreamDevice: Value, "stream", "a stream of the array's device";
    /// A wait for or by the legacy default stream, or an event, that a graph capture does not allow.
    CaptureLegacy: Driver, "graph capture", "a stream other than the legacy default one: name it with stream=, or hand the array over before the capture begins";
    /// A wait between the streams of two different captures.
    CaptureOther: Driver, "graph capture", "two streams of one capture, or a hand-over before it begins";
    /// A copy is made or freed while a graph capture includes or blocks one of the copy's streams.
    CaptureCopy: Driver, "graph capture", "a copy before the capture begins or after it ends";
    /// The host would wait for captured work, or for the legacy default stream while a graph capture blocks it.
    CaptureWait: Driver, "graph capture", "a wait before the capture begins or after it ends";
    /// The end of an array whose consumer was named by a bare handle, in the capture of the hand-over: the stream may be
    /// destroyed, so its work cannot be joined.
    CaptureHandle: Driver, "graph capture", "a stream object, which the bridge keeps alive, or release(stream)";
    /// A consumer without a stream may read on the CPU, but a graph capture includes or blocks the producer's stream.
    CaptureHostReader: Driver, "graph capture", "stream= with the consumer's stream, or a hand-over before the capture begins";

    /// A capsule that is consumed already, or given twice.
    CapsuleUsed: Value, "capsule", "a capsule named 'dltensor' or 'dltensor_versioned', not consumed yet";
    /// An array's dict and its DLPack give different shapes, strides or addresses.
    SaidTwice: Value, "__cuda_array_interface__", "what DLPack says of the same memory: mend the one that is wrong, or hand over the other alone, a dict by from_cai(dict, owner=x)";
    /// `__dlpack_device__` did not return a device.
    DlpackDevice: Value, "__dlpack_device__", "a tuple (device_type, device_id) of integers";
    /// The table behind `__dlpack_c_exchange_api__` is missing, was replaced, lacks a function, or broke its contract.
    ExchangeTable: Value, "__dlpack_c_exchange_api__", "a table whose functions return a tensor, or fail with an exception set";
    /// A capsule with another name, or a versioned tensor in a capsule named `dltensor`.
    CapsuleName: Value, "capsule", "a capsule named 'dltensor' or 'dltensor_versioned'";
    /// `__dlpack__` did not return a capsule.
    CapsuleType: Value, "__dlpack__", "a PyCapsule";
    /// The producer handed out a copy instead of its own memory.
    Copied: Buffer, "flags", "the producer's own memory; if you asked for a copy, pass the capsule that holds it";
    /// `copy=False` was given, but the consumer cannot share the array's memory.
    CopyNeeded: Buffer, "copy", "None or True: the consumer cannot share the array's memory";
    /// The GPU does not have enough memory for an allocation.
    DeviceMemory: Driver, "memory", "what the GPU has left";
    /// The host has not enough memory for a copy.
    HostMemory: Buffer, "copy", "a copy that fits in host memory";

    /// A tensor that requires a gradient.
    RequiresGrad: Buffer, "requires_grad", "a tensor without gradients: x.detach(), or x.requires_grad = False where it has no detach";
    /// A lazily conjugated tensor.
    ConjBit: Buffer, "conj", "memory that holds the values: x.resolve_conj()";
    /// A lazily negated tensor.
    NegBit: Buffer, "neg", "memory that holds the values: x.resolve_neg()";
    /// A sparse or otherwise unstrided tensor.
    SparseLayout: Buffer, "layout", "a strided tensor: x.to_dense(), or the parts, as x.values() (in COO of x.coalesce())";
    /// A tensor of tensors of several lengths.
    NestedLayout: Buffer, "layout", "a strided tensor: x.values(), and x.offsets() beside it, of a jagged layout, or x.unbind()";
    /// A tensor that has no memory of its own.
    Wrapper: Buffer, "data", "the tensor that has the memory: x.to_local() of a DTensor, else the one that the wrapper holds";
    /// Read-only memory, for a capsule that has no read-only flag.
    ReadOnlyLegacy: Buffer, "readonly", "max_version=(1, 0) or later; or readonly=False, if you vouch that nobody writes";
    /// Read-only memory, for a borrowed tensor, which has no read-only flag.
    ReadOnlyBorrowed: Buffer, "readonly", "a managed tensor, which has a read-only flag; or readonly=False, if you vouch that nobody writes";
    /// Read-only memory, for a library that may write to it.
    ReadOnlyConverted: Buffer, "readonly", "a library that only reads; convert(..., copy=True); or readonly=False, if you vouch that nobody writes";
    /// `readonly=True` for a library whose arrays cannot be marked read-only.
    ReadOnlyAsked: Buffer, "readonly", "a library that only reads, or None";
    /// An element type that a function does not take, or a Rust type whose name is unknown or does not fit its size.
    ElementType: Type, "dtype", "the element type that the function takes";
    /// An array that is not C-contiguous, for a function that takes no strides.
    NotContiguous: Buffer, "strides", "a C-contiguous array";
    /// Read-only memory, for a function that writes to it.
    NotWritable: Buffer, "readonly", "memory that may be written";
    /// A shape, strides, an axis or a position that does not fit the array.
    Reshape: Value, "shape", "a shape with the array's number of elements, all of them inside its memory";
    /// Work on memory that a scope has lent to cudarc, if the work or the borrower may write.
    Borrowed: Buffer, "array", "the same after cudarc's view of that memory is dropped; or Scope::launch in its place, which is ordered by itself";
    /// A kernel's `on_host` asks for an argument that is missing or has another type, writes to a `View`, or writes the
    /// wrong number of values.
    StandIn: Type, "argument", "what the launch gives there; to store, a &mut ViewMut";
    /// The kernel's code could not be made, or is a text with a NUL inside.
    KernelCode: Driver, "kernel", "PTX, a cubin or a fatbin as a compiler writes it";
    /// A view or an array that was released.
    Released: Buffer, "view", "a view that has not been released";

    /// The stream is of another runtime than the call needs, the crate lacks "cudarc", or the kernel lacks `on_host`.
    NoBackend: Driver, "stream", "a cudarc stream with the feature \"cudarc\"; for Scope::launch also a simulated stream and a kernel with on_host";
    /// The simulated device found a mistake of the program, or cannot make a fault that a test asks for.
    Misuse: Driver, "simulated device", "work that waits for the work it depends on";
    /// Python code that the bridge ran was interrupted, or the interpreter has ended.
    Interrupted: Driver, "stream", "an object that names its stream without an exception";

    /// There is no CUDA driver, it lacks a function, or it finds no device.
    DriverMissing: Driver, "CUDA driver", "a machine with a CUDA driver and a device, or cai_bridge.testing.simulated_cuda()";
    /// A forked child uses the driver or an array of its parent process.
    Forked: Driver, "process", "the process that first used the device, or child processes that multiprocessing starts by 'spawn' or 'forkserver'";
    /// A call of the driver failed.
    DriverCall: Driver, "CUDA driver", "CUDA_SUCCESS";
}
