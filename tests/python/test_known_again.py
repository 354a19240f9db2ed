"""Memory that the bridge handed out, and that comes back by another's hands, is known again."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from scenes import done
from stand_in import StandIn, library, made_on, no_libraries, producer

from cai_bridge import adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge._core import _settle

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import toy_library

__all__ = ["library", "no_libraries", "producer"]


class Both:
    """A class of one's own: its dict names its stream, and its `__dlpack__` is the bridge's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__

    def __dlpack__(self, **how: Any) -> Any:
        return from_cai(self).__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class OnlyDlpack:
    """The same without a dict."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **how: Any) -> Any:
        return from_cai(self._array).__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def _capsule(x: Any, stream: Any) -> Any:
    return to_dlpack(x).__dlpack__(stream=stream)


def _versioned(x: Any, stream: Any) -> Any:
    return to_dlpack(x).__dlpack__(stream=stream, max_version=(1, 3))


def written(cuda: Any, *, blocking: bool = False) -> tuple[Any, Any, Any]:
    """A producer's stream and a consumer's, and the producer's array, which it has just written."""
    p, s = cuda.stream("p", blocking=blocking), cuda.stream("s", blocking=blocking)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p, name="x")
    p.fill(x, 2.0)
    return p, s, x


def _around(x: Any, stream: Any) -> Any:
    """A capsule of another's tensor around one of ours."""
    return tvm_ffi.from_dlpack(to_dlpack(x)).__dlpack__()


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("made", [_capsule, _versioned, _around])
def test_the_producer_of_our_own_tensor_waits_for_whoever_took_it(
    made: Any, blocking: bool, cuda: Any
) -> None:
    p, s, x = written(cuda, blocking=blocking)
    taken = to_cai(made(x, s), stream=s)
    seen = s.read(taken)
    s.fill(taken, 3.0)
    del taken
    gc.collect()
    after = p.read(x)
    cuda.synchronize()
    assert (seen.value, after.value) == ([2.0] * 4, [3.0] * 4)


@pytest.mark.parametrize("named", ["object", "handle"])
@pytest.mark.parametrize("kind", [Both, OnlyDlpack])
def test_a_class_whose_dlpack_is_the_bridges_gets_its_memory_back_in_order(
    kind: Any, named: str, cuda: Any
) -> None:
    p, s, x = written(cuda)
    cuda.clear_calls()
    taken = to_cai(kind(x), stream=s if named == "object" else s.handle)
    seen = s.read(taken)
    s.fill(taken, 3.0)
    taken.release(s)
    del taken
    gc.collect()
    assert _settle() == 0, "nothing is kept until it is done"
    after = p.read(x)
    cuda.synchronize()
    assert (seen.value, after.value) == ([2.0] * 4, [3.0] * 4)


def test_a_stream_object_that_a_producer_is_told_by_its_handle_is_known_to_its_own_bridge(
    cuda: Any,
) -> None:
    p, s = cuda.stream("p", blocking=False), cuda.stream("s", blocking=False)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p, name="x")
    taken = to_cai(OnlyDlpack(x), stream=s)
    s.fill(taken, 3.0)
    cuda.clear_calls()
    del taken
    gc.collect()
    assert cuda.pending > 0, "the host does not wait"
    after = p.read(x)
    assert done(after) == [3.0] * 4


def test_the_toy_library_gets_its_memory_back_in_order(cuda: Any) -> None:
    p, s = cuda.stream("p", blocking=False), cuda.stream("s", blocking=False)
    with toy_library.use(p):
        x = toy_library.Array.empty((4,))
        x.fill(2.0)
        for take in (to_cai, lambda x, stream: to_cai(to_dlpack(x), stream=stream)):
            with take(x, stream=s) as taken:
                s.fill(taken, 3.0)
            seen = p.read(x)
            assert done(seen) == [3.0] * 4


def test_copies_of_convert_are_freed_in_the_order_of_their_stream(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    for _ in range(20):
        copy = convert(x, "stand_in", copy=True)
        del copy
    gc.collect()
    assert _settle() == 0
    held = [a for a in cuda.calls if a.call == "cuMemAllocAsync"]
    freed = [a for a in cuda.calls if a.call == "cuMemFreeAsync"]
    assert (len(held), len(freed)) == (20, 20)
    cuda.synchronize()


def test_the_callers_stream_is_a_user_of_a_result_that_is_the_argument(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    function_stream = cuda.stream("function's", blocking=False)
    callers = cuda.stream("caller's", blocking=False)
    x = made_on(cuda, producer, 7.0)
    call = adapt(lambda x: x, to="stand_in", stream=function_stream, returns="stand_in")
    library.streams[0] = callers
    y = call(x)
    callers.fill(y.view, 9.0)
    del y
    gc.collect()
    seen = producer.read(x)
    assert done(seen) == [9.0] * 4


def test_a_stream_that_an_array_of_its_own_library_is_converted_for_is_a_user(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x, g = made_on(cuda, producer, 7.0), cuda.stream("g", blocking=False)
    y = convert(x, "stand_in")
    assert convert(y, "stand_in", stream=g) is y
    g.fill(y.view, 9.0)
    del y
    gc.collect()
    seen = producer.read(x)
    assert done(seen) == [9.0] * 4
