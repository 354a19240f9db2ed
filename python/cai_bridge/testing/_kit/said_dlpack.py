"""Reads what an array says by DLPack: by its method, by its type's table, and in a capsule.

An export is read and given back at once, and no stream is ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cai_bridge.testing._values import compact_strides

from .dlpack_capsule import capsule_name, read_capsule
from .dlpack_exchange import ExchangeTable, exchange_table
from .dlpack_fields import TensorFields
from .dlpack_structures import IS_COPIED, IS_SUBBYTE_TYPE_PADDED, MAX_NDIM
from .dtypes import dlpack_name, typestr_of
from .said import UNSAID, Said, malformed, shown, why

METHOD, TABLE, CAPSULE = "__dlpack__", "exchange API", "capsule"
CPU = 1
NEWEST = (1, 3)


def said_by_tensor(
    door: str,
    fields: TensorFields,
    *,
    stream: int | str | None = None,
    problems: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Said:
    """Convert a tensor's fields to the common form."""
    code, bits, lanes = fields.dtype
    name = dlpack_name(code, bits)
    shape, strides, itemsize, layout_notes = _layout(fields)
    return Said(
        door,
        version="legacy" if fields.version is None else ".".join(map(str, fields.version)),
        ptr=fields.ptr,
        shape=shape,
        strides=strides,
        # Some libraries have types of their own for several lanes of a type narrower than a byte.
        dtype=f"{name}_x{lanes}" if name and bits % 8 and lanes > 1 else name,
        typestr=typestr_of(name),
        itemsize=itemsize,
        device=fields.device,
        readonly=fields.readonly,
        stream=stream,
        problems=(*_problems(fields, name), *problems),
        notes=(*layout_notes, *notes),
    )


