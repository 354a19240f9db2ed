"""Stand-ins for libraries that take arrays in: what each makes of an object that is handed to it.

Each does what the library's source does with the protocols, and no more; the source is named as it
is on github.com. What they work on is memory of the simulated device, by streams of it.
"""

import json
import math

import capsules
import numpy as np

from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES, compact_strides

NAMES = {np.dtype(one.typestr).str: name for name, one in DTYPES.items() if one.typestr[1] != "V"}


def region(ptr, shape, typestr, strides=None):
    itemsize = np.dtype(typestr).itemsize
    strides = strides or compact_strides(shape, itemsize)
    return Region(ptr, shape, strides, NAMES[np.dtype(typestr).str], itemsize)


class Exporting:
    """An object with a dict, and what it keeps."""

    def __init__(self, interface, *kept):
        self.__cuda_array_interface__ = interface
        self.kept = kept

    @classmethod
    def of(cls, module):
        """A type of that module's: the bridge knows some libraries by it."""
        return type("Array", (cls,), {"__module__": module})


class Taking:
    """What a library makes of an object, and the stream that it works on.

    `minds` tells what it does about the dict's stream: nothing, ``"works on it"``, ``"its stream
    waits"``, or ``"the host waits"``. `keeps` tells whether it holds the object, and `compact`
    whether it takes C-contiguous memory alone.
    """

    minds, keeps, compact, on = "", True, False, "its own"

    def __init__(self, cuda, obj, stream):
        self.cuda, self.stream = cuda, stream
        self.kept = obj if self.keeps else None
        self.region = self.take(obj)

    def take(self, obj):
        said = obj.__cuda_array_interface__
        assert type(said) is dict
        assert {"typestr", "shape", "data", "version"} <= set(said)
        assert said.get("mask") is None
        assert not self.compact or said.get("strides") is None
        if said.get("stream") is not None:
            self.mind(self.cuda.stream_of(said["stream"]))
        return region(said["data"][0], said["shape"], said["typestr"], said.get("strides"))

    def mind(self, theirs):
        match self.minds:
            case "works on it":
                self.stream = theirs
            case "its stream waits":
                self.stream.wait(theirs.record())
            case "the host waits":
                theirs.synchronize()

    def read(self):
        return self.stream.read(self.region, name=f"{self.name} reads")

    def write(self, value):
        self.stream.fill(self.region, value, name=f"{self.name} writes")


class Pylibcudf(Taking):
    """``gpumemoryview``, and ``Column.from_cuda_array_interface`` over one. rapidsai/cudf,
    python/pylibcudf/pylibcudf, release 26.10: gpumemoryview.pyx and column.pyx. The dict is read
    once and handed out again as it is; its stream and its flag are marked as still to do. A slice
    has a dict of version 3 without a stream."""

    name, compact = "pylibcudf", True

    def take(self, obj):
        self.cai = obj.__cuda_array_interface__
        assert self.cai["typestr"][0] != ">"
        return super().take(obj)

    @property
    def __cuda_array_interface__(self):
        return self.cai

    def byte_slice(self, part):
        nbytes = math.prod(self.cai["shape"]) * int(self.cai["typestr"][2:])
        start, stop, _ = part.indices(nbytes)
        ptr, readonly = self.cai["data"]
        cai = {"shape": (stop - start,), "typestr": "|u1", "version": 3}
        cai["data"] = (ptr + start, readonly)
        return Exporting.of("pylibcudf.gpumemoryview")(cai, self)


class Cudf(Pylibcudf):
    """A cuDF column of an array, which is pylibcudf's. rapidsai/cudf,
    python/cudf/cudf/core/column/column.py, release 26.10: ``from_cuda_array_interface``. It asks
    for the entry ``strides``, whatever the specification says of optional ones, and copies what is
    not C-contiguous by CuPy."""

    name = "cuDF"

    def take(self, obj):
        assert obj.__cuda_array_interface__["strides"] is None
        return super().take(obj)


