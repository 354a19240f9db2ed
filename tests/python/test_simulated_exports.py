"""What arrays of the simulated device export, who keeps memory, and its stand-in consumers."""

import gc
import weakref

import pytest
from found import kinds

from cai_bridge import DriverError, from_cai, to_cai
from cai_bridge.testing import Consumer

pytestmark = pytest.mark.unchecked
ORDERED = pytest.mark.parametrize("ordered", [False, True])
DLPACK = ["dlpack", "dlpack-legacy", "dlpack-strict", "dlpack-bare"]
CAI_KINDS = ["cai-waits", "cai-enqueues", "cai-blocks", "cai-trusting"]
DLPACK_KINDS = ["dlpack", "dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"]
EXCHANGE_KINDS = ["dlpack-exchange", "dlpack-borrowed"]
EVERYTHING = ("exchange", "dlpack", "cai")


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


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("kind", [*CAI_KINDS, *DLPACK_KINDS, *EXCHANGE_KINDS])
def test_a_consumer_reads_what_was_written_unless_it_ignores_the_order(cuda, kind, device):
    p, c = cuda.stream("p", device=device), cuda.stream("c")
    x = cuda.array([0.0, 0.0], speaks=EVERYTHING, name="x", device=device)
    p.fill(x, 7.0)
    with cuda.current_stream(p):
        seen = cuda.consumer(kind, c).read(x)
    cuda.synchronize()
    careless = kind in {"cai-trusting", "dlpack-unordered"}
    assert kinds(cuda) == (["race"] if careless else [])
    assert seen.value == ([0.0, 0.0] if careless else [7.0, 7.0])


@pytest.mark.parametrize("kind", [*CAI_KINDS, *DLPACK_KINDS, *EXCHANGE_KINDS])
def test_a_consumers_write_is_a_write_and_refused_where_memory_is_read_only(cuda, kind):
    consumer = cuda.consumer(kind, cuda.stream("c"))
    assert isinstance(consumer, Consumer)
    x, readonly = (cuda.array([0.0], speaks=EVERYTHING, readonly=not w) for w in (True, False))
    done = consumer.write(x, 7.0)
    cuda.synchronize()
    assert (x.tolist(), done.value, kinds(cuda)) == ([7.0], None, [])
    if kind == "dlpack-borrowed":  # a borrowed tensor has no flag
        return
    with pytest.raises(BufferError, match="read-only"):
        consumer.write(readonly, 7.0)
    assert readonly.exports == 0


@pytest.mark.parametrize("kind", ["cai-waits", "dlpack", "dlpack-none"])
def test_a_consumers_order_is_an_event_wait(cuda, kind):
    x = cuda.array([0.0], speaks=EVERYTHING, stream=cuda.stream("p"))
    cuda.clear_calls()
    cuda.suppress("cuStreamWaitEvent")
    cuda.consumer(kind, cuda.stream("c")).read(x)
    assert kinds(cuda) == ["race"]
    assert [c.call for c in cuda.calls] == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"]


def test_a_consumer_that_blocks_runs_the_work(cuda):
    x = cuda.array([0.0], speaks="cai", stream=cuda.stream("p"))
    assert cuda.pending == 1
    cuda.consumer("cai-blocks").read(x)
    assert cuda.pending == 1
    assert [call.call for call in cuda.calls] == ["cuStreamSynchronize"]


@pytest.mark.parametrize("kind", [*DLPACK_KINDS, "dlpack-exchange"])
def test_a_tensor_is_held_until_its_result_goes_and_deleted_once(cuda, kind):
    x = cuda.array([1.0], speaks=EVERYTHING)
    kept, dropped = cuda.consumer(kind).read(x), cuda.consumer(kind).read(x)
    assert x.exports == 2
    del dropped
    assert x.exports == 1
    cuda.synchronize()
    assert (x.exports, kept.value) == (1, [1.0])
    kept.release()
    kept.release()
    assert (x.exports, kept.value) == (0, [1.0])


@pytest.mark.parametrize("kind", [*CAI_KINDS, "dlpack-borrowed"])
def test_an_object_without_a_tensor_of_its_own_is_held_itself(cuda, kind):
    x = cuda.array([1.0], speaks=EVERYTHING)
    gone = weakref.ref(x)
    seen = cuda.consumer(kind).read(x)
    del x
    assert gone() is not None
    cuda.synchronize()
    del seen
    gc.collect()
    assert gone() is None
    assert kinds(cuda) == []


def test_a_consumer_of_an_old_dict_or_that_lets_go_too_early_is_reported(cuda):
    x = cuda.array([0.0], speaks="cai2", stream=cuda.stream("p"))
    cuda.consumer("cai-waits", cuda.stream("c")).read(x)
    assert kinds(cuda) == ["race"], "there is no stream to wait for"
    cuda.synchronize()
    y = cuda.array([1.0], name="y")
    cuda.consumer("dlpack").read(y)
    del y
    assert kinds(cuda) == ["race", "race"]


def test_a_consumer_that_is_given_the_wrong_protocol_says_so(cuda):
    for kind, error in [("cai-waits", AttributeError), ("dlpack-exchange", TypeError)]:
        with pytest.raises(error):
            cuda.consumer(kind).read(cuda.array([1.0], speaks="dlpack"))
    with pytest.raises(ValueError, match="cai-trusting"):
        cuda.consumer("cai")


def test_a_failed_wait_leaves_nothing_exported(cuda):
    x = cuda.array([1.0], stream=cuda.stream("p"))
    cuda.fail("cuEventRecord")
    with pytest.raises(DriverError):
        cuda.consumer("dlpack", cuda.stream("c")).read(x)
    gc.collect()
    assert x.exports == 0


def test_the_host_reads_views_of_the_bridge(cuda):
    x = cuda.array([1.5, 2.0], speaks=("dlpack", "cai"), dtype="bfloat16")
    assert cuda.read(from_cai(x)) == cuda.read(to_cai(x)) == cuda.read(x) == [1.5, 2.0]
