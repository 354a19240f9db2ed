"""What arrays of the simulated device export: capsules, the exchange API, and who keeps memory."""

import gc
import weakref

import pytest
from found import kinds

pytestmark = pytest.mark.unchecked
ORDERED = pytest.mark.parametrize("ordered", [False, True])
DLPACK = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]


@pytest.mark.parametrize("speaks", ["dlpack", "dlpack-legacy", "dlpack-strict"])
@ORDERED
def test_dlpack_orders_the_pending_stream_before_the_consumers(cuda, speaks, ordered):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([0.0], speaks=speaks)
    p.fill(x, 7.0)
    if not ordered:
        cuda.suppress("cuStreamWaitEvent")
    kept = x.__dlpack__(stream=c.handle)
    seen = c.read(x)
    cuda.synchronize()
    assert seen.value == ([7.0] if ordered else [0.0])
    assert kinds(cuda) == ([] if ordered else ["race"])
    assert kept is not None


@pytest.mark.parametrize("speaks", DLPACK)
def test_dlpack_without_a_stream_is_ready_on_the_legacy_default_stream(cuda, speaks):
    x = cuda.array([0.0], speaks=speaks)
    cuda.stream("p").fill(x, 7.0)
    capsule = x.__dlpack__()
    seen = cuda.legacy.read(x)
    cuda.stream("c").read(x)
    assert kinds(cuda) == ["race"]
    cuda.synchronize()
    assert seen.value == [7.0]
    assert capsule is not None


@pytest.mark.parametrize(
    ("speaks", "arguments", "error"),
    [
        ("dlpack", {"stream": 0}, ValueError),
        ("dlpack", {"stream": -2}, ValueError),
        ("dlpack", {"stream": True}, TypeError),
        ("dlpack", {"copy": True}, BufferError),
        ("dlpack", {"dl_device": (1, 0)}, BufferError),
        ("dlpack-strict", {"stream": -1}, RuntimeError),
        ("dlpack-legacy", {"max_version": (1, 0)}, TypeError),
        ("dlpack-bare", {"stream": None}, TypeError),
    ],
)
def test_dlpack_refuses_what_its_producer_does_not_take(cuda, speaks, arguments, error):
    x = cuda.array([0.0], speaks=speaks)
    with pytest.raises(error):
        x.__dlpack__(**arguments)
    gc.collect()
    assert x.exports == 0


def test_a_capsule_is_versioned_only_for_those_who_ask(cuda):
    x, strict = cuda.array([1.0]), cuda.array([1.0], speaks="dlpack-strict")
    capsules = [
        *(x.__dlpack__(), x.__dlpack__(max_version=(0, 8)), x.__dlpack__(max_version=(1, 0))),
        strict.__dlpack__(max_version=(1, 0)),
    ]
    names = ["dltensor", "dltensor", "dltensor_versioned", "dltensor"]
    assert [repr(capsule).split('"')[1] for capsule in capsules] == names
    assert x.__dlpack__(dl_device=(2, 0), copy=False) is not None
    cuda.clear_calls()
    x.__dlpack__(stream=-1)
    assert cuda.calls == []


@pytest.mark.parametrize("speaks", DLPACK)
def test_a_read_only_array_refuses_a_legacy_capsule(cuda, speaks):
    x = cuda.array([1.0], speaks=speaks, readonly=True)
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()
    if speaks == "dlpack":
        assert x.__dlpack__(max_version=(1, 3)) is not None


def test_exports_are_counted_and_keep_the_memory(cuda):
    x = cuda.array([1.0], speaks=("exchange", "dlpack"), name="x")
    ptr, gone = x.ptr, weakref.ref(x)
    capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
    seen = cuda.consumer("dlpack-exchange").read(x)
    assert x.exports == 3
    del capsules[0]
    assert x.exports == 2
    cuda.synchronize()
    del x
    assert gone() is None
    cuda.legacy.launch(reads=[(ptr, 4)], name="late")
    assert kinds(cuda) == []
    cuda.synchronize()
    capsules.clear()
    seen.release()
    assert seen.value == [1.0]
    cuda.legacy.launch(reads=[(ptr, 4)], name="too late")
    assert kinds(cuda) == ["use after free"]
    assert cuda.reports[0].first.operation == "free"


@ORDERED
def test_an_array_that_goes_before_its_work_is_done_is_reported(cuda, ordered):
    x = cuda.array([1.0], name="x")
    cuda.stream("p").fill(x, 7.0)
    if ordered:
        cuda.synchronize()
    del x
    assert kinds(cuda) == ([] if ordered else ["race"])


@ORDERED
def test_memory_of_a_pool_is_handed_out_again_in_the_order_of_its_stream(cuda, ordered):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([1.0], stream=p, memory="pool", name="x")
    ptr = x.ptr
    c.wait(p.record())
    c.read(x)
    if ordered:
        p.wait(c.record())
    del x
    y = cuda.array([2.0], stream=p, memory="pool", name="y")
    assert y.ptr == ptr
    assert set(kinds(cuda)) == (set() if ordered else {"race"})


def test_arrays_that_refer_to_each_other_are_collected(cuda):
    x = cuda.array([1.0], speaks=("exchange", "dlpack", "cai"))
    x.me, gone = x, weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_bytes_can_be_had_that_speak_nothing(cuda):
    x = cuda.alloc(16)
    assert (x.nbytes, type(x)) == (16, type(cuda.array([1], dtype="uint8", speaks=())))
    assert not hasattr(x, "__dlpack__")


def test_numpy_reads_pinned_memory(cuda):
    numpy = pytest.importorskip("numpy")
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], memory="pinned", strides="F", offset=64)
    seen = numpy.from_dlpack(x)
    assert seen.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert seen.strides == x.strides
    assert x.exports == 1
    del seen
    assert x.exports == 0
    y = cuda.array([1.0], memory="pinned", readonly=True)
    assert not numpy.from_dlpack(y).flags.writeable


def test_tvm_ffi_imports_by_the_exchange_api(cuda):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    p = cuda.stream("p")
    x = cuda.array([[1.0, 2.0]], speaks=("exchange", "dlpack"), stream=p, offset=64)
    with cuda.current_stream(p):
        seen = tvm_ffi.from_dlpack(x)
    assert tuple(seen.shape) == (1, 2)
    assert x.exports == 1
    del seen
    assert x.exports == 0


@ORDERED
def test_the_exchange_api_names_the_librarys_current_stream_and_orders_nothing(cuda, ordered):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([0.0], speaks="exchange")
    p.fill(x, 7.0)
    if ordered:
        c.wait(p.record())
    with cuda.current_stream(c):
        seen = cuda.consumer("dlpack-exchange").read(x)
    cuda.synchronize()
    assert seen.value == ([7.0] if ordered else [0.0])
    assert kinds(cuda) == ([] if ordered else ["race"])
    cuda.clear_calls()
    with cuda.current_stream(p):
        cuda.consumer("dlpack-borrowed").read(x)
    assert cuda.calls == []
