"""Which stream a view names, what it waits for, and what `stream=` takes.

"Waits for" is seen without timing: a kernel spins on the producer's stream, and an event recorded
on the consumer's stream afterwards is still pending exactly when the bridge made one wait for the
other.
"""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .driver import BLOCKING, LEGACY, NON_BLOCKING, PER_THREAD
from .streams import handle_of

SPIN_MS = 400.0
KINDS = ["legacy", "per-thread", "blocking", "non-blocking"]


@pytest.fixture
def stream_of(driver, new_stream):
    """A stream handle of each kind, made while nothing is pending.

    Streams share eight queues of the device, and of two in one queue the second waits for the
    first: a non-blocking stream is in none that another of the test's is in.
    """
    others = [LEGACY, PER_THREAD]

    def apart() -> int:
        for _ in range(9):
            stream = new_stream(NON_BLOCKING)
            driver.spin(stream, 10.0)
            shared = any(driver.is_pending(other) for other in others)
            driver("cuStreamSynchronize", stream)
            if not shared:
                break
        return stream

    make = {
        "legacy": lambda: LEGACY,
        "per-thread": lambda: PER_THREAD,
        "blocking": lambda: new_stream(BLOCKING),
        "non-blocking": apart,
    }

    def made(kind: str) -> int:
        others.append(make[kind]())
        return others[-1]

    return made


@pytest.fixture
def pending_cai(driver, words):
    """A CAI object with work pending on a stream, which its dict names."""

    def make(stream: int) -> Any:
        address = words(16)
        driver.spin(stream, SPIN_MS)
        return capsules.OnlyCai(capsules.interface(address, (16,), stream=stream))

    return make


@pytest.mark.parametrize("producer", KINDS)
@pytest.mark.parametrize("consumer", KINDS)
def test_a_dlpack_export_makes_the_consumers_stream_wait_for_the_dicts(
    driver, stream_of, pending_cai, producer, consumer
):
    source, target = stream_of(producer), stream_of(consumer)
    view = from_cai(pending_cai(source))
    capsule = view.__dlpack__(stream=target, max_version=(1, 3))
    assert driver.is_pending(target)
    assert capsules.name_of(capsule) == "dltensor_versioned"


@pytest.mark.alone
@pytest.mark.parametrize("by", ["a capsule", "the exchange API"])
def test_a_consumer_that_names_no_stream_is_ordered_on_the_legacy_default_stream(
    driver, stream_of, pending_cai, by
):
    take = pytest.importorskip("tvm_ffi").from_dlpack if by == "the exchange API" else None
    view = from_cai(pending_cai(stream_of("non-blocking")))
    assert not driver.is_pending(LEGACY)
    taken = take(view) if take else view.__dlpack__()
    assert driver.is_pending(LEGACY)
    assert not take or taken.data_ptr() == view.ptr


def torch_on(kind: str) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.default_stream() if kind == "default" else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(16, device="cuda")
    return tensor, stream


@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", ["default", "side"])
def test_a_stream_given_to_to_cai_waits_for_torchs_and_is_named(
    driver, torch, stream_of, producer, consumer
):
    tensor, stream = torch_on(producer)
    target = stream_of(consumer)
    driver.synchronize()
    driver.spin(handle_of(stream), SPIN_MS)
    with torch.cuda.stream(stream):
        view = to_cai(tensor, stream=target)
    assert driver.is_pending(target)
    assert view.__cuda_array_interface__["stream"] == target


def stream_objects(library: str) -> list[Any]:
    match library:
        case "torch":
            torch = pytest.importorskip("torch")
            return [torch.cuda.Stream(), torch.cuda.default_stream()]
        case "cupy":
            cupy = pytest.importorskip("cupy")
            made = cupy.cuda.Stream
            return [made(), made(non_blocking=True), made.null, made.ptds]
        case "numba":
            cuda = pytest.importorskip("numba.cuda")
            legacy, per_thread = cuda.legacy_default_stream(), cuda.per_thread_default_stream()
            return [cuda.stream(), cuda.default_stream(), legacy, per_thread]
        case _:
            core = pytest.importorskip("cuda.core")
            device = core.Device(0)
            device.set_current()
            return [device.create_stream(), device.default_stream]


@pytest.mark.parametrize("library", ["torch", "cupy", "numba", "cuda.core"])
def test_a_stream_object_of_any_library_is_taken_and_its_zero_means_the_legacy_stream(
    driver, words, library
):
    foreign = capsules.OnlyCai(capsules.interface(words(16), (16,)))
    for stream in stream_objects(library):
        assert from_cai(foreign, stream=stream).stream == handle_of(stream)
        assert to_cai(foreign, stream=stream).__cuda_array_interface__["stream"] == handle_of(
            stream
        )
    driver.synchronize()
