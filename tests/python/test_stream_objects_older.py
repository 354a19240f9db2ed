"""Stream objects that are older than `__cuda_stream__`."""

from __future__ import annotations

from typing import Any

import pytest
from scenes import done
from test_cuda_door_quick import cupy
from test_cuda_door_quick import pytestmark as needs_the_driver_of_stubs

from cai_bridge import to_cai


def of(module: str, name: str = "Stream", base: type = object, **members: Any) -> type:
    """A class of that library's."""
    return type(name, (base,), {"__module__": module, **members})


CUPYS_BASE = of("cupy.cuda.stream", "_BaseStream")
# The class of a library's stream objects, and what has the handle.
OLDER = {
    "torch": (of("torch.cuda.streams"), "cuda_stream"),
    "cupy": (of("cupy.cuda.stream", base=CUPYS_BASE), "ptr"),
    "warp": (of("warp._src.context"), "cuda_stream"),
    "numba": (of("numba.cuda.cudadrv.driver", __int__=lambda self: self.handle), "handle"),
}


@pytest.mark.parametrize("library", OLDER)
def test_an_object_older_than_the_protocol_is_the_stream_that_it_names(library, cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    x = cuda.array([0.0] * 4, speaks="exchange", stream=producer)
    kind, attribute = OLDER[library]
    named: Any = kind()
    setattr(named, attribute, consumer.handle)
    with cuda.current_stream(producer):
        producer.fill(x, 1.0)
        view = to_cai(x, stream=named)
    assert view.stream == consumer.handle
    seen = consumer.read(view)
    view.release()
    assert done(seen) == [1.0] * 4


OTHER = of("torch"), of("elsewhere"), of("cupy.cuda.memory", "MemoryPointer")


@pytest.mark.parametrize("other", [*(kind() for kind in OTHER), of("torch.cuda.streams")])
def test_what_names_no_stream_is_refused(other, cuda):
    if not isinstance(other, type):
        other.ptr = other.handle = 64
    with pytest.raises(TypeError, match=r"^stream: got .*; allowed: None, -1, 1, 2, a handle"):
        to_cai(cuda.array([1.0]), stream=other)


OLD_CUPY = """
    class OldStream:
        def __init__(self, handle):
            self.ptr = handle

    OldStream.__name__, OldStream.__module__ = "Stream", "cupy.cuda.stream"
    sys.modules["cupy_backends.cuda.stream"].__pyx_capi__.clear()
    current, devices = OldStream(MINE), []

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal
        def __enter__(self):
            devices.append(self.ordinal)
        def __exit__(self, *_):
            pass

    sys.modules["cupy.cuda"].Device = Device
    sys.modules["cupy.cuda"].get_current_stream = {of}
    view = from_cai(Array(MINE))
    assert view.stream == MINE, view.stream
    for_other = to_cai(view, stream=Stream(OTHER))
    current = OldStream(0)
    waits = calls("cuStreamWaitEvent")
    for_other.release()
    print(calls("cuStreamWaitEvent") - waits, calls("cuModuleUnload"), set(devices))
"""


@needs_the_driver_of_stubs
@pytest.mark.parametrize(
    ("of", "asked"),
    [("lambda device: current", "set()"), ("lambda: current", "{0}")],
    ids=["13", "12"],
)
def test_cupy_before_14_is_asked_for_its_stream_and_that_one_waits_at_the_end(of, asked):
    assert cupy(OLD_CUPY.replace("{of}", of)).strip() == f"1 0 {asked}"