class Raft(Taking):
    """``cai_wrapper``, which the functions of pylibraft make of their arguments. rapidsai/raft,
    python/pylibraft/pylibraft/common, release 26.10: cai_wrapper.py, ai_wrapper.py and handle.pyx.
    The dict is all that it keeps. Without a stream a handle works on the per-thread default one."""

    name, keeps, compact, on = "RAFT", False, True, "per-thread"


class Ucxx(Taking):
    """``Array``, which ucxx makes of what it sends and receives. rapidsai/ucxx,
    python/ucxx/ucxx/_lib/arr.pyx, release 0.52. It holds the object, keeps the flag, refuses masks,
    and reads neither version nor stream."""

    name = "ucxx"


class PyArrow(Taking):
    """``pyarrow.cuda.Context.buffer_from_object``: a buffer of all bytes that the dict spans.
    apache/arrow, python/pyarrow/_cuda.pyx. It holds the object as the buffer's base and reads
    neither stream nor flag. Copies are made on the legacy default stream; "caller is responsible
    for ensuring that all tasks affecting the memory are finished"."""

    name, on = "PyArrow", "legacy"

    def take(self, obj):
        desc = obj.__cuda_array_interface__
        self.base = obj
        itemsize = np.dtype(desc["typestr"]).itemsize
        strides = desc.get("strides") or compact_strides(desc["shape"], itemsize)
        reach = [s * (n - 1) for s, n in zip(strides, desc["shape"], strict=True)]
        start = sum(one for one in reach if one < 0)
        self.size = sum(map(abs, reach)) + itemsize
        self.address = desc["data"][0] + start
        return region(self.address, (self.size // itemsize,), desc["typestr"])


class Compute(Taking):
    """What the algorithms of cuda.compute make of their arguments. NVIDIA/cccl,
    python/cuda_cccl/cuda/compute, cuda-cccl 1.2.1: _utils/protocols.py and algorithms/_reduce.py.
    Each reads the dict for its address, and queues its work on the stream that it is passed, else
    on the legacy default one. It keeps nothing."""

    name, keeps, on = "cuda.compute", False, "legacy"

    def take(self, obj):
        desc = obj.__cuda_array_interface__
        assert desc["strides"] is None
        return region(obj.__cuda_array_interface__["data"][0], obj.shape, desc["typestr"])


class Dali(Taking):
    """``TensorGPU(obj)``, and what ``external_source`` makes of its arrays. NVIDIA/DALI,
    dali/python/backend_impl.cc: FillTensorFromCudaArray. It works in the order of the dict's stream
    (1 is the legacy one, 0 is refused), holds the object, and takes densely packed memory only."""

    name, minds, compact = "DALI", "works on it", True

    def take(self, obj):
        assert obj.__cuda_array_interface__.get("stream") != 0
        return super().take(obj)


class Cupy(Taking):
    """``cupy.asarray(obj)``, by which cuML and cuSignal take arrays in. cupy/cupy,
    cupy/_core/core.pyx: the host waits for the dict's stream, and the array holds the object and is
    worked on in CuPy's current stream."""

    name, minds = "CuPy", "the host waits"


class Cuml(Cupy):
    """``check_array`` and ``CumlArray``, which call ``cupy.array`` and ``cupy.asarray``.
    rapidsai/cuml, python/cuml/cuml/internals: validation.py, and array.py of earlier releases."""

    name = "cuML"


class Cusignal(Cupy):
    """Its functions begin with ``cupy.asarray``. rapidsai/cusignal,
    python/cusignal/utils/arraytools.py. It lives on as ``cupyx.scipy.signal``."""

    name = "cuSignal"


class ArrayViews(Taking):
    """``cupy_ndarray_as.numba_cuda_DeviceNDArray``, which is ``numba.cuda.as_cuda_array``.
    xnd-project/arrayviews, arrayviews/cuda/cupy_ndarray_as.py. Numba makes the host wait for the
    dict's stream, which is its array's from then on, and holds the object."""

    name, minds = "ArrayViews", "the host waits"


class PyCuda(Taking):
    """A kernel's argument: the dict's address. inducer/pycuda, pycuda/driver.py, 2026.1:
    ``_build_arg_buf`` and ``function_call``. A launch without a stream is on the legacy default
    one. It keeps nothing."""

    name, keeps, on = "PyCUDA", False, "legacy"


class CvCuda(Taking):
    """``cvcuda.as_tensor(obj)``, which asks for the dict before DLPack. CVCUDA/CV-CUDA,
    python/mod_nvcv, 0.15: ExternalBuffer.cpp and Stream.cpp. It holds the object, reads no stream,
    and works on the current stream of its own, which is the legacy default one at first. An object
    with DLPack alone is asked as ``__dlpack__(1)``."""

    name, on = "CV-CUDA", "legacy"

    def take(self, obj):
        if not hasattr(obj, "__cuda_array_interface__"):
            self.kept = obj.__dlpack__(1)
            tensor = capsules.read(self.kept)
            assert tensor.name == "dltensor"
            return region(tensor.ptr, tensor.shape, "<f4")
        said = obj.__cuda_array_interface__
        assert type(said["data"]) is type(said["shape"]) is tuple
        assert said["version"] >= 2
        return super().take(obj)


class Holoscan(Taking):
    """``holoscan.core.Tensor.as_tensor(obj)`` of an object with a dict.
    nvidia-holoscan/holoscan-sdk, python/holoscan/core/tensor.cpp, 3.10: ``from_array_interface``
    and ``process_array_interface_stream``. It makes the dict's stream wait for the legacy default
    one, and not the other way round. It holds the object."""

    name, on = "Holoscan", "legacy"

    def mind(self, theirs):
        theirs.wait(self.cuda.legacy.record())


class CuTile(Taking):
    """An argument of ``cuda.tile.launch(stream, ...)``. NVIDIA/cutile-python, cext/tile_kernel.cpp:
    the dict's typestr, shape, data and strides are read, for a launch on the stream that it is
    passed. It keeps nothing."""

    name, keeps = "cuTile", False


class Xgboost(Taking):
    """The data of a ``DMatrix``, and of ``inplace_predict``: the dict, as JSON. dmlc/xgboost, 3.5:
    python-package/xgboost/data.py and src/data/array_interface.cu. Its stream, the per-thread
    default one, waits for the dict's; with the legacy one it is in order anyway."""

    name, minds, keeps, on = "XGBoost", "its stream waits", False, "per-thread"

    def take(self, obj):
        iface = json.loads(json.dumps(obj.__cuda_array_interface__))
        assert iface["version"] <= 3
        assert obj.dtype.hasobject is False
        if iface.get("stream") not in {None, 1}:
            self.stream.wait(self.cuda.stream_of(iface["stream"]).record())
        return region(iface["data"][0], tuple(obj.shape), iface["typestr"])


class Mpi4py(Taking):
    """What mpi4py makes of a buffer argument: DLPack before CAI, and no order by either.
    mpi4py/mpi4py, src/mpi4py/MPI.src: asbuffer.pxi, asdlpack.pxi and ascaibuf.pxi. It asks
    ``__dlpack__(stream=-1, max_version=(1, 0), copy=False)`` and keeps the capsule, which it does
    not consume."""

    name = "mpi4py"

    def take(self, obj):
        if not hasattr(obj, "__dlpack__"):
            return super().take(obj)
        self.kept = obj.__dlpack__(stream=-1, max_version=(1, 0), copy=False)
        tensor = capsules.read(self.kept)
        assert (tensor.name, tensor.dtype) == ("dltensor_versioned", (2, 32, 1))
        return region(tensor.ptr, tensor.shape, "<f4")


TAKING = (
    *(Pylibcudf, Cudf, Raft, Compute, Ucxx, PyArrow, Dali, Cuml, Cusignal, ArrayViews, Mpi4py),
    *(PyCuda, CvCuda, Holoscan, CuTile, Xgboost),
)
