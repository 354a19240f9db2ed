"""Which stream a view names, what it waits for, and what `stream=` takes: the contract's stream
table, row by row.

"Waits for" is seen without timing: a kernel spins on the producer's stream, and an event recorded
on the consumer's stream afterwards is still pending exactly when the bridge made one wait for the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .converting import Named
from .driver import BLOCKING, LEGACY, NON_BLOCKING, PER_THREAD
from .streams import handle_of

SPIN_MS = 100.0
KINDS = ["legacy", "per-thread", "blocking", "non-blocking"]


@pytest.fixture
def stream_of(driver: Any, new_stream: Callable[..., int]) -> Callable[[str], int]:
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
def pending_cai(driver: Any, words: Callable[..., int]) -> Callable[[int | None], Any]:
    """A CAI object with work pending on a stream, which its dict names."""

    def make(stream: int | None) -> Any:
        address = words(16)
        if stream is not None:
            driver.spin(stream, SPIN_MS)
        return capsules.OnlyCai(capsules.interface(address, (16,), stream=stream))

    return make


# from_cai: order(P -> C) when DLPack is asked


EACH_TWO = pytest.mark.parametrize(
    ("producer", "consumer"), [(one, other) for one in KINDS for other in KINDS]
)


@EACH_TWO
def test_a_dlpack_export_makes_the_consumers_stream_wait_for_the_dicts(
    driver: Any, stream_of: Any, pending_cai: Any, producer: str, consumer: str
) -> None:
    source, target = stream_of(producer), stream_of(consumer)
    view = from_cai(pending_cai(source))
    capsule = view.__dlpack__(stream=target, max_version=(1, 3))
    assert driver.is_pending(target)
    assert capsules.name_of(capsule) == "dltensor_versioned"


@EACH_TWO
def test_what_is_handed_on_by_the_legacy_default_stream_is_still_waited_for(
    driver: Any, stream_of: Any, pending_cai: Any, producer: str, consumer: str
) -> None:
    source, target = stream_of(producer), stream_of(consumer)
    capsule = from_cai(pending_cai(source)).__dlpack__(stream=LEGACY)
    view = to_cai(capsule, stream=target)
    assert view.stream == target
    assert driver.is_pending(target)
    view.release(-1)


@pytest.mark.parametrize("producer", ["per-thread", "blocking", "non-blocking"])
def test_a_consumer_that_asks_for_no_order_gets_none(
    driver: Any, stream_of: Any, pending_cai: Any, producer: str
) -> None:
    target = stream_of("non-blocking")
    view = from_cai(pending_cai(stream_of(producer)))
    view.__dlpack__(stream=-1)
    assert not driver.is_pending(target)


@pytest.mark.alone
def test_a_consumer_that_names_no_stream_is_ordered_on_the_legacy_default_stream(
    driver: Any, stream_of: Any, pending_cai: Any
) -> None:
    view = from_cai(pending_cai(stream_of("non-blocking")))
    assert not driver.is_pending(LEGACY)
    view.__dlpack__()
    assert driver.is_pending(LEGACY)


@pytest.mark.alone
def test_an_export_through_the_exchange_api_is_ordered_on_the_legacy_default_stream(
    driver: Any, stream_of: Any, pending_cai: Any
) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    view = from_cai(pending_cai(stream_of("non-blocking")))
    assert not driver.is_pending(LEGACY)
    tensor = tvm_ffi.from_dlpack(view)
    assert driver.is_pending(LEGACY)
    assert tensor.data_ptr() == view.ptr


def test_of_a_strange_dict_that_names_no_stream_the_legacy_one_alone_is_waited_for(
    driver: Any, stream_of: Any, pending_cai: Any
) -> None:
    bystander, target = stream_of("non-blocking"), stream_of("non-blocking")
    driver.spin(bystander, SPIN_MS)
    view = from_cai(pending_cai(None))
    assert view.stream == LEGACY
    view.__dlpack__(stream=target)
    assert not driver.is_pending(target)


@pytest.mark.parametrize("is_named", [True, False], ids=["still names it", "names none"])
def test_the_host_waits_at_the_end_of_a_producer_that_names_its_stream_no_more(
    driver: Any, stream_of: Any, pending_cai: Any, is_named: bool
) -> None:
    """It may go on on the stream that it named, and that may as well be destroyed."""
    source, target = stream_of("non-blocking"), stream_of("non-blocking")
    array = pending_cai(source)
    view = to_cai(array, stream=Named(target))
    driver.spin(target, SPIN_MS)
    if not is_named:
        array.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": None}
    view.release()
    assert driver.is_pending(target) == is_named
    assert driver.is_pending(source) == is_named, "it waits for the consumer's"


@pytest.mark.parametrize("is_bare", [False, True], ids=["object", "handle"])
def test_the_callers_stream_beats_the_dicts(
    driver: Any, stream_of: Any, pending_cai: Any, is_bare: bool
) -> None:
    named, declared, target = (stream_of("non-blocking") for _ in range(3))
    array = pending_cai(named)
    view = from_cai(array, stream=declared if is_bare else Named(declared))
    # For a bare handle, which may be dead when the view is used, the legacy default stream stands.
    assert view.stream == (LEGACY if is_bare else declared)
    view.__dlpack__(stream=target)
    assert not driver.is_pending(target)


def test_minus_one_declares_that_nothing_is_pending(
    driver: Any, stream_of: Any, pending_cai: Any
) -> None:
    target = stream_of("non-blocking")
    view = from_cai(pending_cai(stream_of("non-blocking")), stream=-1)
    assert view.stream is None
    view.__dlpack__(stream=target)
    assert not driver.is_pending(target)


# to_cai: what the dict says


def torch_on(kind: str) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.default_stream() if kind == "default" else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(16, device="cuda")
    return tensor, stream


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("kind", ["default", "side"])
def test_the_dict_names_torchs_current_stream(kind: str) -> None:
    torch = pytest.importorskip("torch")
    tensor, stream = torch_on(kind)
    with torch.cuda.stream(stream):
        view = to_cai(tensor)
    assert view.stream == handle_of(stream)
    assert view.__cuda_array_interface__["stream"] == handle_of(stream)
    assert view.__cuda_array_interface__["version"] == 3


@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", ["default", "side"])
def test_a_stream_given_to_to_cai_waits_for_torchs_and_is_named(
    driver: Any, stream_of: Any, producer: str, consumer: str
) -> None:
    torch = pytest.importorskip("torch")
    tensor, stream = torch_on(producer)
    target = stream_of(consumer)
    driver.synchronize()
    driver.spin(handle_of(stream), SPIN_MS)
    with torch.cuda.stream(stream):
        view = to_cai(tensor, stream=target)
    assert driver.is_pending(target)
    assert view.__cuda_array_interface__["stream"] == target


def test_to_cai_of_torch_without_order_names_no_stream_and_waits_for_nothing(
    driver: Any, stream_of: Any
) -> None:
    torch = pytest.importorskip("torch")
    tensor, stream = torch_on("side")
    target = stream_of("non-blocking")
    driver.spin(handle_of(stream), SPIN_MS)
    with torch.cuda.stream(stream):
        view = to_cai(tensor, stream=-1)
    assert view.__cuda_array_interface__.get("stream") is None
    assert not driver.is_pending(target)


def only_dlpack(refuses: tuple[int, ...] = ()) -> capsules.OnlyDlpack:
    cupy = pytest.importorskip("cupy")
    return capsules.OnlyDlpack(cupy.arange(16, dtype=np.float32), refuses)


@pytest.mark.usefixtures("driver")
def test_a_dlpack_producer_is_asked_for_the_legacy_stream_when_the_caller_names_none() -> None:
    producer = only_dlpack()
    view = to_cai(producer)
    assert [asked["stream"] for asked in producer.asked] == [1]
    assert view.__cuda_array_interface__["stream"] == 1


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("kind", KINDS)
def test_a_dlpack_producer_is_asked_for_the_callers_stream(stream_of: Any, kind: str) -> None:
    producer, stream = only_dlpack(), stream_of(kind)
    view = to_cai(producer, stream=stream)
    assert [asked["stream"] for asked in producer.asked] == [stream]
    assert view.__cuda_array_interface__["stream"] == stream


@pytest.mark.usefixtures("driver")
def test_a_dlpack_producer_is_asked_for_no_order_and_the_dict_names_no_stream() -> None:
    producer = only_dlpack()
    view = to_cai(producer, stream=-1)
    assert [asked["stream"] for asked in producer.asked] == [-1]
    assert view.__cuda_array_interface__.get("stream") is None


@pytest.mark.usefixtures("driver")
def test_a_dlpack_producer_that_refuses_minus_one_is_asked_for_the_legacy_stream() -> None:
    producer = only_dlpack(refuses=(-1,))
    view = to_cai(producer, stream=-1)
    assert [asked["stream"] for asked in producer.asked] == [-1, 1]
    assert view.__cuda_array_interface__.get("stream") is None


@pytest.mark.parametrize("versions", [None, (1, 3)])
def test_a_capsule_is_ready_on_the_legacy_stream_and_a_callers_stream_waits_for_it(
    driver: Any, stream_of: Any, versions: tuple[int, int] | None
) -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(16, dtype=np.float32)
    assert to_cai(array.__dlpack__(max_version=versions)).__cuda_array_interface__["stream"] == 1
    unordered = to_cai(array.__dlpack__(max_version=versions), stream=-1)
    assert unordered.__cuda_array_interface__.get("stream") is None

    target = stream_of("non-blocking")
    capsule = array.__dlpack__(max_version=versions)
    driver.synchronize()
    driver.spin(LEGACY, SPIN_MS)
    view = to_cai(capsule, stream=target)
    assert view.__cuda_array_interface__["stream"] == target
    assert driver.is_pending(target)


# what the libraries' own streams come to


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("kind", ["null", "ptds", "blocking", "non-blocking"])
def test_from_cai_takes_cupys_current_stream_from_its_dict(kind: str) -> None:
    cupy = pytest.importorskip("cupy")
    made = {
        "null": lambda: cupy.cuda.Stream.null,
        "ptds": lambda: cupy.cuda.Stream.ptds,
        "blocking": cupy.cuda.Stream,
        "non-blocking": lambda: cupy.cuda.Stream(non_blocking=True),
    }
    stream = made[kind]()
    with stream:
        view = from_cai(cupy.arange(4))
    assert view.stream == handle_of(stream)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("kind", ["none", "legacy", "per-thread", "side"])
def test_from_cai_takes_the_stream_that_numbas_array_was_made_with(kind: str) -> None:
    pytest.importorskip("numba")
    from numba import cuda

    made = {
        "legacy": cuda.legacy_default_stream,
        "per-thread": cuda.per_thread_default_stream,
        "side": cuda.stream,
    }
    stream = made[kind]() if kind in made else 0
    array = cuda.device_array(4, dtype=np.float32, stream=stream)
    # Numba's 0 is its default stream, the legacy one.
    assert from_cai(array).stream == (handle_of(stream) if stream else 1)


# what `stream=` takes


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
            pytest.importorskip("numba")
            from numba import cuda

            defaults = [
                cuda.default_stream(),
                cuda.legacy_default_stream(),
                cuda.per_thread_default_stream(),
            ]
            return [cuda.stream(), *defaults]
        case _:
            core = pytest.importorskip("cuda.core")
            device = core.Device(0)
            device.set_current()
            return [device.create_stream(), device.default_stream]


@pytest.mark.parametrize("library", ["torch", "cupy", "numba", "cuda.core"])
def test_a_stream_object_of_any_library_is_taken_and_its_zero_means_the_legacy_stream(
    driver: Any, words: Any, library: str
) -> None:
    foreign = capsules.OnlyCai(capsules.interface(words(16), (16,)))
    for stream in stream_objects(library):
        assert from_cai(foreign, stream=stream).stream == handle_of(stream)
        assert to_cai(foreign, stream=stream).__cuda_array_interface__["stream"] == handle_of(
            stream
        )
    driver.synchronize()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "stream",
    [0, False, True, -2, 1.5, "1", object()],
    ids=["0", "False", "True", "-2", "1.5", "'1'", "object"],
)
def test_a_stream_that_is_no_stream_is_refused_by_name(words: Any, stream: Any) -> None:
    foreign = capsules.OnlyCai(capsules.interface(words(16), (16,)))
    for call in (to_cai, from_cai, from_cai(foreign).__dlpack__):
        arguments = () if call not in (to_cai, from_cai) else (foreign,)
        with pytest.raises((ValueError, TypeError), match="stream"):
            call(*arguments, stream=stream)
    assert from_cai(foreign).__dlpack__(stream=1) is not None
