"""What the workers of test_dask.py run on the GPU, each library in its own way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "examples" / "distributed"))

import late

from cai_bridge import convert, to_dlpack

from .driver import NOT_READY, load

COUNT = 1 << 16
# The stream that is busy, and an event behind its work; torch's and CuPy's own streams.
HELD: dict[str, Any] = {}


def setup(libraries: list[str]) -> None:
    """Work on streams that no other is ordered with, and compile what compiles."""
    driver = load()
    driver.use_primary()
    HELD["busy"] = driver.stream()
    driver.spin(HELD["busy"], 0.01)
    if "torch" in libraries:
        import torch

        torch.cuda.set_stream(torch.cuda.Stream())
    if "cupy" in libraries:
        import cupy

        HELD["cupy"] = cupy.cuda.Stream(non_blocking=True).use()
    for library in libraries:
        HELD[library, "first"] = getattr(late, library)(0.0, COUNT)
    driver.synchronize()


def written_late(library: str, value: float, busy_ms: float = 0.0) -> Any:
    """Make an array that is written in 50 ms, beside a stream that is busy for longer."""
    x = getattr(late, library)(value, COUNT)
    if busy_ms:
        driver = load()
        driver.use_primary()
        driver.spin(HELD["busy"], busy_ms)
        HELD["event"] = driver.event()
        driver("cuEventRecord", HELD["event"], HELD["busy"])
    return to_dlpack(x)


def least_and_most(library: str, view: Any) -> tuple[float, float]:
    """Take what arrived as an array of the library, and read it."""
    host = np.asarray(convert(convert(view, library), "numpy"))
    return float(host.min()), float(host.max())


def is_busy() -> bool:
    driver = load()
    driver.use_primary()
    return driver.result("cuEventQuery", HELD["event"]) == NOT_READY


def is_busy_once_handed_on(library: str, busy_ms: float) -> bool:
    """Serialize as for UCX, which gets the GPU memory itself, and ask the busy stream."""
    from distributed.protocol import serialize

    header, (frame,) = serialize(written_late(library, 7.0, busy_ms), serializers=("cuda",))
    busy = is_busy()
    assert header["serializer"] == "cuda"
    assert set(np.asarray(convert(frame, "numpy")).view("float32").tolist()) == {7.0}
    return busy
