"""Runs a matrix in this process; `matrix.isolated` uses it for one row."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from cai_bridge import __version__

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import Lab, open_lab
from ..named import as_consumer, as_producer, consumer_named, producer_named
from ..requirement import NotApplicableError
from .at_rest import judge_dtypes, judge_lazy, judge_readonly, judge_values
from .at_work import judge_handover, judge_release
from .pair import Pair, refusal
from .result import ASPECTS, Aspect, Cell, Matrix
from .routes import Route, chosen
from .versions import versions_of

Progress = Callable[[int, int, Cell], object]
NO_LIBRARY = "simulated"
"""A library that can be the producer and the consumer."""


def run_matrix(
    producers: Sequence[str | ProducerAdapter],
    consumers: Sequence[str | ConsumerAdapter],
    *,
    lab: Lab | None = None,
    rounds: int | None = None,
    aspects: Iterable[str] | None = None,
    ways: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Matrix:
    """Hand each producer's arrays to each consumer by each route, and judge the outcome.

    Parameters
    ----------
    producers, consumers : sequence of str or adapter
        Libraries by name, as for `producer_named` and `consumer_named`, or adapters.
    lab : Lab, optional
        The lab; see `open_lab`.
    rounds : int, optional
        How often to try an aspect that depends on timing; by default the lab's number.
    aspects : iterable of str, optional
        Which of `ASPECTS`; by default all.
    ways : iterable of str, optional
        Which of `WAYS`; by default all.
    progress : callable, optional
        Called after each cell with the number of finished cells, the number of all cells, and the
        cell.

    Returns
    -------
    Matrix
        A cell for each producer, consumer and route.

    Raises
    ------
    ValueError
        An unknown library, one that is not installed, or an unknown aspect or way.

    Notes
    -----
    A crash ends this process; see `run_isolated`.
    """
    wanted, routes = _chosen(aspects), chosen(ways)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(open_lab()) if lab is None else lab
        stack.callback(setattr, place, "rounds", place.rounds)
        place.rounds = place.rounds if rounds is None else rounds
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        sources = [_producer(one) for one in producers]
        sinks = [_consumer(one) for one in consumers]
        cells: list[Cell] = []
        count = len(sources) * len(sinks) * len(routes)
        for source in sources:
            for sink in sinks:
                for route in routes:
                    cells.append(_cell(Pair(source, sink, route, place), wanted))
                    if progress is not None:
                        progress(len(cells), count, cells[-1])
        names = tuple(one.name for one in sources), tuple(one.name for one in sinks)
        versions = versions_of([*names[0], *names[1]])
        return Matrix(
            place.name, begun, __version__, versions, place.rounds, *names, cells=tuple(cells)
        )


def _chosen(aspects: Iterable[str] | None) -> tuple[str, ...]:
    if aspects is None:
        return ASPECTS
    wanted = tuple(aspects)
    for name in wanted:
        if name not in ASPECTS:
            raise ValueError(f"aspects: got {name!r}; allowed: {', '.join(ASPECTS)}")
    return tuple(name for name in ASPECTS if name in wanted)


def _producer(source: str | ProducerAdapter) -> ProducerAdapter:
    return producer_named(source) if isinstance(source, str) else as_producer(source)


def _consumer(source: str | ConsumerAdapter) -> ConsumerAdapter:
    return consumer_named(source) if isinstance(source, str) else as_consumer(source)


def _cell(pair: Pair, wanted: tuple[str, ...]) -> Cell:
    route = pair.route
    reason = _missing(pair, route)
    if reason is not None:
        aspects = {name: Aspect("none", reason) for name in wanted}
    else:
        aspects = _judged(pair, wanted)
    return Cell(
        pair.producer.name, pair.consumer.name, route.name, route.door, route.bridged, aspects
    )


def _missing(pair: Pair, route: Route) -> str | None:
    name = pair.producer.name
    if name == pair.consumer.name and name != NO_LIBRARY:
        if route.way == "native":
            return "the library hands its arrays to itself without a protocol"
        if route.way == "convert":
            return "arrays of the library itself are given back as they are"
    try:
        shape = (12,)
        return route.missing(pair.made(pair.dtype, shape), pair.consumer)
    except Exception as error:
        return f"no array could be made: {refusal(error).detail}"


def _judged(pair: Pair, wanted: tuple[str, ...]) -> dict[str, Aspect]:
    found: dict[str, Aspect] = {}
    single: dict[str, Callable[[Pair], Aspect]] = {
        "values": judge_values,
        "release": judge_release,
        "readonly": judge_readonly,
        "dtypes": judge_dtypes,
        "lazy": judge_lazy,
    }
    for name in wanted:
        if name in single:
            found[name] = _guarded(pair, single[name])
        elif name not in found:
            both = _guarded(pair, judge_handover)
            pairs = both if isinstance(both, tuple) else (both, both)
            found |= dict(zip(("handover", "host"), pairs, strict=True))
    return {name: found[name] for name in wanted}


def _guarded(pair: Pair, judge: Callable[[Pair], Any]) -> Any:
    """Judge one aspect and clean up after it; an exception counts as a refusal."""
    try:
        with warnings.catch_warnings():
            # The outcome already shows what the libraries warn about.
            warnings.simplefilter("ignore")
            pair.lab.synchronize()
            pair.lab.reports()
            return judge(pair)
    except NotApplicableError as reason:
        return Aspect("none", str(reason))
    except Exception as error:
        return refusal(error)
    finally:
        with contextlib.suppress(Exception):
            pair.lab.synchronize()
            pair.lab.reports()
