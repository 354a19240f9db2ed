"""Memory that the bridge handed out, and that comes back by another's hands, is known again."""

import gc
import sys
from pathlib import Path

import pytest
import tvm_ffi
from scenes import done
from stand_in import count, library, made_on, no_libraries, producer

from cai_bridge import adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge._core import _settle

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import toy_library

__all__ = ["library", "no_libraries", "producer"]


class OnlyDlpack:
    """A class of one's own, whose `__dlpack__` is the bridge's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return from_cai(self.array).__dlpack__(**how)

    def __dlpack_device__(self):
        return (2, 0)


class Both(OnlyDlpack):
    """The same with a dict, which names its stream."""

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


BY_HAND = {
    "a capsule": lambda x, stream: to_dlpack(x).__dlpack__(stream=stream),
    "versioned": lambda x, stream: to_dlpack(x).__dlpack__(stream=stream, max_version=(1, 3)),
    "another's tensor": lambda x, stream: tvm_ffi.from_dlpack(to_dlpack(x)).__dlpack__(),
    "a class": lambda x, stream: OnlyDlpack(x),
    "a class with a dict": lambda x, stream: Both(x),
}


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("by", ["cai", "a tree", "dlpack"])
def test_a_capsule_for_a_bare_handle_is_ready_after_its_producers_work(by, blocking, cuda):
    p, v, c = cuda.stream("p"), cuda.stream("v", blocking=blocking), cuda.stream("c")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p, name="x")
    capsule = to_dlpack(x).__dlpack__(stream=v.handle)
    if by == "dlpack":
        seen = cuda.consumer("dlpack", c).read(to_dlpack(capsule))
    else:
        taken = to_cai(capsule, stream=c) if by == "cai" else convert([capsule], "cai", stream=c)[0]
        seen = c.read(taken)
    assert done(seen) == [1.0] * 4


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("ends", ["dropped", "released on the handle's stream"])
@pytest.mark.parametrize("how", BY_HAND)
def test_the_producer_waits_for_whoever_took_its_memory(how, ends, blocking, cuda):
    p, s = cuda.stream("p", blocking=blocking), cuda.stream("s", blocking=blocking)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p, name="x")
    p.fill(x, 2.0)
    taken = to_cai(BY_HAND[how](x, s), stream=s if ends == "dropped" else s.handle)
    seen = s.read(taken)
    s.fill(taken, 3.0)
    if ends != "dropped":
        taken.release(s)
    del taken
    gc.collect()
    if "class" in how:
        assert cuda.pending > 0 or ends != "dropped", "the host does not wait"
        assert _settle() == 0, "nothing is kept until it is done"
    after = p.read(x)
    cuda.synchronize()
    assert (seen.value, after.value) == ([2.0] * 4, [3.0] * 4)


def test_the_toy_library_gets_its_memory_back_in_order(cuda):
    p, s = cuda.stream("p"), cuda.stream("s")
    with toy_library.use(p):
        x = toy_library.Array.empty((4,))
        x.fill(2.0)
        for take in (to_cai, lambda x, stream: to_cai(to_dlpack(x), stream=stream)):
            with take(x, stream=s) as taken:
                s.fill(taken, 3.0)
            assert done(p.read(x)) == [3.0] * 4


def test_copies_of_convert_are_freed_in_the_order_of_their_stream(cuda, library, producer):
    x = made_on(cuda, producer, 7.0)
    for _ in range(20):
        convert(x, "stand_in", copy=True)
    gc.collect()
    assert _settle() == 0
    assert count(cuda, "cuMemAllocAsync") == count(cuda, "cuMemFreeAsync") == 20
    cuda.synchronize()


def as_a_result(x, library, stream, own):
    """The caller's stream is a user of a result that is the argument."""
    call = adapt(lambda x: x, to="stand_in", stream=own, returns="stand_in")
    library.streams[0] = stream
    return call(x)


def as_its_own(x, library, stream, own):
    """So is a stream that an array of its own library is converted for."""
    y = convert(x, "stand_in")
    assert convert(y, "stand_in", stream=stream) is y
    return y


@pytest.mark.parametrize("again", [as_a_result, as_its_own])
def test_a_stream_that_the_librarys_array_goes_on_to_is_a_user(cuda, library, producer, again):
    x, stream = made_on(cuda, producer, 7.0), cuda.stream("caller's")
    y = again(x, library, stream, cuda.stream("function's"))
    stream.fill(y.view, 9.0)
    del y
    gc.collect()
    assert done(producer.read(x)) == [9.0] * 4
