"""What the doctor checks: a row for each thing that is unsafe, wrong, slow or missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .libraries import Found, version_of
from .machine import Driver

Level = Literal["unsafe", "wrong", "slow", "missing"]

LEVELS: dict[Level, str] = {
    "unsafe": "a setting makes values wrong",
    "wrong": "without the bridge values are wrong, or memory is misused",
    "slow": "the host waits, or a conversion takes longer than needed",
    "missing": "something is missing, or does not fit",
}
"""The levels, gravest first. The first one is about settings, and makes the command fail."""


@dataclass(frozen=True)
class Surroundings:
    """The facts that advice depends on."""

    libraries: Mapping[str, Found]
    """The installed libraries, by their names in `INSTALLABLE`."""
    environment: Mapping[str, str]
    """The environment variables."""
    driver: Driver
    """The CUDA driver, or the reason why there is none."""

    def has(self, name: str) -> bool:
        """Return whether a library is installed."""
        return name in self.libraries

    def older(self, name: str, version: str) -> bool:
        """Return whether a library is installed in a version before `version`."""
        found = self.libraries.get(name)
        return found is not None and version_of(found.version) < version_of(version)

    def since(self, name: str, version: str) -> bool:
        """Return whether a library is installed in `version` or a later one."""
        return self.has(name) and not self.older(name, version)

    def is_set(self, variable: str, value: str) -> bool:
        """Return whether an environment variable has this value."""
        return self.environment.get(variable, "").strip() == value


@dataclass(frozen=True)
class Advice:
    """One piece of advice."""

    name: str
    """The advice's name in the JSON."""
    level: Level
    """One of `LEVELS`."""
    applies: Callable[[Surroundings], bool]
    """Whether the advice applies in these surroundings."""
    what: str
    """What happens."""
    action: str
    """What to do."""
    source: str
    """Where the advice is documented, or was measured."""

    def to_dict(self) -> dict[str, str]:
        """Return the advice as data for JSON."""
        return {name: said for name, said in vars(self).items() if name != "applies"}


_MEASURED = "measured on an H200: torch 2.11, JAX 0.11.2, CuPy 14.2, numba-cuda 0.30.4"
_DOCS = "docs of cai_bridge"
_CAI = "CUDA Array Interface (Version 3), Synchronization"
_CUPY = "CuPy, environment variables"
_NUMBA = "Numba CUDA, environment variables"

