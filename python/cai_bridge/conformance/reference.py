"""The kit's own libraries: a producer and a consumer that meet every requirement, in any lab.

If they fail a check, the lab is at fault and no library is accused: see `judging`. They use only a
lab's streams, memory and reads, and track each stream with work on an array.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from cai_bridge.testing._kit.dlpack_abi import IS_COPIED, READ_ONLY, ManagedTensor, Taken
from cai_bridge.testing._kit.dlpack_structures import DLTensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import CODES, compact_strides, dtype_named

from .adapter import ProducerAdapter
from .lab import Lab, handle_of
from .lab.array import HostMemory
from .layouts import View
from .libraries import simulated
from .reference_exchange import table_capsule

CPU, LEGACY, PER_THREAD = (1, 0), 1, 2
NAME = "the kit's own library"


class _Legacy:
    """The default stream, while no other stream is current."""

    handle = LEGACY

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class _Streams:
    """The lab's streams, and the current one."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        # Each thread has its own current stream, as in most libraries.
        self._thread = threading.local()

    @property
    def _currents(self) -> list[Any]:
        made: list[Any] = self._thread.__dict__.setdefault("streams", [])
        return made

    @property
    def current(self) -> Any:
        """The stream that work is queued on."""
        return self._currents[-1] if self._currents else _Legacy()

    def expect_device(self) -> None:
        """Refuse a thread without a current device, like libraries that make none current."""
        if not self.lab.has_device():
            raise RuntimeError("the calling thread has no current device")

    def stream(self) -> Any:
        """Make a stream."""
        self.expect_device()
        return self.lab.stream(NAME)

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[Any]:
        """Make a stream the current one."""
        self._currents.append(stream)
        try:
            yield stream
        finally:
            self._currents.pop()

    def on_device(self, ordinal: int) -> contextlib.AbstractContextManager[Any]:
        """Make the lab's device current."""
        return contextlib.nullcontext(ordinal)


class Memory:
    """Memory, and the streams with work on it, the latest last."""

    def __init__(self, library: _Streams, nbytes: int) -> None:
        self.library, self.lab = library, library.lab
        self.device = self.lab.device
        self.block = self.lab.memory(nbytes) if nbytes else None
        self.ptr = self.block.ptr if self.block else 0
        self.streams: dict[int, Any] = {}

    def used_on(self, stream: Any) -> None:
        """Record that work was queued on a stream."""
        if handle_of(stream) == PER_THREAD or isinstance(stream, _Named):
            # The stream's name means another stream in each thread, or the consumer's stream may be
            # destroyed. So a stream of the lab is ordered after it.
            behind, stream = stream, self.lab.stream(NAME)
            self.lab.order(handle_of(behind), stream.handle)
        self.streams.pop(handle_of(stream), None)
        self.streams[handle_of(stream)] = stream

    def order_before(self, stream: int) -> None:
        """Make a stream wait for all work on the memory."""
        for handle in self.streams:
            self.lab.order(handle, stream)

    def ready_stream(self) -> int | None:
        """Return a stream ordered after all work. It lives as long as the memory."""
        last = next(reversed(self.streams), None)
        if last is not None:
            self.order_before(last)
        return last


