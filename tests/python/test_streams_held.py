"""A stream is touched only while something that the view holds keeps it alive."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


def dict_of_the_moment(cuda: Any, name: str) -> tuple[Any, dict[str, Any], Any]:
    """An array whose dict names a stream that nothing but its own object keeps, as CuPy's do."""
    stream = cuda.stream(name)
    array = cuda.array([0.0] * 4, dtype="float32", speaks="cai", name="x")
    interface = dict(array.__cuda_array_interface__, stream=stream.handle)
    return array, interface, stream


def test_a_librarys_current_stream_is_held_by_the_view_that_its_dict_made() -> None:
    with simulated_cuda() as cuda:
        array, interface, stream = dict_of_the_moment(cuda, "current")
        with cuda.current_stream(stream):
            view = from_cai(interface, owner=array)
        gone = weakref.ref(stream)
        del stream
        gc.collect()
        assert gone() is not None
        view.__dlpack__(stream=cuda.stream("consumer"))
        assert cuda.reports == []
        view.release()
        assert gone() is None


def test_another_current_stream_is_not_held_and_what_is_gone_is_not_touched() -> None:
    with simulated_cuda() as cuda:
        array, interface, stream = dict_of_the_moment(cuda, "gone")
        other, consumer = cuda.stream("another"), cuda.stream("consumer")
        stream.fill(array, 7.0)
        with cuda.current_stream(other):
            before = sys.getrefcount(other)
            view = from_cai(interface, owner=array)
            assert sys.getrefcount(other) == before
        del stream
        gc.collect()
        seen = cuda.consumer("dlpack", consumer).read(view)
        cuda.synchronize()
        assert seen.value == [7.0] * 4


def test_a_stream_object_that_the_caller_gives_is_held_by_the_view() -> None:
    with simulated_cuda() as cuda:
        array = cuda.array([0.0] * 4, dtype="float32", speaks="cai2", name="x")
        declared = from_cai(array, stream=cuda.stream("declared"))
        asked = to_cai(declared, stream=cuda.stream("asked"))
        del declared
        gc.collect()
        from_cai(asked).__dlpack__(stream=cuda.stream("consumer"))
        assert cuda.reports == []
