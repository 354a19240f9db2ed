"""The owner is kept exactly as long as something handed out may still be read, and freed with the
last of it: by each library as a consumer, and by each allocator as a producer's.
"""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from .capsules import OnlyCai, interface
from .streams import WORDS

pytestmark = pytest.mark.usefixtures("driver")


@pytest.fixture
def torch_bytes(torch):
    gc.collect()
    return lambda: int(torch.cuda.memory_allocated())


@pytest.fixture
def cupy_bytes(cupy):
    gc.collect()
    return lambda: int(cupy.get_default_memory_pool().used_bytes())


def new_torch() -> Any:
    return pytest.importorskip("torch").full((WORDS,), 7.0, device="cuda")


def new_cupy() -> Any:
    return pytest.importorskip("cupy").full((WORDS,), 7.0, dtype=np.float32)


@pytest.mark.parametrize("library", ["torch", "cupy", "tvm_ffi"])
def test_a_consumer_keeps_the_owner_after_every_name_is_dropped(words, library):
    consumer = pytest.importorskip(library)
    exporter = OnlyCai(interface(words(WORDS), (WORDS,)))
    gone = weakref.ref(exporter)
    array = consumer.from_dlpack(from_cai(exporter))
    del exporter
    gc.collect()
    assert gone() is not None
    del array
    gc.collect()
    # The owner goes once the legacy stream has waited for the consumer: a little later if busy.
    until = time.monotonic() + 2
    while gone() is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert gone() is None


@pytest.mark.parametrize("consumer", ["cupy", "numba", "torch"])
def test_a_cai_consumer_keeps_torchs_memory_alive_after_every_name_is_dropped(
    torch, torch_bytes, consumer
):
    before = torch_bytes()
    match consumer:
        case "cupy":
            array = pytest.importorskip("cupy").asarray(to_cai(new_torch()))
        case "numba":
            array = pytest.importorskip("numba.cuda").as_cuda_array(to_cai(new_torch()))
        case _:
            array = torch.as_tensor(to_cai(new_torch()), device="cuda")
    other = new_torch().fill_(9.0)  # would take the block if it were free
    gc.collect()
    seen = array.copy_to_host() if consumer == "numba" else array.tolist()
    assert set(np.asarray(seen).tolist()) == {7.0}
    del array, other
    gc.collect()
    assert torch_bytes() == before


def test_a_thousand_hand_overs_leave_nothing_behind(torch, cupy, torch_bytes, cupy_bytes):
    tensor, array = new_torch(), new_cupy()
    before = torch_bytes(), cupy_bytes()
    for _ in range(1000):
        cupy.asarray(to_cai(tensor))
        torch.from_dlpack(from_cai(array))
        to_cai(tensor.__dlpack__())
        from_cai(array).__dlpack__(max_version=(1, 3))
    gc.collect()
    assert (torch_bytes(), cupy_bytes()) == before
