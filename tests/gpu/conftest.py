"""What every GPU test shares: why tests are skipped here, the driver, and the counts printed at the
end.
"""

from __future__ import annotations

import gc
import importlib.util
import os
from pathlib import Path
from typing import Any

from .figures import one_gpu_of

# Before any library is imported: JAX must leave memory to the others and keep 64-bit dtypes.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_ENABLE_X64", "1")
# Numba warns of every small launch, and these are all small.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
# With `--spread N` each process of pytest-xdist has one of N GPUs.
os.environ.update(one_gpu_of(os.environ))

import numpy as np
import pytest

from cai_bridge import _core

from . import driver as cuda_driver

# NumPy 2.5 removed this name; numba 0.68 still reads it at import.
if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined]

# As torch was before 2.10 (test_old_torch.py).
if os.environ.get("WITHOUT_EXCHANGE_API"):
    import torch

    del torch.Tensor.__dlpack_c_exchange_api__

HERE = Path(__file__).parent
# The properties of a test's report that have its lines: the processes of pytest-xdist send them.
MEASURED = "measured"
# What a deleter or a thread raised is.
NEVER_IGNORED = [
    "error::pytest.PytestUnraisableExceptionWarning",
    "error::pytest.PytestUnhandledThreadExceptionWarning",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    reason = cuda_driver.why_no_gpu() if here else None
    for item in here:
        # What the libraries under test warn of among themselves is not ours to fail on.
        item.add_marker(pytest.mark.filterwarnings("ignore", *NEVER_IGNORED))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [one for some in terminalreporter.stats.values() for one in some]
    calls = [one for one in reports if getattr(one, "when", "") == "call"]
    noted = [said for one in calls for said in one.user_properties]
    if lines := [line for name, line in noted if name == MEASURED]:
        terminalreporter.section("measured on this GPU")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def torchs_pool():
    """PyTorch's pool of streams is there before any test: to make it, CUDA waits for the GPU.

    Else the bridge makes it at a process's first bare handle, and what a test has pending is done.
    """
    if cuda_driver.why_no_gpu() is None and importlib.util.find_spec("torch"):
        import torch

        torch.cuda.Stream()


@pytest.fixture
def note(request):
    """Keep a line, such as a measured number, for the end of the run."""
    return lambda line: request.node.user_properties.append((MEASURED, line))


@pytest.fixture
def driver():
    """The driver, with the primary context current before the test and nothing pending after it."""
    loaded = cuda_driver.load()
    loaded.use_primary()
    yield loaded
    loaded.use_primary()
    loaded.synchronize()


@pytest.fixture
def new_stream(driver):
    """Makes driver streams (non-blocking unless told) that live until the test ends."""
    made: list[int] = []

    def make(flags: int = cuda_driver.NON_BLOCKING) -> int:
        made.append(driver.stream(flags))
        return made[-1]

    yield make
    driver.synchronize()
    # What a test left to be given back may know these streams.
    while _core._settle():
        driver.synchronize()
    for stream in made:
        driver("cuStreamDestroy_v2", stream)


@pytest.fixture
def event(driver):
    made = driver.event()
    yield made
    driver.synchronize()
    driver("cuEventDestroy_v2", made)


@pytest.fixture
def marks(driver):
    """Records events, and destroys them when the test ends."""
    made: list[int] = []

    def mark(stream: int) -> int:
        made.append(driver.event())
        driver("cuEventRecord", made[-1], stream)
        return made[-1]

    yield mark
    driver.synchronize()
    for event in made:
        driver("cuEventDestroy_v2", event)


@pytest.fixture
def words(driver):
    """Allocates device memory of so many 32-bit words, zeroed, freed when the test ends."""
    made: list[int] = []

    def make(count: int) -> int:
        address = driver.allocate(4 * count)
        made.append(address)
        driver.put(address, bytes(4 * count))
        return address

    yield make
    driver.synchronize()
    for address in made:
        driver("cuMemFree_v2", address)


@pytest.fixture
def place(driver, new_stream, words):
    """What the libraries' workers are made with."""
    from .converting import Place

    yield Place(driver, new_stream, words)
    gc.collect()
    driver.synchronize()


@pytest.fixture
def torch():
    """PyTorch, where it is installed."""
    return pytest.importorskip("torch")


@pytest.fixture
def cupy():
    """CuPy, where it is installed."""
    return pytest.importorskip("cupy")
