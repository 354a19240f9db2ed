"""Stand-ins for libraries that hand arrays out: the dict of each, and what it keeps.

Each does what the library's source does with the protocols, and no more; the source is named where
it was read. Work on the arrays is queued on streams of the simulated device.
"""

from __future__ import annotations

from typing import Any, ClassVar

import capsules
import numpy as np
from systems import Exporting


class Making:
    """A library's own array: the dict that it exports, of memory that its stream writes to.

    `unsaid` tells what comes of it where nobody says its stream: ``"host"``, where the bridge makes
    the host wait, or ``"right"``. `module` is that of its type.
    """

    name: ClassVar[str]
    unsaid: ClassVar[str]
    module: ClassVar[str] = __name__
    on: ClassVar[str] = "its own"
    memory: ClassVar[str] = "pool"

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.cuda, self.stream = cuda, stream
        self.bytes = cuda.array([0.0] * 8, speaks=(), memory=self.memory, stream=stream)
        stream.fill(self.bytes, 7.0, name=f"{self.name} writes")
        self.array = self.made(self.bytes.ptr)

    def made(self, ptr: int) -> Any:
        return Exporting.of(self.module)(self.interface(ptr), self.bytes)

    def interface(self, ptr: int) -> dict[str, Any]:
        raise NotImplementedError

    def write(self, value: float) -> None:
        self.stream.fill(self.bytes, value, name=f"{self.name} writes again")


AS_BYTES = {"shape": (32,), "typestr": "|u1"}
AS_FLOATS = {"shape": (8,), "typestr": "<f4"}


class RmmBuffer(Making):
    """``rmm.DeviceBuffer``.

    https://github.com/rapidsai/rmm, python/rmm/rmm/pylibrmm/device_buffer.pyx, release 26.10:
    version 0, and all work on it is asynchronous.
    """

    name, unsaid = "RMM", "host"

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**AS_BYTES, "data": (ptr, False), "strides": None, "version": 0}


class PylibcudfColumn(Making):
    """The data of a ``Column``, as ``_OwnerWithCAI`` and slices of ``gpumemoryview`` describe it.

    The source is that of `systems.Pylibcudf`: bytes, version 3, no stream.
    """

    name, unsaid, module = "pylibcudf", "host", "pylibcudf.gpumemoryview"

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**AS_BYTES, "data": (ptr, False), "strides": None, "version": 3}


class CudfColumn(Making):
    """A cuDF column, of which a ``Series`` hands out the same dict.

    https://github.com/rapidsai/cudf, python/cudf/cudf/core/column/column.py, release 26.10: version
    3, no stream, strides always, and a mask where there are nulls.
    """

    name, unsaid, module = "cuDF", "host", "cudf.core.column.numerical"

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**AS_FLOATS, "data": (ptr, False), "strides": (4,), "version": 3}

    def with_nulls(self) -> Any:
        mask = Exporting({**AS_BYTES, "data": (self.bytes.ptr, False), "version": 3})
        interface = {**self.array.__cuda_array_interface__, "mask": mask}
        return Exporting.of(self.module)(interface, self.bytes)


class RaftArray(Making):
    """``device_ndarray``: the dict of a NumPy array with another pointer, so of NumPy's version 3.

    https://github.com/rapidsai/raft, python/pylibraft/pylibraft/common/device_ndarray.py.
    """

    name, unsaid, module = "RAFT", "host", "pylibraft.common.device_ndarray"

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**np.empty(8, "<f4").__array_interface__, "data": (ptr, False)}


class UcxxBuffer(Making):
    """``CCCLBufferWrapper``, what ucxx receives into.

    https://github.com/rapidsai/ucxx, python/ucxx/ucxx/_lib/libucxx.pyx: bytes, version 2.
    """

    name, unsaid = "ucxx", "host"

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**AS_BYTES, "data": (ptr, False), "version": 2}


class PycudaArray(Making):
    """``GPUArray``: version 3, and None as its stream, whatever is pending.

    https://github.com/inducer/pycuda, pycuda/gpuarray.py, 2026.1.
    """

    name, unsaid, module = "PyCUDA", "host", "pycuda.gpuarray"

    def interface(self, ptr: int) -> dict[str, Any]:
        data = {"strides": (4,), "data": (ptr, False), "stream": None}
        return {**AS_FLOATS, **data, "version": 3}


