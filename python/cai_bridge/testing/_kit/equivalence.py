"""Compares what the protocols say about an array."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from .description import Description, aligned, cell, describe
from .dtypes import is_opaque
from .said import UNSAID, Said
from .said_dlpack import CPU, METHOD

WHY = {
    "error": "a consumer of one protocol is refused what the other's is handed",
    "malformed": "consumers that check it refuse the array; those that do not read something else",
    "shape": "consumers work on different items, or beyond the end of the memory",
    "ptr": "consumers work on different memory: one of them has a copy, or begins elsewhere",
    "strides": "consumers take the items in different orders, or from gaps between them",
    "dtype": "consumers read the same bytes as different numbers",
    "itemsize": "consumers read items of different lengths",
    "readonly": "a consumer of one protocol writes where the other's may not",
    "device": "a consumer works on the wrong device, or takes a stream of it",
    "masked": "only CAI has masks: a consumer of DLPack takes items for valid that are not",
    "stream": "a consumer cannot know what to wait for, and may work before the data is there",
}
"""The fields of a `Difference`, in the order of the report, with why each matters."""

FIELDS = tuple(WHY)


@dataclass(frozen=True)
class Difference:
    """A field for which two doors say different things.

    Attributes
    ----------
    field : str
        ``"shape"``, ``"ptr"``, ``"strides"``, ``"dtype"``, ``"itemsize"``, ``"readonly"``,
        ``"device"``, ``"masked"`` or ``"stream"``, as in `Said`; ``"error"`` if a door cannot be
        read; ``"malformed"`` for one of a door's `problems`.
    left_door, right_door : str
        The doors, such as ``"CAI"``; of two objects ``"a: CAI"`` and ``"b: CAI"``. Where something
        is malformed, the right door is ``"specification"``.
    left, right : object
        What each of the two doors says.
    why : str
        Why the difference matters.
    """

    field: str
    left_door: str
    left: object
    right_door: str
    right: object
    why: str

    def __str__(self) -> str:
        left, right = cell(self.field, self.left), cell(self.field, self.right)
        return f"{self.field}: {self.left_door} {left}, {self.right_door} {right}: {self.why}"


class NotEquivalentError(AssertionError):
    """The protocols contradict each other.

    Attributes
    ----------
    differences : tuple of Difference
        Every contradiction that was found.
    """

    def __init__(self, differences: tuple[Difference, ...], subject: str = "array") -> None:
        self.differences = differences
        rows: list[tuple[str, ...]] = [("field", "one door", "says", "another", "says")]
        rows += [
            (
                *(one.field, one.left_door, cell(one.field, one.left)),
                *(one.right_door, cell(one.field, one.right)),
            )
            for one in differences
        ]
        fields = dict.fromkeys(one.field for one in differences)
        reasons = [f"  {field}: {WHY.get(field, '')}" for field in fields]
        count = f"{len(differences)} difference{'s' * (len(differences) != 1)}"
        title = f"{subject}: the protocols say different things, {count}"
        super().__init__("\n".join([title, *aligned(rows), "why it matters", *reasons]))

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is unpickled from its message alone.
        return _remade, (self.differences, str(self))


def _remade(differences: tuple[Difference, ...], message: str) -> NotEquivalentError:
    error = NotEquivalentError(differences)
    error.args = (message,)
    return error


Door = tuple[str, Said]


def _same(left: Any, right: Any) -> bool:
    return bool(left == right)


def _same_strides(shape: tuple[int, ...]) -> Callable[[Any, Any], bool]:
    """Make the comparison of strides. In a dimension of extent 1 any stride is right."""
    far = [axis for axis, extent in enumerate(shape) if extent > 1]

    def same(left: Any, right: Any) -> bool:
        if len(shape) != len(left) or len(shape) != len(right):
            return bool(left == right)
        return all(left[axis] == right[axis] for axis in far)

    return same


def _compare(
    doors: list[Door],
    field: str,
    said: Callable[[Said], Any],
    same: Callable[[Any, Any], bool] = _same,
) -> Iterator[Difference]:
    """Compare each door that says a field with the first door that says it."""
    saying = [(door, said(one)) for door, one in doors if said(one) is not None]
    for door, value in saying[1:]:
        first, reference = saying[0]
        if not same(reference, value):
            yield Difference(field, first, reference, door, value, WHY[field])


def _unreadable(doors: list[Door]) -> Iterator[Difference]:
    readable = [door for door, one in doors if one.error is None]
    for door, one in doors:
        if one.error is not None:
            right = (readable[0], "can be read") if readable else ("specification", "no error")
            yield Difference("error", door, one.error, *right, WHY["error"])
    for door, one in doors:
        for problem in one.problems:
            got, _, allowed = problem.partition("; allowed: ")
            yield Difference("malformed", door, got, "specification", allowed, WHY["malformed"])


def _dtypes(doors: list[Door]) -> Iterator[Difference]:
    """Compare the types' names, or the typestrs if a dict does not say which type it has."""
    named = [(door, one) for door, one in doors if one.dtype and not is_opaque(one.dtype)]
    yield from _compare(named, "dtype", lambda one: one.dtype)
    for door, one in doors:
        if one.dtype and is_opaque(one.dtype):
            for other, another in named[:1]:
                # |V2 is another spelling of <V2.
                if not is_opaque(another.typestr or "") or one.itemsize != another.itemsize:
                    yield Difference("dtype", door, one.dtype, other, another.dtype, WHY["dtype"])


