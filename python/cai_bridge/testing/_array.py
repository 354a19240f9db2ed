"""Arrays of the simulated device, each of a type with exactly the requested dunders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from cai_bridge import _core
from cai_bridge._core import _Session, _Tensor

from . import _checks, _work
from ._region import Region
from ._stream import SimulatedStream
from ._values import DTYPES, SimulatedDtype

if TYPE_CHECKING:
    from typing_extensions import CapsuleType
else:
    CapsuleType = object

LEGACY = 1


class SimulatedArray:
    """An array in simulated memory; made by `SimulatedCuda.array`.

    Its *pending stream* is the stream of its queued work. This is the stream given at creation, or
    that of the last `SimulatedStream.fill`, `SimulatedStream.copy` or launch that writes the array.
    Its exports are ordered by this stream, as in a library that tracks its streams; those of
    ``"exchange"`` by the current stream alone, as PyTorch's.

    The memory is freed when this object and all of its exports are gone. The host frees it at once
    (``cuMemFree``), so queued work that still uses it is reported. With ``memory="pool"`` it is
    freed in the order of the stream that it was allocated for.
    """

    if TYPE_CHECKING:
        # Each array has the dunders that `speaks` names, which no type checker knows.
        def __dlpack__(self, *, stream: Any = None) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    def __init__(self, tensor: _Tensor, session: _Session, name: str) -> None:
        self._tensor = tensor
        self._session = session
        self._stream: SimulatedStream | None = None
        self.name = name

    def _set_pending(self, stream: SimulatedStream) -> None:
        self._tensor.set_pending(*stream._queue)
        # Held, since a CAI exporter must keep its stream alive.
        self._stream = stream

    def __array__(self, *_wishes: object, **_more: object) -> NoReturn:
        """Refuse to become an item of an array of objects, which NumPy would make."""
        raise TypeError(
            "simulated array: got numpy.asarray(x); allowed: cuda.read(x), x.tolist(), or "
            'convert(x, "numpy")'
        )

    @property
    def _region(self) -> Region:
        return Region(*self._tensor.region())

    @property
    def stream(self) -> SimulatedStream | None:
        """The pending stream; None if no work was ever queued."""
        return self._stream

    @property
    def ptr(self) -> int:
        """The address of the first item; 0 if there are none."""
        return self._region.ptr

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, in items."""
        return self._region.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in bytes."""
        return self._region.strides

    @property
    def dtype(self) -> SimulatedDtype:
        """The element type, with a ``name``."""
        return DTYPES[self._region.dtype]

    @property
    def itemsize(self) -> int:
        """The size of an item, in bytes."""
        return self._region.itemsize

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._region.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return self._region.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of all items, gaps not counted."""
        return self._region.size * self._region.itemsize

    @property
    def readonly(self) -> bool:
        """Whether exports are read-only."""
        return self._region.readonly

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's ``(device_type, device_id)``: 2 CUDA, 3 pinned host, 13 managed memory."""
        return self._region.device

    @property
    def exports(self) -> int:
        """The number of the array's managed tensors that are alive, also in capsules."""
        return self._tensor.exports

    def tolist(self) -> Any:
        """Read the values from the host, as nested lists.

        The read is checked against queued work and makes none of it run. Inside queued work it is
        not checked, since the launch has declared it.
        """
        return _work.host_read(self._session, self, "tolist")

    def assign(self, value: object) -> None:
        """Write one value, or nested lists, from the host; checked as in `tolist`.

        Raises
        ------
        BufferError
            The array is read-only.
        """
        _work.check_writable(self._region)
        _work.host_write(self._session, self, value, "assign")

    def __repr__(self) -> str:
        region = self._region
        what = f"{type(self).__name__} {self.name!r} {region.dtype} {region.shape}"
        return f"<{what} at {region.ptr:#x}>"


def _check_request(
    array: SimulatedArray, dl_device: tuple[int, int] | None, copy: bool | None
) -> None:
    if dl_device is not None and tuple(dl_device) != array.device:
        raise BufferError(f"dl_device: got {dl_device}; allowed: None or {array.device}")
    if copy:
        raise BufferError("copy: got True; allowed: None or False")