ADVICE: tuple[Advice, ...] = (
    Advice(
        "bridge-sync-off",
        "unsafe",
        lambda on: on.is_set("CAI_BRIDGE_SYNC", "0"),
        "CAI_BRIDGE_SYNC=0: the bridge does not wait for the streams of imported dicts.",
        "Unset it, and pass stream= if you know the producer's stream.",
        _DOCS,
    ),
    Advice(
        "numba-sync-off",
        "unsafe",
        lambda on: on.has("numba") and on.is_set("NUMBA_CUDA_ARRAY_INTERFACE_SYNC", "0"),
        "NUMBA_CUDA_ARRAY_INTERFACE_SYNC=0: Numba does not wait for the streams of dicts.",
        "Unset it, or hand Numba to_cai(x, stream=s) with the stream that it launches on.",
        f"{_NUMBA}; {_CAI}",
    ),
    Advice(
        "cupy-sync-off",
        "unsafe",
        lambda on: on.has("cupy") and on.is_set("CUPY_CUDA_ARRAY_INTERFACE_SYNC", "0"),
        "CUPY_CUDA_ARRAY_INTERFACE_SYNC=0: CuPy does not wait for the streams of dicts.",
        "Unset it, or hand CuPy to_cai(x, stream=s) with its current stream.",
        f"{_CUPY}; {_CAI}",
    ),
    Advice(
        "cupy-export-2",
        "unsafe",
        lambda on: on.has("cupy") and on.is_set("CUPY_CUDA_ARRAY_INTERFACE_EXPORT_VERSION", "2"),
        "CUPY_CUDA_ARRAY_INTERFACE_EXPORT_VERSION=2: CuPy's dicts name no stream, so the host "
        "waits for the whole context at each import.",
        "Unset it, or pass from_cai(x, stream=s) the stream that CuPy works on.",
        f"{_CUPY}; {_CAI}",
    ),
    Advice(
        "torch-cai",
        "wrong",
        lambda on: on.has("torch"),
        "torch's dict has version 2 and names no stream, and torch ignores the streams of other "
        "libraries' dicts; conjugate views arrive unconjugated.",
        "Use convert(), or hand out to_cai(x) and import torch.from_dlpack(from_cai(y)).",
        _MEASURED,
    ),
    Advice(
        "torch-malformed",
        "wrong",
        lambda on: on.has("torch"),
        "torch aborts the process on negative strides, by as_tensor and by from_dlpack, and on "
        "a dict with a huge shape.",
        "Import reversed arrays by torch.from_dlpack(from_cai(y), copy=True); from_cai refuses "
        "huge shapes with an exception.",
        _MEASURED,
    ),
    Advice(
        "jax-cai",
        "wrong",
        lambda on: on.has("jax"),
        "JAX's dict has version 2 and names no stream, and jnp.asarray of a dict keeps no owner "
        "of the memory.",
        "Use convert(), or hand out to_cai(x) and import jax.dlpack.from_dlpack(from_cai(y)).",
        _MEASURED,
    ),
    Advice(
        "jax-immutable",
        "wrong",
        lambda on: on.has("jax"),
        "JAX's arrays are immutable, and its capsules have no flag for that: torch can write to "
        "them after torch.from_dlpack(x).",
        "Hand out to_cai(x), which is read-only; with readonly=False you vouch that nobody writes.",
        _MEASURED,
    ),
    Advice(
        "warp-cai",
        "wrong",
        lambda on: on.has("warp"),
        "Warp's dict has version 2 and names no stream, and Warp ignores the streams of other "
        "libraries' dicts.",
        "Use convert(x, 'warp'), or hand it to_cai(x, stream=s) with its stream; hand out "
        "from_cai(y, stream=s).",
        "Warp 1.19, source of warp.array",
    ),
    Advice(
        "memory-given-back",
        "wrong",
        lambda on: any(on.has(name) for name in ("torch", "cupy", "rmm")),
        "A pool hands memory out again while the consumer still reads it: neither protocol "
        "orders the end.",
        "Hand arrays over by the bridge, which orders the end.",
        _MEASURED,
    ),
    Advice(
        "numba-numpy",
        "missing",
        lambda on: on.has("numba") and on.since("numpy", "2.5"),
        "NumPy 2.5 removed row_stack, which numba-cuda reads at import.",
        "Use NumPy < 2.5 with it, or set numpy.row_stack = numpy.vstack before the import.",
        "NumPy 2.5.0 release notes; measured with numba-cuda 0.30.4",
    ),
    Advice(
        "numba-waits",
        "slow",
        lambda on: on.has("numba"),
        "numba.cuda.as_cuda_array makes the host wait for the dict's stream, which ends a graph "
        "capture.",
        "Use convert(x, 'numba'), which does not wait.",
        _MEASURED,
    ),
    Advice(
        "cupy-waits",
        "slow",
        lambda on: on.has("cupy"),
        "cupy.asarray of a dict makes the host wait for the dict's stream.",
        "Use convert(x, cupy), which does not wait.",
        _MEASURED,
    ),
    Advice(
        "rmm-waits",
        "slow",
        lambda on: on.has("rmm"),
        "rmm.DeviceBuffer's dict has version 0 and names no stream: from_cai makes the host "
        "wait for the context.",
        "Pass from_cai(x, stream=s) the stream that the buffer was made with.",
        f"{_DOCS}; {_CAI}",
    ),
    Advice(
        "torch-no-table",
        "slow",
        lambda on: on.older("torch", "2.10"),
        "torch before 2.10 has no exchange API: conversions use __dlpack__, and take "
        "microseconds instead of a fraction of one.",
        "Use torch 2.10 or later.",
        "torch 2.10, torch.Tensor.__dlpack_c_exchange_api__",
    ),
    Advice(
        "no-device",
        "missing",
        lambda on: bool(on.driver.missing),
        "There is no CUDA device; conversions of GPU arrays raise DriverError.",
        "For tests, use cai_bridge.testing.simulated_cuda().",
        _DOCS,
    ),
    Advice(
        "no-numpy",
        "missing",
        lambda on: not on.has("numpy"),
        "Without NumPy a view has no dtype; it still has typestr and itemsize.",
        "pip install numpy",
        _DOCS,
    ),
    Advice(
        "no-ml-dtypes",
        "missing",
        lambda on: on.has("numpy") and not on.has("ml_dtypes"),
        "Without ml_dtypes a view of bfloat16 or of an 8-bit float has no dtype.",
        "pip install ml_dtypes",
        _DOCS,
    ),
)


def advice_for(surroundings: Surroundings) -> tuple[Advice, ...]:
    """List the advice that applies, gravest first."""
    order = list(LEVELS)
    found = [one for one in ADVICE if one.applies(surroundings)]
    return tuple(sorted(found, key=lambda one: order.index(one.level)))
