"""Work queued on streams, and the host's own accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, Protocol

from cai_bridge import _core
from cai_bridge._core import _Session

from . import _checks, _lines
from ._errors import SimulatedError
from ._pending import Pending, Result
from ._region import Region
from ._values import compact_strides, name_behind, name_of_type

Span = tuple[int, int]


def region_of_dict(interface: dict[str, Any], array: object = None) -> Region:
    """Read a dict of the CUDA Array Interface; `array` names the type of ``<V2`` and ``|V1``."""
    try:
        region = _read_dict(interface, array)
        integers = [index(one) for one in (region.ptr, *region.shape, *region.strides)]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        wrong = f"{type(error).__name__}: {error}"
    else:
        fits = all(abs(one) < 1 << 63 for one in integers)
        if fits and len(region.shape) == len(region.strides):
            return region
        wrong = f"{interface!r:.80}"
    allowed = "one with integers in 'shape', 'strides' and 'data', and with 'typestr'"
    raise ValueError(
        f"__cuda_array_interface__: got a dict that is none ({wrong}); allowed: {allowed}"
    )


def _read_dict(interface: dict[str, Any], array: object) -> Region:
    typestr = interface["typestr"]
    dtype = None
    if typestr[1] == "V":
        # A view of the bridge has a dtype of NumPy's, which may not be installed here.
        view = _core._simulated_region(array)
        dtype = getattr(array, "dtype", None) if view is None else view[3]
    itemsize = int(typestr[2:])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    strides = compact_strides(shape, itemsize) if strides is None else tuple(strides)
    ptr, readonly = interface["data"]
    return Region(ptr, shape, strides, name_behind(typestr, dtype), itemsize, readonly)


def region_of(array: Any) -> Region:
    """Return the memory of an array's or view's items."""
    if isinstance(array, Region):
        return array
    tensor = getattr(array, "_tensor", array)
    if isinstance(tensor, _core._Tensor | _core._Import):
        return Region(*tensor.region())
    known = _core._simulated_region(array)
    if known is not None:
        return Region(*known)
    dtype = getattr(array, "dtype", None)
    if all(hasattr(array, name) for name in ("ptr", "shape", "strides", "itemsize")):
        name = name_of_type(getattr(array, "typestr", None), dtype, array.itemsize)
        return Region(array.ptr, tuple(array.shape), tuple(array.strides), name, array.itemsize)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return region_of_dict(interface, array)
    raise TypeError(
        f"array: got {type(array).__name__}; allowed: an array or view with ptr, shape, strides "
        "and itemsize, or with __cuda_array_interface__"
    )


def _members(field: str, members: Any) -> list[Any]:
    allowed = "a list of arrays, views or pairs (address, bytes)"
    if isinstance(members, str) or not isinstance(members, Iterable):
        _checks.refuse(TypeError, field, members, allowed)
    given: list[Any] = list(members)
    for pair in given:
        if isinstance(pair, tuple):
            whole = len(pair) == 2 and all(type(part) is int and part >= 0 for part in pair)
            if not whole:
                _checks.refuse(ValueError, field, pair, allowed)
    return given


def _spans(member: Any) -> list[Span]:
    if isinstance(member, tuple):
        return [member]
    check_array(member)
    return region_of(member).spans()


def check_writable(region: Region) -> None:
    """Refuse to write to read-only memory."""
    if region.readonly:
        raise BufferError("array: it is read-only; allowed: a writable array")


class Stream(Protocol):
    """The stream that work is queued on: a `SimulatedStream`."""

    _session: _Session

    @property
    def _queue(self) -> tuple[int, int]:
        """The device and the stream's handle."""


def launch(
    stream: Stream,
    run: Callable[[], object] | None,
    *,
    reads: Iterable[object],
    writes: Iterable[object],
    name: str,
    checked: bool = True,
) -> None:
    """Queue work on a stream. Arrays that it writes are pending there from then on.

    With `checked` False the owner writes the first values of read-only memory.
    """
    session, (device, handle) = stream._session, stream._queue
    check_open(session)
    if run is not None and not callable(run):
        _checks.refuse(TypeError, "run", run, "None, or a callable without arguments")
    _checks.text("name", name)
    read = [span for member in _members("reads", reads) for span in _spans(member)]
    written = _members("writes", writes)
    for member in written if checked else ():
        if not isinstance(member, tuple):
            check_writable(region_of(member))
    write = [span for member in written for span in _spans(member)]
    session.launch(device, handle, name, read, write, run)
    _lines.note(session)
    for member in written:
        moved = getattr(member, "_set_pending", None)
        if moved is not None:
            moved(stream)


def fill(stream: Stream, array: object, value: object, *, name: str, checked: bool = True) -> None:
    """Queue a write of values to an array or view; `checked` as in `launch`."""
    region, store = region_of(array), stream._session.store
    items = region.pack(value)
    work = lambda: region.write(items, store)  # noqa: E731
    launch(stream, work, reads=(), writes=(array,), name=name, checked=checked)


def copy(stream: Stream, dst: object, src: object, *, name: str) -> None:
    """Queue a copy between two arrays or views."""
    to, source, session = region_of(dst), region_of(src), stream._session
    if (to.shape, to.dtype) != (source.shape, source.dtype):
        raise ValueError(
            f"src: got {source.dtype} {source.shape}; allowed: {to.dtype} {to.shape}, as dst"
        )

    def run() -> None:
        to.write(to.pack(source.read(session.load)), session.store)

    launch(stream, run, reads=(src,), writes=(dst,), name=name)


def read(stream: Stream, region: Region, *, name: str, held: object = None) -> Pending:
    """Queue a read. The work refers to the memory, and does not keep it."""
    load, result = stream._session.load, Result()
    spans = region.spans()
    launch(stream, lambda: result.set(region.read(load)), reads=spans, writes=(), name=name)
    return Pending(name, result, held)


def host_read(session: _Session, array: object, name: str) -> Any:
    """Read an array or view from the host, checked by happens-before."""
    region = region_of(array)
    session.touch(name, region.spans(), [])
    _lines.note(session)
    return region.read(session.load)


def host_write(session: _Session, array: object, value: object, name: str) -> None:
    """Write an array or view from the host, checked by happens-before."""
    region = region_of(array)
    items = region.pack(value)
    session.touch(name, [], region.spans())
    _lines.note(session)
    region.write(items, session.store)


def check_lives(session: _Session) -> None:
    """Refuse an array of a simulated device that has ended: no driver knows it any more."""
    session.check_process()
    if not session.is_open:
        raise SimulatedError(ENDED)


def check_array(array: Any) -> None:
    """Refuse an array whose simulated device has ended."""
    session = getattr(array, "_session", None)
    if isinstance(session, _Session):
        check_lives(session)


ENDED = "simulated device: got an array of one that has ended; allowed: use inside its with block"


def check_open(session: _Session) -> None:
    """Refuse calls without the simulated device in use, or in a fork of its process."""
    session.check_process()
    if not session.is_open:
        raise SimulatedError("the simulated device works only inside its with block")


def raise_kept(session: _Session) -> None:
    """Raise the first exception of callables in queued work, with later ones as its notes."""
    raised = session.take_raised()
    if not raised:
        return
    first, *others = raised
    for other in others:
        first.add_note(f"also raised by queued work: {type(other).__name__}: {other}")
    raise first