class Array:
    """An array that speaks CAI and DLPack."""

    def __init__(self, memory: Memory, region: Region) -> None:
        self.memory, self.region = memory, region

    def _viewed(self, view: View) -> Array:
        size = self.region.itemsize
        ptr, strides = self.region.ptr + size * view.offset, [size * n for n in view.strides]
        changes: dict[str, Any] = {"ptr": ptr, "shape": view.shape, "strides": tuple(strides)}
        return type(self)(self.memory, dataclasses.replace(self.region, **changes))

    @property
    def _view(self) -> View:
        size = self.region.itemsize
        return View(0, self.region.shape, tuple(step // size for step in self.region.strides))

    def __getitem__(self, key: Any) -> Array:
        return self._viewed(self._view.index(key if isinstance(key, tuple) else (key,)))

    def transpose(self, *axes: int) -> Array:
        """Put the axes in another order."""
        return self._viewed(self._view.permute(axes))

    def broadcast_to(self, shape: tuple[int, ...]) -> Array:
        """Repeat axes of one item."""
        return self._viewed(self._view.broadcast(shape))

    def frozen(self) -> Array:
        """Make a read-only view."""
        return type(self)(self.memory, dataclasses.replace(self.region, readonly=True))

    def fill(self, value: float) -> None:
        """Queue a write on the current stream."""
        if self.region.readonly:
            raise ValueError("the array is read-only")
        stream = self.memory.library.current
        self.memory.lab.write(handle_of(stream), self.region, value)
        self.memory.used_on(stream)

    def copy(self) -> Array:
        """Queue a copy on the current stream."""
        stream = self.memory.library.current
        made = empty(self.memory.library, self.region.shape, self.region.dtype)
        if self.region.size:
            self.memory.lab.copy(handle_of(stream), made.region, self.region)
            self.memory.used_on(stream)
            made.memory.used_on(stream)
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        region, typestr = self.region, dtype_named(self.region.dtype).typestr
        compact = not region.size or self._view.compact
        return {
            "shape": region.shape,
            "typestr": typestr,
            "data": (region.ptr if region.size else 0, region.readonly),
            "strides": None if compact else region.strides,
            "descr": [("", typestr)],
            "version": 3,
            "stream": self.memory.ready_stream(),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream == 0:
            raise ValueError("stream: got 0; allowed: None, -1, 1, 2 or a handle")
        versioned = max_version is not None and max_version[0] >= 1
        if dl_device == CPU != self.memory.device:
            if copy is False:
                raise BufferError("copy: got False; allowed: None or True for another device")
            return self._on_host(versioned=versioned)
        if dl_device not in (None, self.memory.device):
            raise BufferError(f"dl_device: got {dl_device}; allowed: {self.memory.device}")
        if copy:
            return self._copied(stream, versioned=versioned)
        if self.region.readonly and not versioned:
            raise BufferError("max_version: got None; allowed: 1.0 or later for read-only memory")
        if stream != -1:
            self.memory.order_before(stream or LEGACY)
        return self._managed(versioned=versioned, flags=READ_ONLY * self.region.readonly).capsule()

    def _copied(self, stream: int | None, *, versioned: bool) -> Any:
        if self.memory.device == CPU:
            raise BufferError("copy: got True; allowed: None or False")
        wanted = LEGACY if stream in (None, -1) else stream
        self.memory.order_before(wanted)
        library = self.memory.library
        with library.on(_Named(wanted)):
            made = self.copy()
        return made._managed(versioned=versioned, flags=IS_COPIED).capsule()

    def _on_host(self, *, versioned: bool) -> Any:
        for handle in self.memory.streams:
            self.memory.lab.wait(handle)
        region = self.region
        block = HostMemory(max(region.size * region.itemsize, 1))
        strides = compact_strides(region.shape, region.itemsize)
        host = dataclasses.replace(region, ptr=block.ptr, strides=strides)
        items = host.pack(self.memory.lab.get(region))

        def store(ptr: int, data: bytes) -> None:
            ctypes.memmove(ptr, data, len(data))

        host.write(items, store)
        made = Array(self.memory, host)
        flags = IS_COPIED
        return made._managed(versioned=versioned, flags=flags, device=CPU, owner=block).capsule()

    def _managed(
        self,
        *,
        versioned: bool,
        flags: int,
        device: tuple[int, int] | None = None,
        owner: object = None,
    ) -> ManagedTensor:
        region = self.region
        return ManagedTensor(
            region.ptr if region.size else 0,
            form="versioned" if versioned else "legacy",
            shape=region.shape,
            strides=[step // region.itemsize for step in region.strides],
            dtype=(*CODES[region.dtype], 1),
            device=device or self.memory.device,
            flags=flags if versioned else 0,
            owner=self if owner is None else owner,
        )

    # The exchange API.

    def exchanged(self) -> ManagedTensor:
        """Make a tensor; the current stream waits for the pending work."""
        self.memory.order_before(handle_of(self.memory.library.current))
        return self._managed(versioned=True, flags=READ_ONLY * self.region.readonly)

    def lent(self) -> ManagedTensor:
        """Make a tensor that keeps nothing alive, and order nothing."""
        return self._managed(versioned=True, flags=READ_ONLY * self.region.readonly, owner=())


class _Foreign(Memory):
    """Another library's memory, freed with its tensor."""

    def __init__(self, library: _Streams, taken: Taken) -> None:
        super().__init__(library, 0)
        self.taken, self.ptr, self.device = taken, taken.fields.ptr, taken.fields.device


class Opaque:
    """A tensor of an unknown type, only kept until it is deleted."""

    def __init__(self, taken: Taken) -> None:
        self.taken = taken


class _Named(_Legacy):
    """A consumer's stream, by its handle."""

    def __init__(self, handle: int | None) -> None:
        self.handle = handle or LEGACY


def empty(library: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Make an uninitialised array."""
    library.expect_device()
    itemsize = dtype_named(dtype).itemsize
    memory, strides = Memory(library, math.prod(shape) * itemsize), compact_strides(shape, itemsize)
    region = Region(memory.ptr, shape, strides, dtype, itemsize, device=memory.device)
    made: Array = library.array(memory, region)
    return made


class Producer(_Streams, ProducerAdapter):
    """The kit's own library as a producer."""

    name = NAME

    def __init__(self, lab: Lab, like: Any = None) -> None:
        super().__init__(lab)
        self.dtypes = getattr(like, "dtypes", ()) or ("float32",)
        spoken = {"__dlpack_c_exchange_api__": table_capsule(weakref.proxy(self))}
        self.array: type[Array] = type("Array", (Array,), spoken)

    def current_handle(self) -> int:
        """Return the stream that work is queued on."""
        return handle_of(self.current)

    def allocated(self, like: DLTensor) -> ManagedTensor | None:
        """Make a tensor like another; None if there is no memory for it."""
        names = [name for name, code in CODES.items() if code == (like.code, like.bits)]
        if (like.device_type, like.device_id) != self.lab.device or not names:
            return None
        return empty(self, tuple(like.shape[: like.ndim]), names[0]).exchanged()

    def imported(self, taken: Taken) -> Array | Opaque:
        """Make an array of a tensor; for an unknown type, an object that only keeps the tensor."""
        code, bits, lanes = taken.fields.dtype
        names = [name for name, known in CODES.items() if known == (code, bits) and lanes == 1]
        if taken.fields.device[0] != self.lab.device[0] or not names:
            return Opaque(taken)
        size, shape = bits // 8, taken.fields.shape or ()
        strides = tuple(step * size for step in taken.fields.strides or ())
        region = Region(
            *(taken.fields.ptr, shape, strides, names[0], size),
            readonly=bool(taken.fields.readonly),
            device=taken.fields.device,
        )
        return self.array(_Foreign(self, taken), region)

    def make(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Make an array."""
        return empty(self, shape, dtype)

    def readonly(self, array: Array) -> Array:
        """Make a read-only view."""
        return array.frozen()


class Consumer(_Streams, simulated.Consumer):
    """The kit's own library as a consumer: the simulated device's consumer, in any lab."""

    name = NAME

    def __init__(self, lab: Lab, like: Any = None) -> None:
        simulated.Consumer.__init__(self)
        _Streams.__init__(self, lab)
        self.dtypes = getattr(like, "dtypes", ()) or ("float32",)
        self.doors = getattr(like, "doors", ("cai", "dlpack"))

    def take(self, x: Any) -> simulated.Array:
        """Import an array by the protocol that it speaks."""
        self.expect_device()
        return super().take(x)

    def order(self, first: int, then: int) -> None:
        """Make a stream wait for another."""
        if first != then:
            self.lab.order(first, then)

    def copy(self, array: simulated.Array) -> Any:
        """Queue a read on the current stream."""
        self.expect_device()
        self.join(array)
        reading, stream = self.lab.read(handle_of(self.current), array.region), self.current
        self.give_back_read(array)
        return reading, stream

    def values(self, copied: Any) -> Any:
        """Wait for the stream of a read."""
        reading, stream = copied
        self.lab.wait(handle_of(stream))
        return reading.value

    def fill(self, array: simulated.Array, value: float) -> None:
        """Queue a write on the current stream."""
        self.check_writable(array)
        self.join(array)
        self.lab.write(handle_of(self.current), array.region, value)
        self.give_back_written(array)

    def give_back(self, array: simulated.Array) -> None:
        """Make the producer's stream, or the array's end, wait for the current stream."""
        if array.ready is not None:
            self.order(handle_of(self.current), array.ready)
        elif array.upon is not None:
            array.users.append(_Waited(self.lab, self.current))


class _Waited:
    """A stream that the host waits for at the end of an array."""

    _destroyed = False

    def __init__(self, lab: Lab, stream: Any) -> None:
        self._lab, self._stream = lab, stream
        self._session = self
        self.is_open = True

    def synchronize(self) -> None:
        """Make the host wait."""
        self._lab.wait(handle_of(self._stream))


def reference_of(role: str, adapter: object, lab: Lab) -> Producer | Consumer:
    """Return the kit's own library for a role, with an adapter's types and doors."""
    key = role, *(getattr(adapter, name, ()) for name in ("dtypes", "doors"))
    if key not in lab.own:
        lab.own[key] = (Producer if role == "producer" else Consumer)(lab, adapter)
    made: Producer | Consumer = lab.own[key]
    return made
