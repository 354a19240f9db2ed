"""Runs each row under callgrind, between two functions that mark where it counts.

The libraries are stand-ins, so that the counts are the bridge's and Python's own:
t a torch tensor, c a CuPy array, j a JAX array on one device, n a Numba array on a stream of its
own, n0 one on the default one, stub a ready-made dict, t8 a tensor of eight dimensions, tensors ten
tensors, arrays ten of CuPy's, taken a function that takes CuPy's arrays; view = from_cai(c),
cai = to_cai(t); side a handle of torch's pool, pooled its object, object_ one that owns its
stream; torch, cupy the modules.
"""

import ctypes
import gc
import itertools
import sys
import types

import numpy as np

import fake_libraries

WARM = 30
SIDE = 0x5000_0000


def module(name, **attributes):
    made = types.ModuleType(name)
    vars(made).update(attributes)
    sys.modules[name] = made
    return made


numba = module("numba")
numba.cuda = module("numba.cuda", config=module("numba.cuda.config"))
numba.cuda.config.CUDA_PER_THREAD_DEFAULT_STREAM = 0


class TorchStream(fake_libraries.CudaStreamBase):
    """torch hands the streams of its pools out in turn; this pool has one a priority."""

    __module__ = "torch.cuda.streams"

    @staticmethod
    def priority_range():
        return (0, -1)

    def __new__(cls, device, priority):
        return super().__new__(cls, SIDE + priority * 16, 1)

    def __cuda_stream__(self):
        return (0, self.cuda_stream)


torch = module("torch", Tensor=fake_libraries.Tensor)
torch.cuda = module("torch.cuda", Stream=TorchStream, is_initialized=lambda: True)


class Memory:
    """CuPy's way to memory that somebody else owns."""

    __slots__ = ("device", "owner", "ptr", "size")

    def __init__(self, ptr, size, owner, device):
        self.ptr, self.size, self.owner, self.device = ptr, size, owner, device


class Pointer:
    __slots__ = ("mem", "ptr")

    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class MadeBase:
    """What fills an array in, as CuPy's `_ndarray_base`."""

    def _init(self, shape, dtype, data, strides=None):
        self.shape, self.dtype, self.data, self.strides = shape, dtype, data, strides
        self.device = 0


class Made(MadeBase):
    """What CuPy's `ndarray(shape, dtype, pointer, strides)` makes, and `asarray`."""

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        self._init(*args, **kwargs)
        return self

    def __init__(self, *args, **kwargs):
        """Does nothing, as CuPy's."""


class CupyMeta(type):
    """`cupy.ndarray` is what is converted and what is made."""

    def __instancecheck__(cls, x):
        return isinstance(x, Made | fake_libraries.NdArray)


class Device:
    def __init__(self, number):
        self.number = number

    def __enter__(self): ...

    def __exit__(self, *_): ...


def asarray(x):
    described = x.__cuda_array_interface__
    pointer = Pointer(Memory(described["data"][0], 0, x, 0), 0)
    return Made(described["shape"], np.dtype(described["typestr"]), pointer)


cupy = module("cupy", ndarray=Made, asarray=asarray)
cupy.cuda = module("cupy.cuda", UnownedMemory=Memory, MemoryPointer=Pointer, Device=Device)
stream_ptr = {"get_stream_ptr": fake_libraries.get_stream_ptr}
module("cupy_backends.cuda.stream", __pyx_capi__=stream_ptr)


class SingleDeviceSharding:
    """Where JAX has an array of one device."""

    __module__ = "jax.sharding"


def jaxs_dlpack(self, *, stream=None, max_version=None):
    """JAX makes legacy capsules."""
    return fake_libraries.buffer_to_dlpack_managed_tensor(self, stream)


module("jaxlib")
entry = fake_libraries.buffer_to_dlpack_managed_tensor
module("jaxlib._jax", buffer_to_dlpack_managed_tensor=entry)
# Both are functions of Python's.
fake_libraries.ArrayImpl.sharding = property(lambda self: self._sharding)
fake_libraries.ArrayImpl.__dlpack__ = jaxs_dlpack
fake_libraries.ArrayImpl.__dlpack_device__ = lambda self: (2, 0)


class StreamObject:
    """A stream of cuda.core: it owns its handle."""

    __slots__ = ("handle",)

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


class NumbaStream:
    """A stream of Numba's, which says in its own dict whether it is somebody else's."""

    __module__ = "numba.cuda.cudadrv.driver"

    def __init__(self, handle):
        self.handle, self.external = handle, False

    def __cuda_stream__(self):
        return (0, self.handle)


class NumbaPointer:
    """Memory that an array of Numba's owns."""

    def __init__(self, pointer):
        self.device_ctypes_pointer = ctypes.c_size_t(pointer)


class NumbaArray:
    """A device array of Numba's, which reads its dict's parts when it is asked."""

    __module__ = "numba.cuda.cudadrv.devicearray"

    def __init__(self, pointer, shape, stream):
        self.gpu_data, self.shape = NumbaPointer(pointer), shape
        self.dtype, self.stream = np.dtype("float32"), stream
        self.strides = np.empty(shape, self.dtype).strides

    def interface(self):
        return {
            "shape": self.shape,
            "strides": None,
            "data": (self.gpu_data.device_ctypes_pointer.value, False),
            "typestr": self.dtype.str,
            "stream": self.stream.handle if self.stream else None,
            "version": 3,
        }

    interface.__module__ = __module__
    __cuda_array_interface__ = property(interface)


class Stub:
    def __init__(self, pointer, shape, stream=None):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
            "stream": stream,
        }


def names():
    import cai_bridge

    t = fake_libraries.Tensor(0x7000_0000, [2, 3])
    c = fake_libraries.NdArray(0x8000_0000, (2, 3))
    return {
        "torch": torch,
        "cupy": cupy,
        "t": t,
        "c": c,
        "j": fake_libraries.ArrayImpl(0xB000_0000, [2, 3], SingleDeviceSharding()),
        "n": NumbaArray(0x9000_0000, (2, 3), NumbaStream(SIDE + 0x1000)),
        "n0": NumbaArray(0x9100_0000, (2, 3), 0),
        "t8": fake_libraries.Tensor(0x7100_0000, [2] * 8),
        "stub": Stub(0xA000_0000, (2, 3)),
        "view": cai_bridge.from_cai(c),
        "cai": cai_bridge.to_cai(t),
        "side": SIDE,
        "object_": StreamObject(SIDE),
        "pooled": TorchStream(0, 0),
        "taken": cai_bridge.adapt(lambda x: None, to="cupy"),
        "tensors": [fake_libraries.Tensor(0x7200_0000 + at * 256, [4]) for at in range(10)],
        "arrays": [fake_libraries.NdArray(0x8200_0000 + at * 256, (4,)) for at in range(10)],
        **{
            name: getattr(cai_bridge, name)
            for name in ("to_cai", "from_cai", "to_dlpack", "convert")
        },
    }


def run(count, rows):
    known, compiled = names(), []
    # The first is not read: callgrind has some of what ran before among its costs.
    for row in ("pass", *rows):
        scope = dict(known)
        source = f"def rounds(many):\n    for _ in many:\n        {row}\n"
        exec(source, scope)
        compiled.append(scope["rounds"])
    # All of them before any is counted, so that the order of the rows does not matter.
    for rounds in compiled:
        rounds(itertools.repeat(None, WARM))
    for rounds in compiled:
        gc.collect()
        gc.disable()
        # The first is not read: it has what each row does once.
        for many in (WARM, count):
            fake_libraries.counted(rounds, itertools.repeat(None, many))
        gc.enable()


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
