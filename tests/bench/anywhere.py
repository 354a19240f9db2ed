"""Rows for any machine: import time, size, and the bridge over the simulated device."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import Pair, Row

IMPORT_RUNS = 10
IMPORT_BUDGET_MS = 12.0
# The profile makes the extension larger by a sixth: 2.8 MB (2026-11-28) of 3.2 that it may have.
# Compressed half of that is left, and all else in a wheel takes 0.4 MB.
EXTENSION_BUDGET_KIB = 3125.0
WHEEL_BUDGET_KIB = 1920.0
ROOT = Path(__file__).parents[2]
FRAMEWORKS = ["numpy", "torch", "cupy", "jax", "numba"]

IMPORT_PROBE = f"""
import json, sys, time
start = time.perf_counter()
import cai_bridge
spent = 1e3 * (time.perf_counter() - start)
print(json.dumps([spent, [name for name in {FRAMEWORKS} if name in sys.modules]]))
"""


def import_rows() -> Iterator[Row]:
    """What `import cai_bridge` adds to a Python that has started, and what it drags in."""
    times, dragged = [], set()
    for _ in range(IMPORT_RUNS):
        run = subprocess.run(
            [sys.executable, "-c", IMPORT_PROBE], capture_output=True, text=True, check=True
        )
        spent, found = json.loads(run.stdout)
        times.append(spent)
        dragged |= set(found)
    yield Row(
        "package",
        "import cai_bridge, beyond Python's start",
        min(times),
        "ms",
        budget=IMPORT_BUDGET_MS,
    )
    yield Row(
        "package",
        f"of {', '.join(FRAMEWORKS)}: imported along",
        len(dragged),
        "",
        budget=0.0,
        remark=", ".join(sorted(dragged)),
    )


def size_rows() -> Iterator[Row]:
    """Bytes on disk: the wheel, where `make` has built one, the extension, the package."""
    wheels = [*ROOT.glob(".venv/wheel-release/*.whl"), *ROOT.glob("dist/*.whl")]
    for wheel in wheels[:1]:
        size = wheel.stat().st_size / 1024
        yield Row("package", "wheel", size, "KiB", budget=WHEEL_BUDGET_KIB)
    spec = importlib.util.find_spec("cai_bridge._core")
    if spec is not None and spec.origin is not None:
        size = Path(spec.origin).stat().st_size / 1024
        yield Row("package", "extension", size, "KiB", budget=EXTENSION_BUDGET_KIB)
    package = importlib.util.find_spec("cai_bridge")
    if package is not None and package.origin is not None:
        files = [
            path
            for path in Path(package.origin).parent.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
        yield Row(
            "package", "installed package", sum(path.stat().st_size for path in files) / 1024, "KiB"
        )


class Stub:
    """The cheapest CAI producer there is: a ready-made dict."""

    def __init__(self, address: int, keep: object) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (16, 16), "typestr": "<f4", "data": (address, False), "version": 3,
            "strides": None, "stream": 1,
        }  # fmt: skip
        self._keep = keep


SIMULATED = [
    Pair("from_cai(stub)", "from_cai(stub)"),
    Pair("from_cai(stub).__dlpack__()", "from_cai(stub).__dlpack__()"),
    Pair("from_cai(stub).__dlpack__(max_version)", "from_cai(stub).__dlpack__(max_version=(1, 3))"),
    Pair("to_cai(stub) and its dict", "to_cai(stub).__cuda_array_interface__"),
    Pair("to_cai(view) and its dict", "to_cai(view).__cuda_array_interface__"),
    Pair("to_cai(capsule)", "to_cai(view.__dlpack__(stream=-1))"),
    Pair("tvm_ffi.from_dlpack(view), exchange API", "tvm_ffi.from_dlpack(view)"),
    Pair(
        "to_cai(tvm_ffi tensor) and its dict, exchange API",
        "to_cai(tensor).__cuda_array_interface__",
    ),
]


def simulated_rows() -> Iterator[Row]:
    """The bridge's own cost, with a driver that costs next to nothing. No budgets: those are the
    GPU's.
    """
    from cai_bridge import from_cai, to_cai

    group = "simulated device"
    try:
        from cai_bridge.testing import simulated_cuda

        device = simulated_cuda()
    except (ImportError, TypeError) as error:
        yield Row(group, "simulated_cuda()", None, remark=f"{type(error).__name__}: {error}")
        return
    with device as gpu:
        try:
            stub = simulated_stub(gpu)
            view = from_cai(stub)
        except Exception as error:
            yield Row(group, "from_cai(stub)", None, remark=f"{type(error).__name__}: {error}")
            return
        names: dict[str, Any] = {"from_cai": from_cai, "to_cai": to_cai, "stub": stub, "view": view}
        if importlib.util.find_spec("tvm_ffi") is not None:
            import tvm_ffi

            names |= {"tvm_ffi": tvm_ffi, "tensor": tvm_ffi.from_dlpack(view)}
        for pair in SIMULATED:
            if "tvm_ffi" in names or "tvm_ffi" not in pair.name:
                yield pair.measure(group, names)
        names.clear()


def simulated_stub(gpu: Any) -> Stub:
    """A stub over 1 KiB of the simulated device's memory."""
    made = gpu.alloc(1024)
    return Stub(made if isinstance(made, int) else made.ptr, keep=made)


HOST = [
    "numpy_array.__array_interface__",
    "numpy_array.__dlpack__()",
    "tvm_ffi.from_dlpack(numpy_array)",
]


def host_rows() -> Iterator[Row]:
    """The same kind of call by libraries on host memory, to compare machines by."""
    if importlib.util.find_spec("numpy") is None:
        return
    import numpy

    names: dict[str, Any] = {"numpy_array": numpy.zeros((16, 16), numpy.float32)}
    if importlib.util.find_spec("tvm_ffi") is not None:
        import tvm_ffi

        names["tvm_ffi"] = tvm_ffi
    for statement in HOST:
        if "tvm_ffi" in names or "tvm_ffi" not in statement:
            yield Pair(statement, statement).measure("host memory, to compare machines by", names)


def rows() -> Iterator[Row]:
    yield from import_rows()
    yield from size_rows()
    yield from simulated_rows()
    yield from host_rows()
