"""Stand-in consumers: each works where it may, and holds what it took."""

import gc
import weakref

import pytest
from found import kinds

from cai_bridge import DriverError, from_cai, to_cai
from cai_bridge.testing import Consumer

pytestmark = pytest.mark.unchecked
CAI = ["cai-waits", "cai-enqueues", "cai-blocks", "cai-trusting"]
DLPACK = ["dlpack", "dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"]
EXCHANGE = ["dlpack-exchange", "dlpack-borrowed"]
EVERYTHING = ("exchange", "dlpack", "cai")


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("kind", [*CAI, *DLPACK, *EXCHANGE])
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


@pytest.mark.parametrize("kind", [*CAI, *DLPACK, *EXCHANGE])
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


@pytest.mark.parametrize("kind", [*DLPACK, "dlpack-exchange"])
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


@pytest.mark.parametrize("kind", [*CAI, "dlpack-borrowed"])
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
