"""Stand-ins on the simulated device, with the bridge itself between them.

Queued work runs late there, and accesses that nothing orders are reported, so that a program shows
what the bridge leaves out, and the discipline what it promises too much, without a GPU.

The device has one current stream for all libraries: the exporter's is made current for an export,
the consumer's when it takes over. Python's collector clears these arrays, which are written in
Python, before what holds them; so nothing is put into cycles.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import cai_bridge
from cai_bridge import _calls
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._array import class_for
from cai_bridge.testing._kit.dlpack_abi import read_capsule, take
from cai_bridge.testing._kit.dlpack_managed import ManagedTensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._work import region_of_dict

from ... import doors
from ...steps import HAVE_CURRENT, Export, FromCai, ToCai
from .. import adapters
from ..discipline import OF_DICTS

SPEAKS = {
    "torch": ("exchange", "dlpack", "cai2"),
    "cupy": ("dlpack", "cai3"),
    "numba": ("cai3",),
    "jax": ("dlpack-legacy",),
    "warp": ("dlpack",),
}
# Torch and Warp do not, but what nobody named a stream for the bridge has them wait for.
WAIT = {"asarray", "as_cuda_array", "argument", "as_tensor", "array"}


class Taken:
    """What a consumer makes of a view: it holds it, and works on one stream."""

    def __init__(self, region: Region, held: Any, stream: Any, cuda: SimulatedCuda) -> None:
        self.region, self.held, self.stream, self.cuda = region, held, stream, cuda


class WithDict(Taken):
    """One that exports its stream by CAI. What an exchange API says comes to the same."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.region.shape,
            "typestr": "<f4",
            "data": (self.region.ptr, False),
            "strides": None,
            "stream": self.stream.handle,
            "version": 3,
        }


class WithTensor(Taken):
    """One that exports tensors, ready on the stream that is asked for."""

    form = "legacy"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int | None = None, **wishes: Any) -> Any:
        theirs = self.cuda.stream_of(stream or 1)
        if theirs.handle != self.stream.handle:
            theirs.wait(self.stream.record())
        form = "versioned" if wishes.get("max_version") else self.form
        tensor = ManagedTensor(self.region.ptr, form=form, shape=self.region.shape, owner=self)
        return tensor.capsule()


class WithBoth(WithTensor, WithDict):
    pass


class OfJax(WithTensor):
    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return super().__dlpack__(stream=stream)


BASES = {
    "torch": WithDict,
    "tvm_ffi": WithDict,
    "numba": WithDict,
    "cupy": WithBoth,
    "jax": OfJax,
    "warp": WithTensor,
}
TAKEN: dict[str, type[Any]] = {
    name: type(f"Of_{name}", (base,), {}) for name, base in BASES.items()
}
"""A type for each library, by which its arrays are told apart."""


class Library(cai_bridge.Library):
    """What `convert` and `adapt` have to know of a stand-in."""

    def __init__(self, name: str, cuda: SimulatedCuda, own: Any) -> None:
        self.name, self.cuda, self.own = name, cuda, own
        self.writes = name != "jax"
        self._streams_by_call = name == "numba"
        self.working = threading.local()
        speaks = (SPEAKS[name],) if name in SPEAKS else ()
        self.types = (TAKEN[name], *map(class_for, speaks))

    def current_stream(self, device: int) -> Any:
        return getattr(self.working, "stream", self.own)

    def make(self, view: Any, stream: Any) -> Any:
        region = region_of_dict(view.__cuda_array_interface__, view)
        return TAKEN[self.name](region, view, stream, self.cuda)


_converted = _calls.Call.converted


def _unordered(call: Any, *given: Any) -> Any:
    call.stream = -1
    return _converted(call, *given)


class Nothing(doors.Nothing):
    """Nothing, between stand-ins."""

    shares_current = True
    keeps_cycles = False


