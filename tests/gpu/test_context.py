"""The caller's current context and device are the same after every call of the bridge, errors
included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .driver import LEGACY, PER_THREAD, Driver

Call = Callable[[], object]


@pytest.fixture
def foreign(words: Callable[..., int]) -> capsules.OnlyCai:
    return capsules.OnlyCai(capsules.interface(words(16), (16,), stream=LEGACY))


@pytest.fixture
def calls(
    driver: Driver, foreign: capsules.OnlyCai, new_stream: Callable[..., int]
) -> dict[str, Call]:
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


NAMES = [
    "from_cai",
    "from_cai, stream=",
    "from_cai of an old dict",
    "from_cai of nothing",
    "__dlpack__()",
    "__dlpack__(stream=side)",
    "__dlpack__(stream=2)",
    "to_cai of a capsule",
    "to_cai of a capsule, stream=",
    "to_cai of CAI, stream=",
    "release",
    "refused: host pointer",
    "refused: stream 0",
    "refused: read-only",
    "refused: CPU memory",
]


def run(name: str, call: Call) -> None:
    if name.startswith("refused"):
        with pytest.raises((BufferError, ValueError)):
            call()
    else:
        call()


@pytest.fixture
def other_context(driver: Driver) -> Iterator[int]:
    """A context that is not the primary one."""
    made = driver.get("cuCtxCreate_v2", 0, driver.device)
    driver.get("cuCtxPopCurrent_v2")
    yield made
    driver("cuCtxDestroy_v2", made)


@pytest.mark.parametrize("name", NAMES)
def test_the_primary_context_stays_current(
    driver: Driver, calls: dict[str, Call], name: str
) -> None:
    assert driver.current_context() == driver.primary
    run(name, calls[name])
    assert driver.current_context() == driver.primary


@pytest.mark.parametrize("name", NAMES)
def test_a_thread_without_a_context_has_none_afterwards(
    driver: Driver, calls: dict[str, Call], name: str
) -> None:
    seen: list[object] = []

    def without_context() -> None:
        try:
            before = driver.current_context()
            run(name, calls[name])
            seen.append((before, driver.current_context()))
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=without_context)
    thread.start()
    thread.join()
    assert seen == [(0, 0)]


@pytest.mark.parametrize("name", NAMES)
def test_a_context_of_the_callers_own_stays_current(
    driver: Driver, calls: dict[str, Call], other_context: int, name: str
) -> None:
    with driver.context(other_context):
        run(name, calls[name])
        assert driver.current_context() == other_context
    assert driver.current_context() == driver.primary


def test_torchs_device_and_context_are_as_before_a_hand_over(
    driver: Driver, new_stream: Callable[..., int]
) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(16, device="cuda")
    before = torch.cuda.current_device(), driver.current_context(), torch.cuda.current_stream()
    view = to_cai(tensor, stream=new_stream())
    torch.as_tensor(view, device="cuda")
    torch.from_dlpack(from_cai(tensor))
    assert (
        torch.cuda.current_device(),
        driver.current_context(),
        torch.cuda.current_stream(),
    ) == before


def test_a_tensor_handed_over_by_a_thread_without_a_context_leaves_it_without(
    driver: Driver, new_stream: Callable[..., int]
) -> None:
    torch = pytest.importorskip("torch")
    tensor, stream = torch.zeros(16, device="cuda"), new_stream()
    seen: list[object] = []

    def hand_over() -> None:
        before = driver.current_context()
        seen.append(to_cai(tensor).__cuda_array_interface__["data"][0])
        seen.append(to_cai(tensor, stream=stream).__cuda_array_interface__["stream"])
        seen.append((before, driver.current_context()))

    thread = threading.Thread(target=hand_over)
    thread.start()
    thread.join()
    assert seen == [tensor.data_ptr(), stream, (0, 0)]