def _order(array: SimulatedArray, stream: int | None) -> None:
    """Make the array usable on the consumer's stream, as the array API's ``__dlpack__``."""
    _work.check_lives(array._session)
    if isinstance(stream, bool) or not isinstance(stream, int | None):
        raise TypeError(f"stream: got {type(stream).__name__}; allowed: None or an integer")
    if stream == 0:
        raise ValueError("stream: got 0; allowed: None, -1, 1, 2 or a handle; 0 is ambiguous")
    if stream is not None and stream < -1:
        raise ValueError(f"stream: got {stream}; allowed: None, -1, 1, 2 or a handle")
    if stream != -1:
        array._tensor.order_before(array._tensor.ordinal, LEGACY if stream is None else stream)


class _HasDevice(SimulatedArray):
    def __dlpack_device__(self) -> tuple[int, int]:
        _work.check_lives(self._session)
        return self.device


class _DLPack(_HasDevice):
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        _check_request(self, dl_device, copy)
        versioned = max_version is not None and max_version[0] >= 1
        capsule = self._tensor.versioned() if versioned else self._tensor.legacy()
        _order(self, stream)
        return capsule


class _DLPackLegacy(_HasDevice):
    def __dlpack__(self, stream: int | None = None) -> CapsuleType:
        capsule = self._tensor.legacy()
        _order(self, stream)
        return capsule


class _DLPackStrict(_DLPack):
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        **request: Any,
    ) -> CapsuleType:
        if stream == -1:
            raise RuntimeError("stream: got -1, which this producer does not take")
        return super().__dlpack__(stream=stream, **request)


class _DLPackBare(_HasDevice):
    def __dlpack__(self) -> CapsuleType:  # type: ignore[override]
        capsule = self._tensor.legacy()
        _order(self, None)
        return capsule


class _Cai(SimulatedArray):
    _version = 3

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The dict. It orders nothing: pending work is on `stream`."""
        _work.check_lives(self._session)
        region, tensor = self._region, self._tensor
        # Before version 2 C-contiguous arrays had strides as well.
        compact = tensor.contiguous and self._version >= 2
        interface = {
            "shape": region.shape,
            "typestr": tensor.typestr,
            "data": (region.ptr, region.readonly),
            "strides": None if compact else region.strides,
            "version": self._version,
        }
        if self._version >= 3:
            interface["stream"] = tensor.pending if region.size else None
        return interface


class _Cai0(_Cai):
    _version = 0


class _Cai1(_Cai):
    _version = 1


class _Cai2(_Cai):
    _version = 2


_SPEAKERS: dict[str, type] = {
    "exchange": _core._ExchangeTensor,
    "dlpack": _DLPack,
    "dlpack-legacy": _DLPackLegacy,
    "dlpack-strict": _DLPackStrict,
    "dlpack-bare": _DLPackBare,
    "cai0": _Cai0,
    "cai1": _Cai1,
    "cai2": _Cai2,
    "cai3": _Cai,
}


def class_for(speaks: str | Iterable[str]) -> type[SimulatedArray]:
    """Find the class of arrays that speak exactly these protocols; one class for each set."""
    if not isinstance(speaks, Iterable):
        _checks.refuse(TypeError, "speaks", speaks, "a protocol's name, or several")
    names = [speaks] if isinstance(speaks, str) else list(speaks)
    names = ["cai3" if name == "cai" else name for name in names]
    unknown = [name for name in names if name not in _SPEAKERS]
    if unknown:
        allowed = ", ".join(["cai", *_SPEAKERS])
        raise ValueError(f"speaks: got {unknown[0]!r}; allowed: {allowed}, or several of them")
    for kind in ("dlpack", "cai"):
        same = sorted({name for name in names if name.startswith(kind)})
        if len(same) > 1:
            raise ValueError(f"speaks: got {' and '.join(same)}; allowed: one of them")
    ordered = tuple(name for name in _SPEAKERS if name in names)
    made = _CLASSES.get(ordered)
    if made is None:
        # If two threads arrive here at once, only one of the classes is kept.
        made = _CLASSES.setdefault(ordered, _class_of(ordered))
    return made


_CLASSES: dict[tuple[str, ...], type[SimulatedArray]] = {}


def _class_of(ordered: tuple[str, ...]) -> type[SimulatedArray]:
    bases = tuple(_SPEAKERS[name] for name in ordered)
    if not any(issubclass(base, SimulatedArray) for base in bases):
        bases = (*bases, SimulatedArray)
    # The class with the table comes last, since the others define how an array is made.
    bases = tuple(sorted(bases, key=lambda base: not issubclass(base, SimulatedArray)))
    name = f"SimulatedArray[{', '.join(ordered)}]" if ordered else "SimulatedArray"
    return type(
        name, bases, {"__module__": "cai_bridge.testing", "__doc__": SimulatedArray.__doc__}
    )
