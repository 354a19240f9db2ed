"""The active simulated device as a library: its own arrays, and a careful consumer.

The stand-in consumers of `SimulatedCuda.consumer` have the gaps of the libraries that they imitate.
`Consumer` has none: it follows both specifications.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cai_bridge import DriverError, Library
from cai_bridge.testing._array import SimulatedArray
from cai_bridge.testing._cuda import SimulatedCuda
from cai_bridge.testing._kit.dlpack_abi import TensorFields, read_capsule, take
from cai_bridge.testing._kit.dtypes import dlpack_name
from cai_bridge.testing._pending import Pending
from cai_bridge.testing._region import Region
from cai_bridge.testing._stream import SimulatedStream
from cai_bridge.testing._values import DTYPES, compact_strides
from cai_bridge.testing._work import region_of_dict

from ..adapter import ConsumerAdapter, ProducerAdapter

CUDA = 2


def _device() -> SimulatedCuda:
    cuda = SimulatedCuda.current()
    if cuda is None:
        raise RuntimeError("no simulated device is in place; allowed: inside its with block")
    return cuda


class _Library:
    """Streams, and the current one."""

    def __init__(self) -> None:
        self._current: list[SimulatedStream] = []

    @property
    def current(self) -> SimulatedStream:
        """The stream that work is queued on; by default the legacy default stream."""
        return self._current[-1] if self._current else _device().legacy

    def stream(self) -> SimulatedStream:
        """Make a stream."""
        return _device().stream()

    @contextlib.contextmanager
    def on(self, stream: SimulatedStream) -> Iterator[SimulatedStream]:
        """Make a stream the current one."""
        self._current.append(stream)
        try:
            with _device().current_stream(stream):
                yield stream
        finally:
            self._current.pop()


class Producer(_Library, ProducerAdapter):
    """Arrays of the simulated device, which speak ``__dlpack__`` and CAI."""

    name = "simulated"
    dtypes = tuple(DTYPES)

    def make(self, shape: tuple[int, ...], dtype: str) -> SimulatedArray:
        """Make an array."""
        return _device().array(shape=shape, dtype=dtype, speaks=("dlpack", "cai"))

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> SimulatedArray:
        """Make an array from a stream's pool, which hands freed memory out again at once."""
        array = _device().array(
            shape=shape,
            dtype=dtype,
            speaks=("dlpack", "cai"),
            stream=self.current,
            memory="pool",
        )
        self.fill(array, value)
        return array

    def fill(self, array: SimulatedArray, value: float) -> None:
        """Queue a write, and mark the array as pending on its stream."""
        self.current.fill(array, value)


@dataclass
class Array:
    """An array that `Consumer` has imported.

    Attributes
    ----------
    region : Region
        The items' place in memory.
    ready : int or None
        The handle of the stream that the producer works on, if the producer named one.
    held : object
        The exporter, or the managed tensor, which the array keeps.
    upon : SimulatedStream or None
        The stream of the import; other streams wait for it.
    users : list of SimulatedStream, or what waits as one
        The streams with work on the array, if its memory is freed with the array.
    """

    region: Region
    ready: int | None
    held: Any
    upon: SimulatedStream | None = None
    users: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The garbage collector runs this before any `__del__` in a cycle with the array, such as
        # the tensor's.
        weakref.finalize(self, _wait_for, self.users).atexit = False

    def __del__(self) -> None:
        # A deleter tells the producer that no work is left, so wait first.
        _wait_for(self.users)


def _wait_for(users: list[Any]) -> None:
    """Make the host wait for the streams of an array that is being dropped."""
    for stream in users:
        if not stream._session.is_open:
            return
        # An error of the work is reported where its result is read.
        with contextlib.suppress(DriverError):
            if stream._destroyed:  # by the garbage collector, in a cycle with the array
                _device().synchronize()
            else:
                stream.synchronize()
    users.clear()


class Converted(Library):
    """Arrays that `convert` makes for a consumer: they hold a view, and order nothing.

    Parameters
    ----------
    consumer : object
        The consumer whose ``current`` stream the arrays are for.
    """

    name = "simulated"
    arrays = (f"{__name__}:Array",)

    def __init__(self, consumer: _Library) -> None:
        self._consumer = consumer

    def current_stream(self, device: int) -> SimulatedStream:
        """Return the consumer's current stream."""
        del device
        return self._consumer.current

    def make(self, view: Any, stream: Any) -> Array:
        """Make an array, which is ready on that stream."""
        del stream
        return Array(region_of_dict(view.__cuda_array_interface__, view), None, view)


