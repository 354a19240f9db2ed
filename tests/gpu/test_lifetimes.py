"""The owner is kept exactly as long as something handed out may still be read, and freed with the
last of it.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .streams import WORDS

pytestmark = pytest.mark.usefixtures("driver")


class Owner(capsules.OnlyCai):
    """A CAI exporter of our own, so that a weak reference tells when the bridge let go of it."""


@pytest.fixture
def owner(words: Callable[..., int]) -> Callable[[], Owner]:
    return lambda: Owner(capsules.interface(words(WORDS), (WORDS,)))


def has_gone(owner: weakref.ref[Owner]) -> bool:
    """Whether the bridge lets go of an owner whose memory a consumer was handed.

    It does once the legacy stream has waited for the consumer: on a busy GPU a little later.
    """
    until = time.monotonic() + 2
    while owner() is not None and time.monotonic() < until:
        time.sleep(0.01)
    return owner() is None


@pytest.fixture
def torch_bytes() -> Callable[[], int]:
    torch = pytest.importorskip("torch")
    gc.collect()
    return lambda: int(torch.cuda.memory_allocated())


@pytest.fixture
def cupy_bytes() -> Callable[[], int]:
    cupy = pytest.importorskip("cupy")
    gc.collect()
    return lambda: int(cupy.get_default_memory_pool().used_bytes())


def new_torch() -> Any:
    return pytest.importorskip("torch").full((WORDS,), 7.0, device="cuda")


def new_cupy() -> Any:
    return pytest.importorskip("cupy").full((WORDS,), 7.0, dtype=np.float32)


# from_cai: a Python object is the owner


def test_a_view_keeps_its_owner_and_lets_it_go_with_itself(owner: Any) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    view = from_cai(exporter)
    assert view.owner is exporter
    del exporter
    assert gone() is not None
    del view
    assert gone() is None


@pytest.mark.parametrize("versions", [None, (1, 3)], ids=["legacy", "versioned"])
def test_an_unconsumed_capsule_keeps_the_owner_after_its_view_and_frees_it(
    owner: Any, versions: tuple[int, int] | None
) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    view = from_cai(exporter)
    capsule = view.__dlpack__(max_version=versions)
    del exporter, view
    assert gone() is not None
    del capsule
    assert has_gone(gone)


@pytest.mark.parametrize("library", ["torch", "cupy", "tvm_ffi"])
def test_a_consumer_keeps_the_owner_after_every_name_is_dropped(owner: Any, library: str) -> None:
    consumer = pytest.importorskip(library)
    exporter = owner()
    gone = weakref.ref(exporter)
    array = consumer.from_dlpack(from_cai(exporter))
    del exporter
    gc.collect()
    assert gone() is not None
    del array
    gc.collect()
    assert has_gone(gone)


def test_a_consumed_capsule_releases_its_owner_once_and_not_again_with_the_capsule(
    owner: Any,
) -> None:
    torch = pytest.importorskip("torch")
    exporter = owner()
    gone = weakref.ref(exporter)
    view = from_cai(exporter)
    capsule = view.__dlpack__()
    tensor = torch.from_dlpack(capsule)
    assert capsules.name_of(capsule) == "used_dltensor"
    del exporter, view, tensor
    gc.collect()
    assert has_gone(gone)
    del capsule
    gc.collect()


def test_the_owner_goes_with_the_last_of_many_capsules(owner: Any) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    view = from_cai(exporter)
    handed_out = [view.__dlpack__(max_version=(1, 3) if i % 2 else None) for i in range(10)]
    del exporter, view
    while handed_out:
        assert gone() is not None
        handed_out.pop()
    assert has_gone(gone)


def test_release_lets_go_at_once_is_idempotent_and_refuses_exports(owner: Any) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    view = from_cai(exporter)
    view.release()
    view.release()
    del exporter
    assert gone() is None
    with pytest.raises((BufferError, ValueError), match="released"):
        view.__dlpack__()


def test_a_capsule_outlives_the_release_of_its_view(owner: Any) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    with from_cai(exporter) as view:
        capsule = view.__dlpack__()
    del exporter
    assert gone() is not None
    del capsule
    assert has_gone(gone)


@pytest.mark.parametrize("to", [from_cai, to_cai])
def test_a_view_in_a_reference_cycle_with_its_owner_is_collected(
    owner: Any, to: Callable[[Any], Any]
) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    exporter.view = to(exporter)
    del exporter
    gc.collect()
    assert gone() is None


def test_a_deleter_run_by_another_thread_frees_the_owner(owner: Any) -> None:
    torch = pytest.importorskip("torch")
    exporter = owner()
    gone = weakref.ref(exporter)
    box = [torch.from_dlpack(from_cai(exporter))]
    del exporter
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert has_gone(gone)


def test_a_capsule_dropped_by_another_thread_frees_the_owner(owner: Any) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    box = [from_cai(exporter).__dlpack__()]
    del exporter
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert has_gone(gone)


# to_cai: the producer's memory, seen through its allocator


WAYS: dict[str, Callable[[Any], Any]] = {
    "the exchange API": to_cai,
    "a legacy capsule": lambda tensor: to_cai(tensor.__dlpack__()),
    "a versioned capsule": lambda tensor: to_cai(tensor.__dlpack__(max_version=(1, 0))),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_cai_view_keeps_torchs_memory_and_gives_it_back(torch_bytes: Any, way: str) -> None:
    before = torch_bytes()
    view = WAYS[way](new_torch())
    assert torch_bytes() > before
    view.release()
    assert torch_bytes() == before
    del view
    assert torch_bytes() == before


def test_a_cai_view_of_a_dlpack_producer_keeps_cupys_memory_and_gives_it_back(
    cupy_bytes: Any,
) -> None:
    before = cupy_bytes()
    view = to_cai(new_cupy())
    assert cupy_bytes() > before
    del view
    assert cupy_bytes() == before


@pytest.mark.parametrize("consumer", ["cupy", "numba", "torch"])
def test_a_cai_consumer_keeps_the_memory_alive_after_every_name_is_dropped(
    torch_bytes: Any, consumer: str
) -> None:
    torch = pytest.importorskip("torch")
    before = torch_bytes()
    match consumer:
        case "cupy":
            array = pytest.importorskip("cupy").asarray(to_cai(new_torch()))
        case "numba":
            pytest.importorskip("numba")
            from numba import cuda

            array = cuda.as_cuda_array(to_cai(new_torch()))
        case _:
            array = torch.as_tensor(to_cai(new_torch()), device="cuda")
    other = new_torch().fill_(9.0)  # would take the block if it were free
    gc.collect()
    seen = array.copy_to_host() if consumer == "numba" else array.tolist()
    assert set(np.asarray(seen).tolist()) == {7.0}
    del array, other
    gc.collect()
    assert torch_bytes() == before


def test_a_dlpack_consumer_keeps_cupys_memory_and_gives_it_back(cupy_bytes: Any) -> None:
    torch = pytest.importorskip("torch")
    before = cupy_bytes()
    tensor = torch.from_dlpack(from_cai(new_cupy()))
    other = new_cupy()
    other.fill(9.0)
    torch.cuda.synchronize()
    assert set(tensor.tolist()) == {7.0}
    del tensor, other
    gc.collect()
    assert cupy_bytes() == before


def test_a_view_of_a_view_is_unwrapped_and_keeps_only_the_producer(cupy_bytes: Any) -> None:
    before = cupy_bytes()
    array = new_cupy()
    there = from_cai(array)
    back = to_cai(there)
    assert back.ptr == there.ptr
    del array, there
    assert cupy_bytes() > before
    assert back.__cuda_array_interface__["data"] == (back.ptr, False)
    del back
    assert cupy_bytes() == before


def test_a_thousand_hand_overs_leave_nothing_behind(torch_bytes: Any, cupy_bytes: Any) -> None:
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    tensor, array = new_torch(), new_cupy()
    before = torch_bytes(), cupy_bytes()
    for _ in range(1000):
        cupy.asarray(to_cai(tensor))
        torch.from_dlpack(from_cai(array))
        to_cai(tensor.__dlpack__())
        from_cai(array).__dlpack__(max_version=(1, 3))
    gc.collect()
    assert (torch_bytes(), cupy_bytes()) == before
