"""The code for Ray of docs/distributed.md, on real processes with a simulated device in each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_distributed_page import BLOCKS

from cai_bridge import CaiView, DLPackView, DriverError, convert, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.timeout(180),
]

SECONDS = 60
(CODE,) = [block for block in BLOCKS if "register_serializer" in block]


NAMES = {"convert": convert, "CaiView": CaiView, "DLPackView": DLPackView}


class Process:
    """An actor with a device."""

    def __init__(self, code: str | None) -> None:
        self.cuda = simulated_cuda(check=False).__enter__()
        if code:
            exec(code, dict(NAMES))

    def late(self, value: float, kind: str = "DLPackView", dtype: str = "float32") -> Any:
        """Make an array that is written late, beside a stream that stays busy."""
        self.cuda.synchronize()
        stream, busy = self.cuda.stream("late"), self.cuda.stream("busy")
        self.array, self.other = (
            self.cuda.array([0.0] * 4, dtype=dtype, speaks="cai3") for _ in range(2)
        )
        stream.fill(self.array, value)
        busy.fill(self.other, 9.0)
        return (to_cai if kind == "CaiView" else to_dlpack)(self.array)

    def pending(self) -> int:
        return self.cuda.pending

    def seen(self, view: Any) -> Any:
        host = np.asarray(convert(view, "numpy"))
        return type(view).__name__, view.dtype.name, host.astype("float64").tolist()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def two(cluster: None) -> Any:
    return [ray.remote(Process).remote(CODE) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("kind", ["CaiView", "DLPackView"])
def test_a_view_goes_from_process_to_process_once_it_is_written(kind, dtype, two):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    first, second = two
    view = first.late.remote(7.0, kind, dtype)
    seen = ray.get(second.seen.remote(view), timeout=SECONDS)
    assert seen == ("DLPackView", dtype, [7.0] * 4)
    assert ray.get(first.pending.remote(), timeout=SECONDS) == 1, "the other stream's work"


def test_the_driver_program_has_its_own_copy_and_sends_views_too(two, cuda):
    view = ray.get(two[0].late.remote(7.0), timeout=SECONDS)
    assert convert(view, "numpy").tolist() == [7.0] * 4
    exec(CODE, dict(NAMES))
    try:
        view = to_dlpack(cuda.array([5.0, 6.0]))
        seen = ray.get(two[0].seen.remote(view), timeout=SECONDS)
        assert seen == ("DLPackView", "float32", [5.0, 6.0])
    finally:
        for kind in (CaiView, DLPackView):
            ray.util.serialization.deregister_serializer(kind)


def test_a_process_without_a_gpu_raises(two):
    with pytest.raises((DriverError, ray.exceptions.RaySystemError), match="a machine with a CUDA"):
        ray.get(two[0].late.remote(7.0), timeout=SECONDS)


def test_without_the_code_the_refusal_names_what_to_do(cluster):
    process = ray.remote(Process).remote(None)
    with pytest.raises(TypeError, match=r"cannot pickle a DLPackView: .* convert\(x, 'numpy'\)"):
        ray.get(process.late.remote(7.0), timeout=SECONDS)
