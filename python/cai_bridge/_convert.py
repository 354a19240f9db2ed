"""`convert` for copies, arrays on the host, and arrays of the target library itself."""

from __future__ import annotations

from collections.abc import Callable

from . import _libraries
from ._core import DLPackView, _goes_on, _is_on_host, _ready_on, to_dlpack
from ._libraries import Library
from ._libraries._views import ANY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["detached", "general", "leaves"]

ITEM = "_cai_bridge_item"
"""The attribute of an error with the number of the array that it is about."""
CAPSULE = type(DLPackView.__dlpack_c_exchange_api__)


def general(  # noqa: PLR0917 - called by Rust, by places
    x: Any,
    library: Library,
    stream: Any = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
) -> Any:
    """Convert anything but trees. Most arrays take a quicker way and do not come here."""
    is_own = _is_own(x, library)
    if detach:
        x = detached(x)
    if is_own:
        if _asks(library, stream, readonly):
            library.maker.admit([x], stream, readonly)
        return _own([x], library, stream, copy, readonly)[0]
    if _is_on_host(x):
        return library.maker.of_host_array(x, stream, copy, readonly)
    given, later = [x], list[Callable[[], None]]()
    try:
        if copy is not None:
            given = _copies(given, library, copy, stream, readonly, later)
        made = library.maker.convert(given, _on(stream, copy), readonly)[0]
    except Exception as error:
        error.__dict__.pop(ITEM, None)
        raise
    for consume in later:
        consume()
    return made


def leaves(
    arrays: list[Any],
    hosts: list[int],
    own: list[int],
    library: Library,
    later: list[Callable[[], None]] | None,
    *,
    stream: Any = None,
    copy: bool | None = None,
    readonly: bool | None = None,
    detach: bool | None = None,
    made_on: Any = None,
    lent: list[Any] | None = None,
) -> list[Any]:
    """Convert the arrays of a tree, all or none. An error has the array's number in `ITEM`.

    Some arrays are on the host, and some are the target library's own. Functions added to `later`
    consume the capsules among them. `made_on` is the stream of their pending work, if it is not
    their library's current one. With `lent` they are for one call, at whose end the functions added
    to that list are called.
    """
    if detach:
        arrays = [*map(detached, arrays)]
    if hosts:
        library.maker.admit([], stream, readonly)
    made: dict[int, Any] = {}
    for number in hosts:
        try:
            made[number] = library.maker.of_host_array(arrays[number], stream, copy, readonly)
        except Exception as error:
            error.__dict__[ITEM] = number
            raise
    foreign = sorted({*range(len(arrays))} - {*hosts, *own})
    owned = [arrays[number] for number in own]
    try:
        if own and _asks(library, stream, readonly):
            library.maker.admit(owned, stream, readonly)
    except Exception as error:
        _name(error, own)
        raise
    item = None
    try:
        given = [arrays[number] for number in foreign]
        if copy is not None:
            given = _copies(given, library, copy, stream, readonly, later)
        if made_on is not None:
            # Their work is pending on that stream, and they go back to it.
            for item, view in enumerate(_taken(given, later)):
                given[item] = _ready_on(view, made_on)
            item = None
        converted = library.maker.convert(given, _on(stream, copy), readonly, lent, later)
    except Exception as error:
        _name(error, foreign, item)
        raise
    made |= zip(foreign, converted, strict=True)
    try:
        if own and made_on is not None:
            _order_owned(owned, library, stream, made_on, later)
        owned = _own(owned, library, stream, copy, readonly, lent) if own else owned
    except Exception as error:
        _name(error, own)
        raise
    made |= zip(own, owned, strict=True)
    return [made[number] for number in range(len(arrays))]


def _name(error: Exception, numbers: list[int], item: int | None = None) -> None:
    """Make an error about one of some arrays name its number among all."""
    item = error.__dict__.pop(ITEM, item)
    if item is not None:
        error.__dict__[ITEM] = numbers[item]


def _order_owned(
    owned: list[Any],
    library: Library,
    stream: Any,
    made_on: Any,
    later: list[Callable[[], None]] | None,
) -> None:
    """Make the library wait for the work on its own arrays, which were made on `made_on`."""
    views = _taken([*map(detached, owned)], later)
    for view in views:
        if (on := library.maker.works_on(view.device[1], stream)) is not None:
            _goes_on(view, on)
    # Further arrays of the same memory, only for their order.
    library.maker.convert([_ready_on(view, made_on) for view in views], None, False)


