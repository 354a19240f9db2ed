"""`convert` to Warp: an array over the memory, by a stand-in that does what Warp does.

The stand-in follows ``warp/_src`` of https://github.com/NVIDIA/warp, release 1.19: ``types.py``
(``array.__init__`` with a pointer, ``__del__``, slices that refer to their array, no more than four
dimensions) and ``context.py`` (``get_stream``, ``Stream.__cuda_stream__``). Where Warp itself is
installed its arrays are made as well, on the host, whose memory the simulated device's is.
"""

import gc
import sys
import types
import weakref

import numpy as np
import pytest
from scenes import done
from stand_in import made_on, no_libraries, producer

from cai_bridge import convert
from cai_bridge._libraries import _warp
from cai_bridge.testing._region import Region

__all__ = ["no_libraries", "producer"]

KNOWN = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16"


class array:
    def __init__(self, *, ptr, dtype, shape, strides, device, deleter):
        self.deleter = None
        if not 1 <= len(shape) <= 4:
            raise RuntimeError("the maximum number of dimensions is 4")
        self.ptr, self.dtype, self.shape, self.device = ptr, dtype, shape, device
        self.strides, self.deleter, self._ref = strides, deleter, None

    def __del__(self):
        if self.deleter is not None:
            self.deleter(self.ptr, 0)

    def sliced(self):
        of = ("ptr", "dtype", "shape", "strides", "device")
        made = array(**{name: getattr(self, name) for name in of}, deleter=None)
        made._ref = self
        return made

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        raise AssertionError("nobody asks")


array.__module__ = "warp._src.types"


def forget():
    for name in ("types", "converter"):
        _warp.WARP.__dict__.pop(name, None)


@pytest.fixture
def streams(cuda):
    """The stream of each device, which Warp works on."""
    return {f"cuda:{one}": cuda.stream(f"Warp's {one}", device=one) for one in range(2)}


@pytest.fixture
def warp(monkeypatch, streams, no_libraries):
    """The stand-in, as the module."""
    made = types.ModuleType("warp")
    made.array, made.get_stream = array, streams.__getitem__
    for name in KNOWN.split():
        setattr(made, name, type(name, (), {}))
    monkeypatch.setitem(sys.modules, "warp", made)
    forget()
    yield made
    forget()


def items(made):
    """What the simulated device is told of an array of four floats."""
    return Region(made.ptr, (4,), (4,), "float32", 4)


@pytest.mark.parametrize(
    ("speaks", "device"), [("exchange", 0), ("dlpack", 0), ("cai3", 0), ("cai3", 1)]
)
def test_an_array_is_ready_on_the_stream_that_warp_works_on(cuda, warp, streams, speaks, device):
    there = cuda.stream("producer", device=device)
    with cuda.current_stream(there):
        x = made_on(cuda, there, 7.0, speaks)
        made = convert(x, "warp")
    assert (type(made), made.ptr, made.shape, made.dtype) == (array, x.ptr, (4,), warp.float32)
    assert (made.strides, made.device) == (None, f"cuda:{device}")
    assert done(streams[made.device].read(items(made))) == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("waits", [True, False])
def test_the_memory_goes_back_in_order_when_the_array_and_its_slices_are_gone(
    waits, cuda, producer, warp, streams
):
    x = made_on(cuda, producer, 7.0)
    exports, gone = x.exports, weakref.ref(x)
    made = convert(x, "warp")
    part = made.sliced()
    del made
    gc.collect()
    assert x.exports > exports
    seen = streams["cuda:0"].read(items(part))
    if not waits:
        cuda.suppress("cuStreamWaitEvent")
    del part
    gc.collect()
    assert x.exports == exports
    producer.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [7.0] * 4 or not waits
    assert [report.kind for report in cuda.reports] == ([] if waits else ["race"])
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("dtype", KNOWN.split())
def test_element_types_are_warps_of_the_same_name(cuda, warp, dtype):
    made = convert(cuda.array(shape=4, dtype=dtype), "warp")
    assert made.dtype is getattr(warp, dtype)


REFUSED = {
    **{
        dtype: ({"dtype": dtype}, f"dtype: got {dtype}; allowed: bool, integers, floats")
        for dtype in ("complex64", "complex128", "float8_e4m3fn", "bfloat16")
    },
    "no dimension": ({"shape": ()}, "ndim: got 0; allowed: 1 to 4"),
    "five dimensions": ({"shape": (1,) * 5}, "ndim: got 5; allowed: 1 to 4"),
    "read-only": ({"readonly": True}, "readonly: got read-only memory"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_warp_has_no_array_for_is_refused(cuda, warp, kind):
    del warp.bfloat16  # as in an older Warp
    made, said = REFUSED[kind]
    x = cuda.array(**{"shape": 4, "speaks": "dlpack", **made})
    with pytest.raises(BufferError, match=f"^{said}"):
        convert(x, "warp")
    gc.collect()
    assert x.exports == 0


def test_strides_are_given_where_there_are_gaps_and_up_to_four_dimensions(cuda, warp):
    columns = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F")
    assert convert(columns, "warp").strides == (4, 8)
    assert convert(cuda.array(shape=(1,) * 4), "warp").shape == (1,) * 4
    x = cuda.array([1.0], readonly=True)
    assert convert(x, "warp", readonly=False).ptr == x.ptr


def test_warps_arrays_are_found_by_their_type(cuda, warp):
    made = convert(cuda.array([1.0]), warp.array)
    assert convert(made, "warp") is made


@pytest.fixture
def real(monkeypatch, cuda, no_libraries):
    made = pytest.importorskip("warp")
    made.config.quiet = True
    monkeypatch.setattr(_warp, "_device", lambda ordinal: "cpu")
    monkeypatch.setattr(_warp.Warp, "current_stream", lambda self, device: cuda.legacy)
    forget()
    yield made
    forget()


@pytest.mark.parametrize("dtype", KNOWN.split())
def test_warp_itself_reads_every_type_that_it_has(cuda, real, dtype):
    values = [[1, 0, 1], [0, 1, 1]]
    x = cuda.array(values, dtype=dtype)
    made = convert(x, "warp")
    cuda.synchronize()
    assert (type(made), made.ptr, made.shape) == (real.array, x.ptr, (2, 3))
    seen = made.numpy()
    if dtype == "bfloat16" and seen.dtype == np.uint16:
        seen = seen >> 7  # the bits of 1.0 are 0x3f80
        values = [[0x7F * one for one in row] for row in values]
    assert seen.astype(float).tolist() == values


def test_warp_itself_reads_gaps_and_backwards_and_keeps_the_memory(cuda, real):
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F")
    made = convert(x, "warp")
    assert made.numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not made.is_contiguous
    part = made[1:]
    del made
    gc.collect()
    assert x.exports > 0
    assert part.numpy().tolist() == [[3.0, 4.0]]
    del part
    gc.collect()
    assert x.exports == 0
    nothing = convert(cuda.array(shape=(0, 2)), "warp")
    assert nothing.shape == (0, 2)


def test_inside_a_capture_warps_stream_joins_the_graph_and_leaves_it(cuda, warp, streams):
    origin, warps = cuda.stream("origin"), streams["cuda:0"]
    x = cuda.array([0.0] * 4, speaks="exchange", stream=origin)
    with cuda.capture(origin) as graph, cuda.current_stream(origin):
        origin.fill(x, 7.0)
        made = convert(x, "warp", stream=warps)
        seen = warps.read(items(made))
        del made
        origin.fill(x, 9.0)
    for _ in range(2):
        graph.launch(origin)
        origin.synchronize()
        assert seen.value == [7.0] * 4
