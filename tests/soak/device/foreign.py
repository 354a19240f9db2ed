"""What others make of the bridge's capsules and streams: C code, and libraries of their own."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from cai_bridge import Library, _libraries, register
from cai_bridge.testing import _work
from cai_bridge.testing._kit.dlpack_abi import READ_ONLY, ManagedTensor, Taken, exchange_table, take
from cai_bridge.testing._region import Region
from cai_bridge.testing._stream import SimulatedStream
from cai_bridge.testing._values import DTYPES, compact_strides

from .strangers import renamed

_C = ctypes.CDLL(None)
_DTYPES = {
    "float32": (2, 32, 1),
    "int16": (0, 16, 1),
    "complex64": (5, 64, 1),
    "bfloat16": (4, 16, 1),
    "uint8": (1, 8, 1),
}


class ExternalStream(SimulatedStream):
    """An object around somebody else's handle, which owns no stream, as PyTorch's and CuPy's."""


def external(stream: SimulatedStream) -> ExternalStream:
    return ExternalStream._named(stream._session, stream.device, stream.handle)


class Registered(Library):
    """A library that is registered while a program runs, and works where the model has it."""

    name = "soak"
    arrays: ClassVar[tuple[str, ...]] = (f"{__name__}:Registered",)

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def current_stream(self, device: int) -> Any:
        return self.machine.stream(self.machine.model.works_there(device))

    def make(self, view: Any, stream: Any) -> Any:
        raise NotImplementedError

    def __enter__(self) -> None:
        self.before = _libraries._registered
        register(self)

    def __exit__(self, *_: object) -> None:
        _libraries._registered = self.before
        _libraries.ask_for_streams()


def written(
    stream: SimulatedStream, region: Region, value: Any, name: str, held: object = None
) -> Any:
    """Queue a write to memory, and give what stands for it."""
    _work.fill(stream, region, value, name=name)
    return _work.read(stream, Region(0, (0,), (4,), "float32", 4), name=name, held=held)


class ByHand:
    """A tensor that was taken out of its capsule, as C code has it."""

    def __init__(self, capsule: Any) -> None:
        self.taken = take(capsule)
        fields = self.taken.fields
        chosen = len(fields.shape or ()) + fields.dtype[1]
        renamed(capsule, fields.name, chosen)
        name = next(name for name, dtype in _DTYPES.items() if dtype == fields.dtype)
        itemsize = DTYPES[name].itemsize
        strides = fields.strides or compact_strides(fields.shape or (), 1)
        self.region = Region(
            fields.ptr,
            fields.shape or (),
            tuple(stride * itemsize for stride in strides),
            name,
            itemsize,
            bool(fields.readonly),
            fields.device,
        )

    def delete(self, how: str | None) -> None:
        """Call the deleter: by default without the lock, else in a thread of C's own."""
        if how != "native":
            self.taken.delete()
            return
        deleter, thread = ctypes.c_void_p(self.taken.struct.deleter), ctypes.c_ulong()
        address = ctypes.c_void_p(self.taken.give_away())
        assert _C.pthread_create(ctypes.byref(thread), None, deleter, address) == 0
        assert _C.pthread_join(thread, None) == 0

    def read(self, stream: SimulatedStream, name: str) -> Any:
        return _work.read(stream, self.region, name=name, held=self)

    def write(self, stream: SimulatedStream, value: Any, name: str) -> Any:
        return written(stream, self.region, value, name, self)


def adopted(kind: type, capsule: Any) -> Any:
    """Make a view of a capsule's tensor by the exchange table of its class."""
    table, taken = exchange_table(kind), take(capsule)
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    out = ctypes.c_void_p()
    imports = prototype(table.struct.managed_tensor_to_py_object_no_sync)
    assert imports(taken.give_away(), ctypes.byref(out)) == 0
    made = ctypes.cast(out, ctypes.py_object).value
    # The function gave a reference of its own away; `value` took another.
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))(out)
    return made


class Relay:
    """A library's array over a tensor that it took over: what it exports holds this object."""

    _version: ClassVar[int] = 3

    def __init__(self, session: Any, tensor: Any, stream: SimulatedStream) -> None:
        self._session, self._tensor, self.pending = session, tensor, stream
        self.streams: tuple[Any, ...] = ()

    @property
    def _region(self) -> Region:
        return Region(*self._tensor.region())

    def _set_pending(self, stream: SimulatedStream) -> None:
        # As an exporter has to, it keeps the streams that its dicts have named.
        self.streams = (*self.streams, self.pending)
        self.pending = stream

    @property
    def dtype(self) -> Any:
        return DTYPES[self._region.dtype]

    def tolist(self) -> Any:
        return _work.host_read(self._session, self, "tolist")

    def assign(self, value: Any) -> None:
        _work.host_write(self._session, self, value, "assign")


class CaiRelay(Relay):
    """One that speaks the CUDA Array Interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        region = self._region
        return {
            "shape": region.shape,
            "typestr": DTYPES[region.dtype].typestr,
            "data": (region.ptr, region.readonly),
            "strides": region.strides,
            "version": 3,
            "stream": self.pending.handle,
        }


class DLPackRelay(Relay):
    """One that speaks DLPack."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._region.device

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        region, then = self._region, 1 if stream is None else stream
        if then != -1:
            device = self._session.device_of(region.ptr)
            self._session.order(self.pending._queue, (device, then))
        strides = [stride // region.itemsize for stride in region.strides]
        form = "legacy" if max_version is None else "versioned"
        return ManagedTensor(
            region.ptr,
            form=form,
            shape=region.shape,
            strides=strides,
            dtype=_DTYPES[region.dtype],
            device=region.device,
            flags=READ_ONLY if region.readonly and max_version is not None else 0,
            owner=self,
        ).capsule()


def on_host(capsule: Any) -> Any:
    """Read a capsule's tensor in the host's memory, as nested lists."""
    held = ByHand(capsule)
    assert held.region.device == (1, 0)
    return held.region.read(ctypes.string_at)


__all__ = [
    "ByHand",
    "CaiRelay",
    "DLPackRelay",
    "ExternalStream",
    "Taken",
    "adopted",
    "external",
    "on_host",
    "written",
]