class CvcudaBuffer(Making):
    """``ExternalBuffer``, which ``Tensor.cuda()`` returns.

    https://github.com/CVCUDA/CV-CUDA, python/mod_nvcv/ExternalBuffer.cpp, 0.15: version 2, in an
    attribute of the object, and a ``__dlpack__`` that takes a stream and orders nothing.
    """

    name, unsaid, module = "CV-CUDA", "host", "nvcv"

    def made(self, ptr: int) -> Any:
        asked = {
            "__module__": self.module,
            "__dlpack__": lambda _, stream=None: self.bytes.__dlpack__(stream=-1),
            "__dlpack_device__": lambda _: (2, 0),
        }
        made: Any = type("ExternalBuffer", (), asked)()
        made.__cuda_array_interface__ = self.interface(ptr)
        return made

    def interface(self, ptr: int) -> dict[str, Any]:
        return {**AS_FLOATS, "strides": (4,), "data": (ptr, False), "version": 2}


class CucimImage(Making):
    """``CuImage``, whose dict is an attribute of the instance, and always names stream 1.

    https://github.com/rapidsai/cucim, python/pybind11/cucim_py.cpp.
    """

    name, unsaid, on = "cuCIM", "right", "legacy"

    def interface(self, ptr: int) -> dict[str, Any]:
        said = {"descr": [("", "<f4")], "strides": None, "mask": None, "version": 3, "stream": 1}
        return {**AS_FLOATS, **said, "data": (ptr, False)}


class DaliTensor(Making):
    """``TensorGPU``: a dict of version 2, and ``__dlpack__`` that waits, without ``max_version``.

    https://github.com/NVIDIA/DALI, dali/python/backend_impl.cc: ArrayInterfaceRepr, ToDLMTensor.
    None is the legacy default stream, -1 no wait, and 0 is refused.
    """

    name, unsaid = "DALI", "right"

    def made(self, ptr: int) -> Any:
        making = self

        class TensorGPU(Exporting):
            def __dlpack_device__(self) -> tuple[int, int]:
                return 2, 0

            def __dlpack__(self, stream: Any = None, dl_device: Any = None) -> Any:
                assert stream != 0
                if stream != -1:
                    on = making.cuda.stream_of(1 if stream is None else stream)
                    on.wait(making.stream.record())
                fields = {"form": "legacy", "shape": (8,), "owner": self}
                return capsules.HandMade(ptr, **fields).capsule()

        interface = {**AS_FLOATS, "data": (ptr, False), "strides": None, "version": 2}
        return TensorGPU(interface, self.bytes)


class CumlArray(Making):
    """``CumlArray``: CuPy's dict of when it was made, with strides.

    https://github.com/rapidsai/cuml, python/cuml/cuml/internals/array.py: so its stream is the one
    that was CuPy's then, which nothing of it keeps. ArrayViews' ``cupy_ndarray`` hands out CuPy's
    own array, whose dict names CuPy's current stream.
    """

    name, unsaid, module = "cuML", "host", "cuml.internals.array"

    def interface(self, ptr: int) -> dict[str, Any]:
        said = {"descr": [("", "<f4")], "strides": (4,), "version": 3}
        return {**AS_FLOATS, **said, "data": (ptr, False), "stream": self.stream.handle}


class NumbaOf(Making):
    """A Numba array that no stream was given, so of Numba's default one: its dict says None."""

    unsaid, on, module = "right", "legacy", "numba.cuda.cudadrv.devicearray"

    def interface(self, ptr: int) -> dict[str, Any]:
        said = {**AS_FLOATS, "data": (ptr, False), "strides": None, "version": 3}
        return {**said, "stream": None}


class CusignalShared(NumbaOf):
    """``get_shared_mem``: ``numba.cuda.mapped_array``, pinned memory of the host.

    https://github.com/rapidsai/cusignal, python/cusignal/utils/arraytools.py.
    """

    name, memory = "cuSignal", "pinned"


class PyArrowBuffer(NumbaOf):
    """``CudaBuffer.to_numba()`` as the memory of a ``DeviceNDArray``, ArrayViews' way as well.

    https://github.com/apache/arrow, python/pyarrow/_cuda.pyx, and
    https://github.com/xnd-project/arrayviews, arrayviews/cuda/pyarrow_cuda_buffer_as.py. Numba's
    memory pointer has no owner, so the array does not keep the buffer.
    """

    name = "PyArrow"

    def made(self, ptr: int) -> Any:
        return Exporting.of(self.module)(self.interface(ptr))


MAKING: tuple[type[Making], ...] = (
    *(RmmBuffer, PylibcudfColumn, CudfColumn, RaftArray, UcxxBuffer, CucimImage),
    *(PycudaArray, CvcudaBuffer),
    *(DaliTensor, CumlArray, CusignalShared, PyArrowBuffer),
)


def floats(seen: Any, view: Any) -> list[float]:
    """The floats that a read of a view saw, which may have been of its bytes."""
    if view.typestr == "|u1":
        return np.array(seen, "u1").view("<f4").tolist()  # type: ignore[no-any-return]
    return list(seen)
