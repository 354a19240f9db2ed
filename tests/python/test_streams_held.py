"""A stream is touched only while something that the view holds keeps it alive."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A module that tells a current stream, as CuPy does."""
    module = types.SimpleNamespace(current=None)
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: module.current)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


class Pointer:
    """A CuPy stream: its handle is `ptr`, and its end is the stream's."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.ptr = stream.handle


def dict_of_the_moment(cuda: Any, name: str) -> tuple[Any, dict[str, Any], Any]:
    """An array whose dict names a stream that nothing but its own object keeps."""
    stream = cuda.stream(name)
    array = cuda.array([0.0] * 4, dtype="float32", speaks="cai", name="x")
    interface = dict(array.__cuda_array_interface__, stream=stream.handle)
    return array, interface, stream


def test_cupys_current_stream_is_held_by_the_view_that_its_dict_made(cupy: Any) -> None:
    with simulated_cuda() as cuda:
        array, interface, stream = dict_of_the_moment(cuda, "cupy's")
        cupy.current = Pointer(stream)
        view = from_cai(interface, owner=array)
        cupy.current = None
        del stream
        gc.collect()
        view.__dlpack__(stream=cuda.stream("consumer"))
        assert [report.kind for report in cuda.reports] == []


def test_another_current_stream_is_not_held(cupy: Any) -> None:
    with simulated_cuda(check=False) as cuda:
        array, interface, stream = dict_of_the_moment(cuda, "gone")
        other = cuda.stream("another")
        cupy.current = Pointer(other)
        before = sys.getrefcount(cupy.current)
        view = from_cai(interface, owner=array)
        after = sys.getrefcount(cupy.current)
        assert after == before
        del stream
        gc.collect()
        with pytest.raises(Exception, match="CUDA_ERROR_INVALID_HANDLE"):
            view.__dlpack__(stream=cuda.stream("consumer"))
        assert {report.kind for report in cuda.reports} == {"dead stream"}


@pytest.mark.parametrize("broken", [None, types.SimpleNamespace(), 7])
def test_a_module_of_that_name_that_is_something_else_is_left_alone(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", broken)
    with simulated_cuda() as cuda:
        array, interface, stream = dict_of_the_moment(cuda, "side")
        view = from_cai(interface, owner=array)
        assert view.stream == stream.handle


def test_a_stream_object_that_the_caller_gives_is_held_by_the_view() -> None:
    with simulated_cuda() as cuda:
        array = cuda.array([0.0] * 4, dtype="float32", speaks="cai2", name="x")
        declared = from_cai(array, stream=cuda.stream("declared"))
        asked = to_cai(declared, stream=cuda.stream("asked"))
        del declared
        gc.collect()
        from_cai(asked).__dlpack__(stream=cuda.stream("consumer"))
        assert cuda.reports == []