def _layout(
    fields: TensorFields,
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, int | None, tuple[str, ...]]:
    """Return the shape, the strides in bytes, the size of an item, and notes."""
    _code, bits, lanes = fields.dtype
    shape, strides = fields.shape, fields.strides
    if strides is None and shape is not None and min(shape, default=0) >= 0:
        strides = compact_strides(shape, 1)
    notes = ["flags: IS_COPIED"] if (fields.flags or 0) & IS_COPIED else []
    if bits % 8 == 0 or lanes == 0:
        itemsize: int | None = bits // 8
        element = bits // 8 * lanes
    elif (fields.flags or 0) & IS_SUBBYTE_TYPE_PADDED:
        itemsize = element = lanes
    else:
        element, rest = divmod(bits * lanes, 8)
        itemsize = None if rest else element
        if rest:
            notes.append(f"strides: {strides} items of {bits} bits, packed")
            return shape, None, None, tuple(notes)
    in_bytes = None if strides is None else tuple(step * element for step in strides)
    if lanes > 1 and bits % 8 == 0:
        notes.append(f"lanes: {lanes}, shown as the last dimension")
        shape = None if shape is None else (*shape, lanes)
        in_bytes = None if in_bytes is None else (*in_bytes, bits // 8)
    return shape, in_bytes, itemsize, tuple(notes)


def _problems(fields: TensorFields, name: str | None) -> list[str]:
    """List the malformed fields of a tensor, by dlpack.h 1.3."""
    shape, problems = fields.shape, []
    if not 0 <= fields.ndim <= MAX_NDIM:
        problems.append(malformed("ndim", str(fields.ndim), f"0 to {MAX_NDIM}"))
    elif shape is None:
        problems.append(malformed("shape", "NULL", f"{fields.ndim} extents"))
    elif fields.strides is None and (fields.version or (0, 0)) >= (1, 2):
        allowed = "strides: they may be left out only before DLPack 1.2"
        problems.append(malformed("strides", "NULL", allowed))
    for axis, extent in enumerate(shape or ()):
        if extent < 0:
            problems.append(malformed(f"shape[{axis}]", str(extent), "0 and more"))
    if name is None or fields.dtype[2] == 0:
        got = "(code={}, bits={}, lanes={})".format(*fields.dtype)
        problems.append(malformed("dtype", got, "a type of DLPack 1.3, of a lane or more"))
    if fields.data == 0 and shape is not None and 0 not in shape:
        problems.append(malformed("data", "NULL", "an address where there are items"))
    return problems


def _device(x: Any) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
    """Ask ``__dlpack_device__``, and report a wrong answer."""
    allowed = "(device_type, device_id)"
    try:
        answer = x.__dlpack_device__()
    except Exception as error:  # a producer may raise anything
        return None, (malformed("__dlpack_device__", why(error), allowed),)
    try:
        kind, index = answer
        return (int(kind), int(index)), ()
    except Exception:  # the answer may be of any type
        return None, (malformed("__dlpack_device__", shown(answer), allowed),)


class _RefusedError(Exception):
    """The text of a producer's exception. The exception would keep frames, and so the array."""


def _ask(method: Callable[..., Any], *, cpu: bool) -> tuple[Any, str]:
    """Ask for a capsule, and describe the call. Older producers take fewer arguments."""
    refusal, arguments = "", False
    # For the CPU the array API allows None as the only stream.
    for stream in (None,) if cpu else (-1, 1):
        for wishes in ({"stream": stream, "max_version": NEWEST}, {"stream": stream}):
            try:
                return method(**wishes), f"stream={stream}"
            except BufferError:
                # A BufferError does not depend on how the producer was asked.
                raise
            except TypeError as error:
                refusal, arguments = why(error), True
            except Exception as error:  # a producer may raise anything
                refusal, arguments = why(error), False
                break
    if arguments:
        return method(), "no stream"
    raise _RefusedError(refusal)


_HOW = {
    "stream=None": (),
    "stream=-1": ("stream: asked with -1, for no order",),
    "stream=1": (
        "stream: asked with 1, since it refuses -1: "
        "the legacy default stream waits for what is pending",
    ),
    "no stream": (
        "stream: asked without one, since it takes none: "
        "the legacy default stream may wait for what is pending",
    ),
}


def said_by_method(x: Any) -> Said | None:
    """Read the tensor of ``__dlpack__``; None if the object has no such method."""
    try:
        method = getattr(x, "__dlpack__", None)
        if method is None:
            return None
        device, problems = _device(x)
        capsule, how = _ask(method, cpu=device is not None and device[0] == CPU)
        said = said_by_capsule(capsule, METHOD, problems=problems, notes=_HOW[how])
    except _RefusedError as refused:
        return Said(METHOD, error=str(refused))
    except Exception as error:  # a producer may raise anything
        return Said(METHOD, error=why(error))
    if device is None or said.device is None or device == said.device:
        return said
    contradiction = malformed("__dlpack_device__", str(device), f"{said.device}, as in the capsule")
    return replace(said, problems=(*said.problems, contradiction))


def said_by_capsule(
    capsule: Any,
    door: str = CAPSULE,
    *,
    problems: tuple[str, ...] = (),
    notes: tuple[str, ...] = ("stream: ready on the one that it was asked for",),
) -> Said:
    """Read a capsule without consuming it.

    A used capsule is an error: its tensor belongs to its consumer, and may have been deleted.
    """
    name = capsule_name(capsule)
    if name not in {"dltensor", "dltensor_versioned"}:
        got = shown(capsule) if name is None else repr(name)
        allowed = "dltensor or dltensor_versioned"
        return Said(door, error=malformed("capsule", got, allowed), problems=problems)
    try:
        fields = read_capsule(capsule)
    except BufferError as error:
        return Said(door, error=why(error), problems=problems)
    return said_by_tensor(door, fields, problems=problems, notes=notes)


def said_by_table(x: Any) -> Said | None:
    """Read the tensor of the exchange API; None if the type has no table of major version 1."""
    version = None
    try:
        table = exchange_table(type(x))
        if table is None:
            return None
        version = "{}.{}".format(*table.version)
        problems = [malformed(entry, "NULL", "a function") for entry in table.missing]
        taken = table.export(x)
        try:
            fields = taken.fields
        finally:
            taken.delete()
        stream = _work_stream(table, fields.device, problems)
        return said_by_tensor(TABLE, fields, stream=stream, problems=tuple(problems))
    except Exception as error:  # a producer may raise anything
        return Said(TABLE, version=version, error=why(error))


def _work_stream(
    table: ExchangeTable, device: tuple[int, int], problems: list[str]
) -> int | str | None:
    if device[0] == CPU:
        return None
    if "current_work_stream" in table.missing:
        return UNSAID
    try:
        # The C API calls the legacy default stream 0.
        return table.work_stream(*device) or 1
    except Exception as error:  # a producer may raise anything
        problems.append(malformed("current_work_stream", why(error), "a stream"))
        return UNSAID
