"""`convert` to Warp and RMM, where they are installed: no copy, and order at both ends."""

from __future__ import annotations

import gc
from typing import Any, ClassVar

import pytest

from cai_bridge import convert, to_cai

from . import streams
from .converting import (
    LATE_MS,
    RUNS,
    WORKERS,
    ByPointer,
    Place,
    check_end,
    check_late,
    handed_over,
    make,
    pointer,
)
from .libraries import STANDARD, host_values, same_bits
from .streams import WORDS, handle_of


class Warp:
    """Warp on a stream of its own, which it is told to work on."""

    to = "warp"
    says: ClassVar[dict[str, Any]] = {}

    def __init__(self, place: Place) -> None:
        self.warp = pytest.importorskip("warp")
        self.warp.init()  # a stream is made by a device's name only after it
        self.place, self.stream = place, self.warp.Stream("cuda:0")
        self.array = self.warp.zeros(WORDS, dtype=self.warp.float32, device="cuda:0")
        self.out = self.warp.zeros(WORDS, dtype=self.warp.float32, device="cuda:0")

    def working(self) -> Any:
        return self.warp.ScopedStream(self.stream)

    def written(self, value: float) -> Any:
        self.place.driver.spin(handle_of(self.stream), LATE_MS)
        with self.working():
            self.array.fill_(value)
        return self.array

    def write(self, value: float) -> None:
        with self.working():
            self.array.fill_(value)

    def read(self, made: Any) -> None:
        self.warp.copy(self.out, made, stream=self.stream)

    def seen(self) -> Any:
        self.place.driver.synchronize()
        return self.out.numpy()


def copying(warp: Any) -> Any:
    """A kernel of Warp's that copies an array."""

    @warp.kernel
    def copy(a: warp.array(dtype=warp.float32), b: warp.array(dtype=warp.float32)):
        i = warp.tid()
        b[i] = a[i]

    return copy


class Rmm(ByPointer):
    """RMM, whose buffers the driver copies from."""

    to = module = "rmm"


SINKS = {"warp": Warp, "rmm": Rmm}
PAIRS = [(source, sink) for source in ("torch", "cupy", "numba") for sink in SINKS]


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_was_written_late_is_there(place, note, source, sink):
    check_late(place, note, WORKERS[source](place), SINKS[sink](place))


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_the_producers_next_write_comes_after_the_consumers_read(place, note, source, sink):
    other = SINKS[sink](place)
    check_end(place, note, WORKERS[source](place), other, stream=other.stream)


@pytest.mark.parametrize("sink", ["torch", "cupy", "numba"])
def test_warps_next_write_comes_after_the_consumers_read(place, note, sink):
    check_end(place, note, Warp(place), WORKERS[sink](place))


@pytest.mark.parametrize("sink", ["torch", "cupy"])
def test_warps_allocator_gets_its_memory_back_after_the_consumers_read(place, note, sink):
    one, other = Warp(place), WORKERS[sink](place)
    wrong, again = 0, 0
    for value in range(1, RUNS + 1):
        with one.working():
            array = one.warp.full(WORDS, float(value), dtype=one.warp.float32, device="cuda:0")
        place.driver.synchronize()
        made, at = handed_over(one, other, array), array.ptr
        place.driver.spin(handle_of(other.stream), LATE_MS)
        other.read(made)
        with one.working():
            del made, array
            gc.collect()
            next_one = one.warp.full(WORDS, -1.0, dtype=one.warp.float32, device="cuda:0")
        wrong += not bool((other.seen() == value).all())
        again += next_one.ptr == at
    note(f"Warp's memory, freed while {sink} reads: wrong {wrong}/{RUNS}, used again {again}")
    assert wrong == 0


@pytest.mark.parametrize("captured", [False, True])
def test_warps_kernels_take_views_and_converted_arrays(place, captured):
    one, other = WORKERS["torch"](place), Warp(place)
    warp = other.warp
    kernel = copying(warp)
    for value in range(1, RUNS + 1):
        tensor = one.written(float(value))
        with one.working(), other.working():
            source: Any = convert(tensor, warp) if captured else to_cai(tensor)
            launch = {"dim": WORDS, "inputs": [source, other.out], "device": "cuda:0"}
            if captured:
                with warp.ScopedCapture(device="cuda:0") as capture:
                    warp.launch(kernel, **launch)
                warp.capture_launch(capture.graph)
                del capture
            else:
                warp.launch(kernel, **launch)
            del source, launch
        one.write(-1.0)
        assert bool((other.seen() == float(value)).all())


@pytest.mark.parametrize("sink", ["torch", "cupy", "numba"])
def test_what_warp_wrote_late_is_there(place, note, sink):
    check_late(place, note, Warp(place), WORKERS[sink](place), tried=False)


@pytest.mark.parametrize("dtype", [one for one in STANDARD if not one.startswith("complex")])
def test_warp_reads_every_type_that_it_has_without_a_copy(driver, dtype):
    warp = pytest.importorskip("warp")
    host = host_values(dtype)
    array = make("torch", host)
    driver.synchronize()
    made = convert(array, warp)
    assert (type(made), made.ptr, made.shape) == (warp.array, pointer(array, "torch"), host.shape)
    assert made.dtype is getattr(warp, dtype)
    assert same_bits(made.numpy(), host)
    assert convert(made, "warp") is made


def test_warps_stream_and_a_slice_keep_what_they_need(place):
    one, other = WORKERS["torch"](place), Warp(place)
    value = float(next(streams.fresh_values()))
    tensor = one.torch.full((2, WORDS // 2), value, device="cuda")
    place.driver.synchronize()
    part = handed_over(one, other, tensor)[1:]
    ptr = tensor.data_ptr()
    del tensor
    gc.collect()
    again = one.torch.full((2, WORDS // 2), -1.0, device="cuda")
    place.driver.synchronize()
    assert again.data_ptr() != ptr, "the memory was used again"
    assert bool((part.numpy() == value).all())


@pytest.mark.parametrize("dtype", STANDARD)
def test_rmms_buffer_is_the_bytes_of_any_array(driver, dtype):
    rmm = pytest.importorskip("rmm")
    host = host_values(dtype)
    array = make("torch", host)
    driver.synchronize()
    made = convert(array, rmm)
    assert (type(made), made.ptr) == (rmm.DeviceBuffer, pointer(array, "torch"))
    assert made.size == host.nbytes
    with pytest.raises(MemoryError):
        made.resize(2 * made.size)
    assert made.copy_to_host().tobytes() == host.tobytes()