class Bridge(doors.Bridge):
    """The bridge, for stand-ins of which not all have what their libraries have.

    A fault is one of `FAULTS`: views, capsules, copies for the CPU or calls by `adapt` without
    their waits, or views that are never released, whose blocks never end, or that are refused.
    """

    shares_current = True
    keeps_cycles = False

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        if fault == "called":
            _calls.Call.converted = _unordered

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        if step.by and isinstance(source, WithDict):
            source = WithBoth(source.region, source, source.stream, source.cuda)
        if self.fault == "unordered":
            source = cai_bridge.to_cai(source, stream=-1)
        return super().to_cai(source, step, stream)

    def from_cai(self, source: Any, step: FromCai, stream: Any, **more: Any) -> Any:
        if self.fault == "raise" and step.as_dict:
            raise BufferError("a planted fault")
        return super().from_cai(source, step, stream, **more)

    def to_host(self, view: Any) -> Any:
        if self.fault == "hurried":
            view = cai_bridge.from_cai(cai_bridge.to_cai(view, stream=-1), stream=-1)
        return super().to_host(view)

    def export(self, source: Any, step: Export, stream: Any) -> Any:
        return super().export(source, step, -1 if self.fault == "unasked" else stream)

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        while self.fault == "hang" and block:
            time.sleep(1)
        if self.fault != "kept":
            super().release(view, stream, block=block)


class Adapter(adapters.Adapter):
    """A library on the simulated device."""

    def __init__(self, name: str, cuda: SimulatedCuda) -> None:
        self.name, self.cuda = name, cuda
        super().__init__()

    def start(self) -> None:
        legacy = self.cuda.default_stream(0)
        self.own = self.cuda.stream("JAX's", blocking=False) if self.name == "jax" else legacy
        self.library = Library(self.name, self.cuda, self.own)
        cai_bridge.register(self.library)

    def new_stream(self, kind: str) -> Any:
        return self.own if kind == "default" else self.cuda.stream(blocking=kind == "blocking")

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return self.cuda.current_stream(stream)

    @contextlib.contextmanager
    def works_on(self, stream: Any) -> Iterator[None]:
        working = self.library.working
        before = working.__dict__.copy()
        if self.name in HAVE_CURRENT and stream is not None:
            working.stream = stream
        try:
            yield
        finally:
            working.__dict__.clear()
            working.__dict__.update(before)

    def handle(self, stream: Any) -> int:
        return int((stream or self.own).handle)

    def is_pending(self, stream: Any) -> bool:
        return False

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        return self.cuda.array(
            fill=value,
            shape=(words,),
            speaks=SPEAKS[self.name],
            stream=stream or self.own,
            memory="pool",
        )

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        (stream or self.own).fill(_region(array), value)

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        return (stream or self.own).read(_region(array))

    def values(self, copied: Any) -> Any:
        return np.array(copied.value)

    def pointer(self, array: Any) -> int | None:
        return int(array.region.ptr if isinstance(array, Taken) else array.ptr)

    def has(self, array: Any) -> bool:
        return isinstance(array, self.library.types)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        stream = stream or self.own
        if how == "memory":
            region = Region(source.ptr, source.shape, source.strides, "float32", 4)
            return TAKEN[self.name](region, source, stream, self.cuda)
        if how in OF_DICTS.get(self.name, ()):
            said = source.__cuda_array_interface__
            ready = None if said["stream"] is None else self.cuda.stream_of(said["stream"])
            if ready is not None and how in WAIT and ready.handle != stream.handle:
                stream.wait(ready.record())
            if how == "argument":
                return source
            named = ready or stream if self.name == "numba" else stream
            return TAKEN[self.name](region_of_dict(said, source), source, named, self.cuda)
        return self._tensor(source, stream)

    def _tensor(self, source: Any, stream: Any) -> Taken:
        """Ask for a capsule, and consume it.

        The stream is named by its object: here no library vouches for its handles.
        """
        version = {} if self.name in {"jax", "warp"} else {"max_version": (1, 0)}
        capsule = source.__dlpack__(stream=stream, **version)
        read = read_capsule(capsule)
        region = Region(read.ptr, read.shape or (), (4,), "float32", 4)
        return TAKEN[self.name](region, take(capsule), stream, self.cuda)


def _region(array: Any) -> Any:
    if isinstance(array, Taken):
        return array.region
    if hasattr(type(array), "__cuda_array_interface__") and not hasattr(array, "exports"):
        return region_of_dict(array.__cuda_array_interface__, array)
    return array
