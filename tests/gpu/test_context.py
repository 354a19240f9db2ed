"""The caller's current context and device are the same after every call of the bridge, errors
included.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .driver import LEGACY, PER_THREAD

Call = Callable[[], object]


@pytest.fixture
def foreign(words):
    return capsules.OnlyCai(capsules.interface(words(16), (16,), stream=LEGACY))


@pytest.fixture
def calls(driver, foreign, new_stream):
    """Calls that need no library, so that what is seen is the bridge's doing."""
    side, other = new_stream(), new_stream()
    pointer = foreign.__cuda_array_interface__["data"][0]
    old = capsules.OnlyCai(capsules.interface(pointer, (16,), version=2))
    bad = capsules.OnlyCai(capsules.interface(np.arange(4).ctypes.data, (4,)))
    readonly = from_cai(foreign, readonly=True)
    driver.synchronize()

    def capsule() -> Any:
        return from_cai(foreign, stream=-1).__dlpack__(stream=-1, max_version=(1, 3))

    return {
        "from_cai": lambda: from_cai(foreign),
        "from_cai, stream=": lambda: from_cai(foreign, stream=side),
        "from_cai of an old dict": lambda: from_cai(old),
        "from_cai of nothing": lambda: from_cai(capsules.OnlyCai(capsules.interface(0, (0,)))),
        "__dlpack__()": lambda: from_cai(foreign, stream=side).__dlpack__(),
        "__dlpack__(stream=side)": lambda: from_cai(foreign, stream=side).__dlpack__(stream=other),
        "__dlpack__(stream=2)": lambda: from_cai(foreign, stream=side).__dlpack__(
            stream=PER_THREAD
        ),
        "to_cai of a capsule": lambda: to_cai(capsule()).__cuda_array_interface__,
        "to_cai of a capsule, stream=": lambda: (
            to_cai(capsule(), stream=side).__cuda_array_interface__
        ),
        "to_cai of CAI, stream=": lambda: to_cai(foreign, stream=side).__cuda_array_interface__,
        "release": lambda: from_cai(foreign).release(),
        "refused: host pointer": lambda: from_cai(bad),
        "refused: stream 0": lambda: from_cai(foreign).__dlpack__(stream=0),
        "refused: read-only": readonly.__dlpack__,
        "refused: CPU memory": lambda: to_cai(np.arange(4.0)),
    }


def elsewhere(call: Call) -> object:
    """Call in a thread that has no context."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.parametrize("context", ["the primary one", "one of the caller's own", "none"])
def test_the_current_context_is_the_same_after_a_call(driver, calls, context):
    def run() -> dict[str, tuple[int, int]]:
        found = {}
        for name, call in calls.items():
            before = driver.current_context()
            if name.startswith("refused"):
                with pytest.raises((BufferError, ValueError)):
                    call()
            else:
                call()
            found[name] = before, driver.current_context()
        return found

    if context == "none":
        assert elsewhere(run) == dict.fromkeys(calls, (0, 0))
    elif context == "the primary one":
        assert run() == dict.fromkeys(calls, (driver.primary, driver.primary))
    else:
        own = driver.get("cuCtxCreate_v2", 0, driver.device)
        driver.get("cuCtxPopCurrent_v2")
        with driver.context(own):
            assert run() == dict.fromkeys(calls, (own, own))
        assert driver.current_context() == driver.primary
        driver("cuCtxDestroy_v2", own)


def test_a_tensor_handed_over_by_a_thread_without_a_context_leaves_it_without(
    driver, torch, new_stream
):
    tensor, stream = torch.zeros(16, device="cuda"), new_stream()
    # PyTorch sets up what it asks first, and leaves a context current there.
    to_cai(tensor)

    def hand_over() -> list[object]:
        before = driver.current_context()
        pointer = to_cai(tensor).__cuda_array_interface__["data"][0]
        named = to_cai(tensor, stream=stream).__cuda_array_interface__["stream"]
        return [pointer, named, before, driver.current_context()]

    assert elsewhere(hand_over) == [tensor.data_ptr(), stream, 0, 0]