def _layouts(doors: list[Door]) -> Iterator[Difference]:
    """Compare where the items are. An array without items may have any pointer and strides."""
    yield from _compare(doors, "shape", lambda one: one.shape)
    filled = [(door, one) for door, one in doors if one.size != 0]
    yield from _compare(filled, "ptr", lambda one: one.ptr)
    for shape in dict.fromkeys(one.shape for _, one in filled if one.shape is not None):
        alike = [(door, one) for door, one in filled if one.shape == shape]
        yield from _compare(alike, "strides", lambda one: one.strides, _same_strides(shape))


def _masks(doors: list[Door]) -> Iterator[Difference]:
    for door, one in doors:
        for other, another in doors:
            if one.masked and not another.masked:
                yield Difference("masked", door, True, other, False, WHY["masked"])
                break


def _waits(said: Said) -> bool:
    on_device = said.device is not None and said.device[0] != CPU
    return said.door == METHOD and said.error is None and on_device


def _streams(doors: list[Door]) -> Iterator[Difference]:
    """Find a door that does not say whether work is pending, if another door does.

    Different streams are no contradiction: the producer may have ordered one after the other before
    it named a stream. A stream beside None is no contradiction either: the stream says where work
    would go, and None says that no work is pending. ``__dlpack__`` names no stream, and makes the
    consumer's stream wait. An array without items never has pending work.
    """
    ordered: list[tuple[str, object]]
    ordered = [(door, one.stream) for door, one in doors if isinstance(one.stream, int)]
    ordered += [(door, "orders the consumer's") for door, one in doors if _waits(one)]
    for door, one in doors:
        if one.stream == UNSAID and ordered and one.size != 0:
            yield Difference("stream", door, UNSAID, *ordered[0], WHY["stream"])


def _differences(described: list[Description]) -> Iterator[Difference]:
    """Find every contradiction among the doors of one object, or of two."""
    labels = ("a: ", "b: ") if len(described) == 2 else ("",)
    each = [
        [(label + said.door, said) for said in one]
        for label, one in zip(labels, described, strict=True)
    ]
    doors = [door for of_one in each for door in of_one]
    yield from _unreadable(doors)
    readable = [(door, one) for door, one in doors if one.error is None]
    yield from _layouts(readable)
    yield from _dtypes(readable)
    yield from _compare(readable, "itemsize", lambda one: one.itemsize)
    yield from _compare(readable, "readonly", lambda one: one.readonly)
    yield from _compare(readable, "device", lambda one: one.device)
    yield from _masks(readable)
    for of_one in each:
        yield from _streams(of_one)


_ALONE: Any = object()


def assert_equivalent(a: object, b: object = _ALONE, *, ignore: Collection[str] = ()) -> None:
    """Assert that an array's protocols agree, or that two objects are the same array.

    Every door is compared with the first door that says the field. A door that cannot say a field
    contradicts nothing: CAI cannot say the device, nor a legacy capsule whether it is read-only.
    For an array without items, pointer and strides are not compared; nor is the stride of an extent
    of 1.

    Streams are compared within each object only, since two objects may be ordered on different
    streams. A difference is reported if one door names a stream, or orders the consumer's, and
    another door does not say whether work is pending. CAI before version 3 does not say it.

    Parameters
    ----------
    a : object
        Anything that `describe` takes, or a `Description`.
    b : object, optional
        Another object. Without it the doors of `a` are compared with each other.
    ignore : collection of str
        Fields to leave out, as in `Difference`, such as ``("stream",)`` for a library whose CAI is
        known to say nothing of streams.

    Raises
    ------
    NotEquivalentError
        Something differs, is malformed, or cannot be read by one of the protocols.
    TypeError
        There is nothing to compare: an object speaks neither protocol, or `a` is alone and
        speaks only one.
    ValueError
        `ignore` has a name that is no field.

    Notes
    -----
    Pointers are addresses, shapes count items, strides count bytes. What each protocol says is
    defined by: CUDA Array Interface (Version 3), Python Interface Specification; DLPack 1.3, C API;
    Python array API standard 2024.12, ``array.__dlpack__``.
    """
    ignored = _fields_named(ignore)
    given = {"a": a} if b is _ALONE else {"a": a, "b": b}
    described = [_described(name, x) for name, x in given.items()]
    if sum(len(one.said) for one in described) < 2:
        raise TypeError(
            f"a: got {described[0].kind}, which speaks only {', '.join(described[0].doors)}; "
            "allowed: an object that speaks in two ways, or a second object as b"
        )
    found = [one for one in _differences(described) if one.field not in ignored]
    if found:
        raise NotEquivalentError(tuple(found), " and ".join(one.kind for one in described))


def _fields_named(ignore: Collection[str]) -> tuple[str, ...]:
    names = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for name in names:
        if name not in FIELDS:
            raise ValueError(f"ignore: got {name!r}; allowed: {', '.join(FIELDS)}")
    return names


def _described(name: str, x: object) -> Description:
    try:
        return x if isinstance(x, Description) else describe(x)
    except TypeError as error:
        raise TypeError(str(error).replace("x: ", f"{name}: ", 1)) from None
