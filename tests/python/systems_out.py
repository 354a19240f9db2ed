"""Stand-ins for libraries that hand arrays out: the dict of each, and what it keeps.

Each does what the library's source does with the protocols, and no more; the source is named as it
is on github.com. Work on the arrays is queued on streams of the simulated device.
"""

import functools

import capsules
import numpy as np
from systems import Exporting

as_bytes = functools.partial(dict, shape=(32,), typestr="|u1")
as_floats = functools.partial(dict, shape=(8,), typestr="<f4")


class Making:
    """A library's own array: the dict that it exports, of memory that its stream writes to.

    `said` is the dict but for its address. `unsaid` tells what comes of it where nobody says its
    stream: ``"host"``, where the bridge makes the host wait, or ``"right"``. `module` is that of
    its type.
    """

    unsaid, module, on, memory = "host", __name__, "its own", "pool"

    def __init__(self, cuda, stream):
        self.cuda, self.stream = cuda, stream
        self.bytes = cuda.array([0.0] * 8, speaks=(), memory=self.memory, stream=stream)
        stream.fill(self.bytes, 7.0, name=f"{self.name} writes")
        self.array = self.made(self.bytes.ptr)

    def made(self, ptr):
        return Exporting.of(self.module)(self.interface(ptr), self.bytes)

    def interface(self, ptr):
        return {**self.said, "data": (ptr, False)}

    def write(self, value):
        self.stream.fill(self.bytes, value, name=f"{self.name} writes again")


class RmmBuffer(Making):
    """``rmm.DeviceBuffer``. rapidsai/rmm, python/rmm/rmm/pylibrmm/device_buffer.pyx, release 26.10:
    version 0, and all work on it is asynchronous."""

    name = "RMM"
    said = as_bytes(strides=None, version=0)


class PylibcudfColumn(Making):
    """The data of a ``Column``, as ``_OwnerWithCAI`` and slices of ``gpumemoryview`` describe it.

    The source is that of `systems.Pylibcudf`: bytes, version 3, no stream.
    """

    name, module = "pylibcudf", "pylibcudf.gpumemoryview"
    said = as_bytes(strides=None, version=3)


class CudfColumn(Making):
    """A cuDF column, of which a ``Series`` hands out the same dict. rapidsai/cudf,
    python/cudf/cudf/core/column/column.py, release 26.10: version 3, no stream, strides always, and
    a mask where there are nulls."""

    name, module = "cuDF", "cudf.core.column.numerical"
    said = as_floats(strides=(4,), version=3)

    def with_nulls(self):
        mask = Exporting(as_bytes(data=(self.bytes.ptr, False), version=3))
        interface = {**self.array.__cuda_array_interface__, "mask": mask}
        return Exporting.of(self.module)(interface, self.bytes)


class RaftArray(Making):
    """``device_ndarray``: the dict of a NumPy array with another pointer, so of NumPy's version 3.
    rapidsai/raft, python/pylibraft/pylibraft/common/device_ndarray.py."""

    name, module = "RAFT", "pylibraft.common.device_ndarray"
    said = np.empty(8, "<f4").__array_interface__


class UcxxBuffer(Making):
    """``CCCLBufferWrapper``, what ucxx receives into. rapidsai/ucxx,
    python/ucxx/ucxx/_lib/libucxx.pyx: bytes, version 2."""

    name = "ucxx"
    said = as_bytes(version=2)


class PycudaArray(Making):
    """``GPUArray``: version 3, and None as its stream, whatever is pending. inducer/pycuda,
    pycuda/gpuarray.py, 2026.1."""

    name, module = "PyCUDA", "pycuda.gpuarray"
    said = as_floats(strides=(4,), stream=None, version=3)