def _is_own(x: Any, library: Library) -> bool:
    """Tell whether `x` is one of the library's own arrays.

    Numba's arrays of pinned and managed memory have NumPy's type, but work on them may be pending.
    """
    is_numpys = library.name == "numpy"
    return isinstance(x, library.types) and not (
        is_numpys and hasattr(x, "__cuda_array_interface__")
    )


def _is_view(library: Library) -> bool:
    return library.view in library.types


def _asks(library: Library, stream: Any, readonly: bool | None) -> bool:
    """Tell whether arrays of the library itself may be refused."""
    return stream is not None or readonly is not None or _is_view(library)


def _own(  # noqa: PLR0917
    arrays: list[Any],
    library: Library,
    stream: Any,
    copy: bool | None,
    readonly: bool | None,
    lent: list[Any] | None = None,
) -> list[Any]:
    """Return arrays of the library itself unchanged, ordered if a stream is named, or copied."""
    if library.name == "numpy":
        return [library.maker.of_host_array(array, stream, copy, readonly) for array in arrays]
    if copy:
        hosts = {
            at: library.maker.of_host_array(array, stream, copy, readonly)
            for at, array in enumerate(arrays)
            if _is_on_host(array)
        }
        others = [array for at, array in enumerate(arrays) if at not in hosts]
        copies = [_copied(array, library, copy, stream) for array in others]
        on = _on(stream, copy)
        made = iter(library.maker.convert(copies, on, readonly) if copies else ())
        return [hosts[at] if at in hosts else next(made) for at in range(len(arrays))]
    if _is_view(library) and not (stream is None and readonly is None):
        return library.maker.convert(arrays, stream, readonly, lent)
    if stream is not None:
        ordered = [detached(array) for array in arrays]
        for view in ANY.maker.convert(ordered, stream, None):
            # The library keeps its arrays. Only the end of a call gives something back.
            if lent is None:
                _goes_on(view, stream)
                view.release(-1)
            else:
                lent.append(view.release)
    return arrays


def _copies(  # noqa: PLR0917
    arrays: list[Any],
    library: Library,
    copy: bool,
    stream: Any,
    readonly: bool | None,
    later: list[Callable[[], None]] | None,
) -> list[Any]:
    """Copy the arrays of a tree. Functions added to `later` consume its capsules."""
    library.maker.admit([], stream, readonly)
    if readonly and library.writes:
        return arrays  # the library refuses these in any form, so no copy is made
    made = list(arrays)
    capsules = [item for item, x in enumerate(arrays) if type(x) is CAPSULE]
    item = 0
    try:
        for item, x in enumerate(arrays):
            if type(x) is not CAPSULE or library.name == "numpy":
                made[item] = _copied(x, library, copy, stream)
        if copy and capsules and library.name != "numpy":
            library.maker.admit([arrays[item] for item in capsules], stream)
            taken = _libraries.find("dlpack").maker.convert(
                [arrays[item] for item in capsules], None, None, None, later
            )
            for item, x in zip(capsules, taken, strict=True):
                made[item] = _copied(x, library, copy, stream)
    except Exception as error:
        known = error.__dict__.get(ITEM)
        error.__dict__[ITEM] = item if known is None else capsules[known]
        raise
    return made


def _on(stream: Any, copy: bool | None) -> Any:
    """Return the consumer's stream. With -1 nothing is pending but the new copy."""
    return None if copy and type(stream) is int and stream == -1 else stream


def _copied(x: Any, library: Library, copy: bool, stream: Any) -> Any:
    """Return a capsule with a copy of `x` on the consumer's device; `x` itself without `copy`."""
    if library.name == "numpy":
        if not copy:
            raise ValueError(
                "copy: got False; allowed: None or True: a NumPy array is a copy in host memory"
            )
        return x
    if not copy:
        return x
    said = _on(stream, copy)
    view = to_dlpack(x, stream=said)
    on = library.maker.works_on(view.device[1], said)
    # The capsule's consumer waits for the legacy default stream.
    return view.__dlpack__(stream=1 if on is None else on, max_version=(1, 3), copy=True)


def _taken(arrays: list[Any], later: list[Callable[[], None]] | None) -> list[Any]:
    """Import arrays as views on which nothing is pending."""
    return ANY.maker.convert(arrays, -1, None, None, later)


def detached(x: Any) -> Any:
    """Detach a tensor from its gradients; return anything else unchanged."""
    follows = getattr(x, "requires_grad", False) or getattr(x, "stop_gradient", True) is False
    # Warp's arrays have no gradients.
    return x.detach() if follows and hasattr(x, "detach") else x
