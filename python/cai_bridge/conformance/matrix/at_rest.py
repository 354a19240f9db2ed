"""Judges a hand-over with nothing pending: values, read-only memory, element types."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cai_bridge.testing import describe

from ..lab import flat
from ..requirement import NotApplicableError
from .pair import Pair, place_of, refusal, same, samples
from .result import Aspect


def judge_values(pair: Pair) -> Aspect:
    """Judge whether the consumer reads the producer's values, in the same memory."""
    dtype = pair.dtype
    array = pair.made(dtype)
    mine = pair.consumer.stream()
    place = place_of(array, dtype)
    pair.lab.put(place, samples(dtype, place.shape))
    handed = pair.hand(array, None, mine)
    with pair.on(None, mine):
        taken = pair.take(handed)
        first = pair.consumer.values(pair.consumer.copy(taken))
        if not same(first, pair.lab.get(place)):
            return Aspect("wrong", f"read {_short(first)} instead of {_short(pair.lab.get(place))}")
        pair.lab.put(place, samples(dtype, place.shape, 21))
        later = pair.consumer.values(pair.consumer.copy(taken))
    if not same(later, pair.lab.get(place)):
        return Aspect("wrong", "the values are right, but a copy's: later ones are not seen")
    return _with_gaps(pair)


def _with_gaps(pair: Pair) -> Aspect:
    """Judge the values of every second column; a consumer may refuse strides."""
    try:
        base = pair.made(pair.dtype, (4, 6))
        pair.lab.put(place_of(base, pair.dtype), samples(pair.dtype, (4, 6)))
        array = pair.producer.strided(base)
        pair.lab.synchronize()
    except NotApplicableError:
        return Aspect("right", "in the same memory")
    try:
        seen = pair.passed_on(array)
    except Exception as error:
        return Aspect("right", f"in the same memory; strided: {refusal(error).detail}")
    wanted = [row[::2] for row in samples(pair.dtype, (4, 6))]
    if not same(seen, wanted):
        return Aspect("wrong", f"strided: read {_short(seen)} instead of {_short(wanted)}")
    return Aspect("right", "in the same memory, strided too")


def judge_readonly(pair: Pair) -> Aspect:
    """Judge whether the consumer writes to a read-only array."""
    dtype = pair.dtype
    array = pair.producer.readonly(pair.made(dtype))
    pair.lab.synchronize()
    place = place_of(array, dtype)
    pair.lab.put(place, samples(dtype, place.shape))
    before = pair.lab.get(place)
    mine = pair.consumer.stream()
    handed = pair.hand(array, None, mine, writes=True)
    told = _says_readonly(handed, pair.route.door)
    with pair.on(None, mine):
        taken = pair.take(handed)
        try:
            pair.consumer.fill(taken, 99.0)
        except NotApplicableError as reason:
            return Aspect("right", f"taken, and not written: {reason}")
        except Exception as error:
            return Aspect("right", f"taken, and writing it raises {refusal(error).detail}")
    pair.lab.synchronize()
    # The lab also reports a forbidden write as a race. Drop this report, since it adds nothing.
    pair.lab.reports()
    if same(pair.lab.get(place), before):
        return Aspect("right", "taken, and what is written is not seen")
    if told:
        return Aspect("ignored", "the consumer was told that the memory is read-only, and wrote")
    return Aspect("wrong", "the producer's read-only memory was written")


def _says_readonly(handed: Any, door: str) -> bool:
    """Return whether the consumer learns that the array is read-only, by its own protocol.

    `convert` tells the consumer nothing: it makes no writable array of read-only memory.
    """
    if door == "convert":
        return False
    return any(one.readonly for one in describe(handed) if (one.door == "CAI") == (door == "cai"))


def judge_dtypes(pair: Pair) -> Aspect:
    """Judge which of the element types that both libraries have arrive unchanged."""
    names = [name for name in pair.producer.dtypes if name in pair.consumer.dtypes]
    if pair.route.door == "cai":
        # The typestrs of these types do not name them, so the consumer gets only bytes.
        names = [name for name in names if not name.startswith(("bfloat", "float8"))]
    if not names:
        raise NotApplicableError("the libraries have no element type in common")

    def tries() -> Iterator[tuple[str, Callable[[], bool]]]:
        for name in names:
            yield name, functools.partial(_arrives, pair, name)

    return _summed(pair, tries())


def judge_lazy(pair: Pair) -> Aspect:
    """Judge whether values that are recorded but not computed arrive, such as a conjugate's."""

    def tries() -> Iterator[tuple[str, Callable[[], bool]]]:
        for name, array, values in pair.producer.lazy():
            yield name, functools.partial(_reads, pair, array, values)

    return _summed(pair, tries())


def _arrives(pair: Pair, dtype: str) -> bool:
    array = pair.made(dtype)
    place = place_of(array, dtype)
    pair.lab.put(place, samples(dtype, place.shape))
    return same(pair.passed_on(array), pair.lab.get(place))


def _reads(pair: Pair, array: Any, values: Any) -> bool:
    pair.lab.synchronize()
    return same(pair.passed_on(array), values)


def _summed(pair: Pair, tries: Iterable[tuple[str, Callable[[], bool]]]) -> Aspect:
    """Try each, and sum up: wrong if one is wrong, else refused if one is refused."""
    right: list[str] = []
    wrong: list[str] = []
    refused: list[str] = []
    for name, arrives in tries:
        try:
            (right if arrives() else wrong).append(name)
        except Exception as error:
            refused.append(f"{name} ({refusal(error).detail})")
            with contextlib.suppress(Exception):
                pair.lab.synchronize()
    said = [f"{len(right)} of {len(right) + len(wrong) + len(refused)}"]
    said += [f"wrong: {', '.join(wrong)}"] if wrong else []
    said += [f"refused: {', '.join(refused)}"] if refused else []
    return Aspect("wrong" if wrong else "refused" if refused else "right", "; ".join(said))


def _short(values: Any) -> str:
    some = list(flat(values))[:4]
    return f"{some}"