class CvcudaBuffer(Making):
    """``ExternalBuffer``, which ``Tensor.cuda()`` returns. CVCUDA/CV-CUDA,
    python/mod_nvcv/ExternalBuffer.cpp, 0.15: version 2, in an attribute of the object, and a
    ``__dlpack__`` that takes a stream and orders nothing."""

    name, module = "CV-CUDA", "nvcv"
    said = as_floats(strides=(4,), version=2)

    def made(self, ptr):
        asked = {
            "__module__": self.module,
            "__dlpack__": lambda _, stream=None: self.bytes.__dlpack__(stream=-1),
            "__dlpack_device__": lambda _: (2, 0),
        }
        made = type("ExternalBuffer", (), asked)()
        made.__cuda_array_interface__ = self.interface(ptr)
        return made


class CucimImage(Making):
    """``CuImage``, whose dict is an attribute of the instance, and always names stream 1.
    rapidsai/cucim, python/pybind11/cucim_py.cpp."""

    name, unsaid, on = "cuCIM", "right", "legacy"
    said = as_floats(descr=[("", "<f4")], strides=None, mask=None, version=3, stream=1)


class DaliTensor(Making):
    """``TensorGPU``: a dict of version 2, and ``__dlpack__`` that waits, without ``max_version``.
    NVIDIA/DALI, dali/python/backend_impl.cc: ArrayInterfaceRepr, ToDLMTensor. None is the legacy
    default stream, -1 no wait, and 0 is refused."""

    name, unsaid = "DALI", "right"
    said = as_floats(strides=None, version=2)

    def made(self, ptr):
        making = self

        class TensorGPU(Exporting):
            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, stream=None, dl_device=None):
                assert stream != 0
                if stream != -1:
                    on = making.cuda.stream_of(1 if stream is None else stream)
                    on.wait(making.stream.record())
                fields = {"form": "legacy", "shape": (8,), "owner": self}
                return capsules.HandMade(ptr, **fields).capsule()

        return TensorGPU(self.interface(ptr), self.bytes)


class CumlArray(Making):
    """``CumlArray``: CuPy's dict of when it was made, with strides. rapidsai/cuml,
    python/cuml/cuml/internals/array.py: so its stream is the one that was CuPy's then, which
    nothing of it keeps. ArrayViews' ``cupy_ndarray`` hands out CuPy's own array, whose dict names
    CuPy's current stream."""

    name, module = "cuML", "cuml.internals.array"
    said = as_floats(descr=[("", "<f4")], strides=(4,), version=3)

    def interface(self, ptr):
        return {**super().interface(ptr), "stream": self.stream.handle}


class NumbaOf(Making):
    """A Numba array that no stream was given, so of Numba's default one: its dict says None."""

    unsaid, on, module = "right", "legacy", "numba.cuda.cudadrv.devicearray"
    said = as_floats(strides=None, version=3, stream=None)


class CusignalShared(NumbaOf):
    """``get_shared_mem``: ``numba.cuda.mapped_array``, pinned memory of the host.
    rapidsai/cusignal, python/cusignal/utils/arraytools.py."""

    name, memory = "cuSignal", "pinned"


class PyArrowBuffer(NumbaOf):
    """``CudaBuffer.to_numba()`` as the memory of a ``DeviceNDArray``, ArrayViews' way as well.
    apache/arrow, python/pyarrow/_cuda.pyx, and xnd-project/arrayviews,
    arrayviews/cuda/pyarrow_cuda_buffer_as.py. Numba's memory pointer has no owner, so the array
    does not keep the buffer."""

    name = "PyArrow"

    def made(self, ptr):
        return Exporting.of(self.module)(self.interface(ptr))


MAKING = (
    *(RmmBuffer, PylibcudfColumn, CudfColumn, RaftArray, UcxxBuffer, CucimImage),
    *(PycudaArray, CvcudaBuffer),
    *(DaliTensor, CumlArray, CusignalShared, PyArrowBuffer),
)


def floats(seen, view):
    """The floats that a read of a view saw, which may have been of its bytes."""
    if view.typestr == "|u1":
        return np.array(seen, "u1").view("<f4").tolist()
    return list(seen)
