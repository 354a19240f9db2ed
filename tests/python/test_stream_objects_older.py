"""Stream objects that are older than `__cuda_stream__`, and those around somebody else's stream."""

from __future__ import annotations

from typing import Any

import pytest
from test_cuda_door_quick import cupy
from test_cuda_door_quick import pytestmark as needs_the_driver_of_stubs

from cai_bridge import to_cai


def of(module: str, name: str = "Stream", base: type = object) -> type:
    """A class of that library's."""
    return type(name, (base,), {"__module__": module})


def torchs(stream: Any) -> Any:
    made: Any = of("torch.cuda.streams")()
    made.cuda_stream, made.held = stream.handle, stream
    return made


def cupys(stream: Any) -> Any:
    made: Any = of("cupy.cuda.stream", base=of("cupy.cuda.stream", "_BaseStream"))()
    made.ptr, made.held = stream.handle, stream
    return made


def warps(stream: Any) -> Any:
    made: Any = of("warp._src.context")()
    made.cuda_stream, made.held = stream.handle, stream
    return made


def numbas(stream: Any) -> Any:
    class Stream:
        __module__ = "numba.cuda.cudadrv.driver"

        def __int__(self) -> int:
            return int(stream.handle)

    return Stream()


@pytest.mark.parametrize("older", [torchs, cupys, numbas, warps])
def test_an_object_older_than_the_protocol_is_the_stream_that_it_names(
    older: Any, cuda: Any
) -> None:
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    x = cuda.array([0.0] * 4, speaks="exchange", stream=producer)
    with cuda.current_stream(producer):
        producer.fill(x, 1.0)
        view = to_cai(x, stream=older(consumer))
    assert view.stream == consumer.handle
    seen = consumer.read(view)
    view.release()
    cuda.synchronize()
    assert seen.value == [1.0] * 4


@pytest.mark.parametrize(
    "other",
    [
        of("torch")(),
        of("torch.cuda.streams"),
        of("elsewhere")(),
        of("cupy.cuda.memory", "MemoryPointer")(),
    ],
)
def test_what_names_no_stream_is_refused(other: Any, cuda: Any) -> None:
    if not isinstance(other, type):
        other.ptr = other.handle = 64
    with pytest.raises(TypeError, match=r"^stream: got .*; allowed: None, -1, 1, 2, a handle"):
        to_cai(cuda.array([1.0]), stream=other)


class Around:
    """An object with the protocol around another's stream."""

    def __init__(self, handle: int, other: Any = None) -> None:
        self.handle, self._foreign_stream_ref = handle, other

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Closing:
    """A stream object that destroys its stream where it is closed, as cuda.core's does."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.handle = stream, stream.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        if self.stream is None:
            raise RuntimeError("closed")
        return 0, self.handle

    def close(self) -> None:
        self.stream.destroy()
        self.stream = None


def bare(closing: Closing) -> Any:
    """What cuda.bindings has for a stream: its handle."""
    return of("cuda.bindings.driver", "CUstream", Around)(closing.handle)


def external(closing: Closing) -> Any:
    """What `cupy.cuda.Stream.from_external` makes of a stream object."""
    return of("cupy.cuda.stream", "Stream", Around)(closing.handle, closing)


def external_bare(closing: Closing) -> Any:
    return of("cupy.cuda.stream", "Stream", Around)(closing.handle, bare(closing))


def lent(cuda: Any, around: Any) -> tuple[Any, Closing, Any]:
    """A view for a stream around which an object is, what closes that, and the array."""
    producer, closing = cuda.stream("producer"), Closing(cuda.stream("consumer"))
    x = cuda.array([1.0] * 4, speaks="exchange", stream=producer)
    with cuda.current_stream(producer):
        return to_cai(x, stream=around(closing)), closing, x


@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("around", [bare, external, external_bare])
def test_a_stream_around_which_an_object_is_may_be_destroyed(around: Any, cuda: Any) -> None:
    view, closing, _x = lent(cuda, around)
    closing.close()
    cuda.clear_calls()
    # A destroyed stream that is touched is reported, which fails the test.
    view.release()
    assert not [call for call in cuda.calls if call.call == "cuEventRecord"]


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

    def of_13(device):
        return current

    def of_12():
        return current

    sys.modules["cupy.cuda"].Device = Device
"""


AT_ITS_END = """
    view = from_cai(Array(MINE))
    assert view.stream == MINE, view.stream
    for_other = to_cai(view, stream=Stream(OTHER))
    current = OldStream(0)
    waits = calls("cuStreamWaitEvent")
    for_other.release()
    print(calls("cuStreamWaitEvent") - waits, calls("cuModuleUnload"), set(devices))
"""


@needs_the_driver_of_stubs
@pytest.mark.parametrize(("release", "asked"), [("13", "set()"), ("12", "{0}")])
def test_cupy_before_14_is_asked_for_its_stream_and_that_one_waits_at_the_end(
    release: str, asked: str
) -> None:
    old = f"    sys.modules['cupy.cuda'].get_current_stream = of_{release}\n"
    assert cupy(OLD_CUPY + old + AT_ITS_END).strip() == f"1 0 {asked}"