class Consumer(_Library, ConsumerAdapter):
    """A consumer that works on its own stream, and makes both edges by events."""

    name = "simulated"
    dtypes = tuple(DTYPES)

    def __init__(self) -> None:
        super().__init__()
        self.library = Converted(self)

    def take(self, x: Any) -> Array:
        """Import an array by the protocol that it speaks, CAI first."""
        if hasattr(type(x), "__cuda_array_interface__"):
            return self.take_dict(x)
        return self.take_capsule(x)

    def copy(self, array: Array) -> tuple[Pending, SimulatedStream]:
        """Queue a read on the current stream."""
        self.join(array)
        pending = self.current.read(array.region, name="the consumer's read")
        self.give_back_read(array)
        return pending, self.current

    def values(self, copied: tuple[Pending, SimulatedStream]) -> Any:
        """Wait for the stream of a read."""
        pending, stream = copied
        stream.synchronize()
        return pending.value

    def fill(self, array: Array, value: float) -> None:
        """Queue a write on the current stream."""
        self.check_writable(array)
        self.join(array)
        self.current.fill(array.region, value, name="the consumer's write")
        self.give_back_written(array)

    def join(self, array: Array) -> None:
        """Make the current stream wait for the stream of the import."""
        if array.upon is not None:
            self.order(array.upon.handle, self.current.handle)

    def check_writable(self, array: Array) -> None:
        """Raise an exception if the array is read-only."""
        if array.region.readonly:
            raise BufferError("array: got a read-only array; allowed: a writable one")

    def give_back_read(self, array: Array) -> None:
        """Order the producer's next work after a read."""
        self.give_back(array)

    def give_back_written(self, array: Array) -> None:
        """Order the producer's next work after a write."""
        self.give_back(array)

    def give_back(self, array: Array) -> None:
        """Make the producer's stream wait for the current one."""
        if array.ready is not None:
            self.order(self.current.handle, array.ready)
        elif array.upon is not None:
            array.users.append(self.current)

    def order(self, first: int, then: int) -> None:
        """Make stream `then` wait for stream `first`, by an event; handles."""
        if first != then:
            _device().stream_of(then).wait(_device().stream_of(first).record())

    # CAI.

    def take_dict(self, x: Any) -> Array:
        """Import an array by CAI."""
        said = self.interface(x)
        self.check_version(said["version"])
        self.check_mask(said.get("mask"))
        region = self.described(said, x)
        stream = self.named_stream(said)
        if stream is not None:
            self.wait_for(stream)
        return Array(region, stream, x, self.current)

    def interface(self, x: Any) -> dict[str, Any]:
        """Read the attribute."""
        said: dict[str, Any] = x.__cuda_array_interface__
        return said

    def check_version(self, version: int) -> None:
        """Refuse unknown versions."""
        if version > 3:
            raise ValueError(f"version: got {version}; allowed: 0 to 3")

    def check_mask(self, mask: object) -> None:
        """Refuse masks."""
        if mask is not None:
            raise NotImplementedError("mask: got one; allowed: None")

    def described(self, said: dict[str, Any], x: Any) -> Region:
        """Return the items' region; refuse other byte orders, and types that the consumer lacks."""
        return region_of_dict(said, x)

    def named_stream(self, said: dict[str, Any]) -> int | None:
        """Return the stream that the producer works on."""
        stream: int | None = said.get("stream")
        if stream == 0:
            raise ValueError("stream: got 0; allowed: None, 1, 2 or a handle")
        return stream

    def wait_for(self, stream: int) -> None:
        """Make the current stream wait for the producer's stream."""
        self.order(stream, self.current.handle)

    # DLPack.

    def take_capsule(self, x: Any) -> Array:
        """Import an array by ``__dlpack__``."""
        self.check_device(x)
        capsule = self.ask(x)
        region = self.region_of(self.read(capsule))
        return Array(region, None, self.consume(capsule), self.current)

    def check_device(self, x: Any) -> None:
        """Refuse arrays outside CUDA devices, before naming a stream."""
        kind, _ = x.__dlpack_device__()
        if kind != CUDA:
            raise BufferError(f"device: got the type {kind}; allowed: 2, CUDA")

    def ask(self, x: Any) -> Any:
        """Ask for a capsule."""
        stream = self.stream_to_name()
        try:
            return x.__dlpack__(stream=stream, max_version=(1, 3))
        except TypeError:
            return x.__dlpack__(stream=stream)

    def stream_to_name(self) -> int:
        """Return the stream that the producer must order before its export."""
        return self.current.handle

    def read(self, capsule: Any) -> TensorFields:
        """Read the tensor; refuse other major versions."""
        return read_capsule(capsule)

    def region_of(self, fields: TensorFields) -> Region:
        """Return the items' region."""
        if fields.device[0] != CUDA:
            raise BufferError(f"device: got {fields.device}; allowed: the type 2, CUDA")
        code, bits, lanes = fields.dtype
        dtype = dlpack_name(code, bits)
        if dtype not in DTYPES or lanes != 1:
            raise BufferError(f"dtype: got {fields.dtype}; allowed: {', '.join(DTYPES)}")
        shape, itemsize = fields.shape or (), bits // 8
        readonly = bool(fields.readonly)
        strides = self.strides_of(fields, shape)
        in_bytes = tuple(step * itemsize for step in strides)
        return Region(fields.ptr, shape, in_bytes, dtype, itemsize, readonly, fields.device)

    def strides_of(self, fields: TensorFields, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides in items; for NULL, those of a C-contiguous array."""
        return compact_strides(shape, 1) if fields.strides is None else fields.strides

    def consume(self, capsule: Any) -> Any:
        """Rename the capsule, and own the tensor; dropping the result calls its deleter."""
        return take(capsule)
