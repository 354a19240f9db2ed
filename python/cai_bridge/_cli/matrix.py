"""``cai-bridge matrix``: hand-overs between all pairs of libraries, with and without the bridge."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from . import output, page
from .exits import OK, UsageError
from .libraries import find_libraries
from .marks import COLOURS, OUTCOMES
from .matrix_page import of_matrix
from .progress import Progress
from .subjects import adapters_named
from .table import ASPECTS, CONVERT, SIDES, Pair, Table, read
from .text import line


def run(
    subjects: Sequence[str],
    *,
    source: str | None,
    as_json: bool,
    path: str | None,
    html: str | None,
    ways: Sequence[str] = (),
    jobs: int = 1,
) -> int:
    """Run all pairs, or read the results of a run, and show them.

    Raises
    ------
    UsageError
        The command cannot do what was asked.
    """
    page.check_asked(html)
    output.check_asked(path)
    if source and subjects:
        raise UsageError("--from shows an earlier run; it takes no subjects")
    if jobs < 1:
        raise UsageError(f"--jobs: got {jobs}; allowed: 1 or more")
    if source and (ways or jobs != 1):
        raise UsageError("--from shows an earlier run; it takes neither --way nor --jobs")
    table = read(source) if source else _run(subjects, ways, jobs)
    pages = {html: of_matrix(table)} if html else {}
    if as_json or path is not None:
        data = table.matrix.to_dict()
        text = output.as_json(data, to_file=path is not None) if as_json else plain(table)
        output.give(text, path, pages)
    else:
        with page.written(pages):
            show(table)
    return OK


def _run(subjects: Sequence[str], ways: Sequence[str], jobs: int) -> Table:
    from cai_bridge.conformance.matrix import Cell, run_isolated

    producers, consumers = _roles(subjects or _found())
    with Progress(None) as progress:

        def told(count: int, total: int, cell: Cell) -> None:
            progress.done(count, total, f"{cell.producer} -> {cell.consumer}, {cell.route}")

        try:
            return Table(
                run_isolated(producers, consumers, ways=ways or None, jobs=jobs, progress=told)
            )
        except (ValueError, RuntimeError) as error:
            raise UsageError(str(error)) from error


def _found() -> list[str]:
    """List the installed libraries for which the kit has adapters."""
    from cai_bridge.conformance.lab.cuda import why_no_gpu
    from cai_bridge.conformance.named import LIBRARIES

    reason = why_no_gpu()
    if reason is not None:
        raise UsageError(
            f"there is {reason}; name a subject that runs here, such as simulated, or use --from"
        )
    found = [one.name for one in find_libraries() if one.name in LIBRARIES]
    if not found:
        raise UsageError(f"none of these is installed: {', '.join(LIBRARIES)}")
    return found


def _roles(subjects: Sequence[str]) -> tuple[list[str], list[str]]:
    roles = {subject: adapters_named(subject, "") for subject in subjects}
    producers = [subject for subject, found in roles.items() if "producer" in found]
    consumers = [subject for subject, found in roles.items() if "consumer" in found]
    for role, found in (("makes", producers), ("takes", consumers)):
        if not found:
            raise UsageError(f"got {', '.join(subjects)}; allowed: at least one that {role} arrays")
    return producers, consumers


# --- as text --------------------------------------------------------------------------------------

Span = tuple[str, str]
"""A text with its style on a terminal."""

_PLAIN = ""


def show(table: Table) -> None:
    """Print the matrix, in colour if the terminal has colours."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(plain(table))
        return
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    # The text is collected and printed once. If the pipe's reader ends early, rich would exit
    # with 1, which means "no" here.
    with console.capture() as shown:
        for spans in _lines(table):
            row = Text()
            for text, style in spans:
                row.append(text, style or None)
            row.rstrip()
            console.print(row)
    print(shown.get(), end="")


def plain(table: Table) -> str:
    """Write the matrix without colours."""
    return "\n".join("".join(text for text, _ in spans).rstrip() for spans in _lines(table))


def _lines(table: Table) -> Iterator[list[Span]]:
    """Write the device, grids of all pairs, and what was seen for each pair on each route."""
    yield [(line(table.matrix.place), _PLAIN)]
    if table.pairs:
        for side in table.sides:
            yield []
            yield from _grid(table, side)
        yield []
        yield from _routes(table)
    yield []
    for mark in OUTCOMES.values():
        text = f"{mark.letter} {mark.word}"
        yield [(f"{text:{_CELL}}", COLOURS[mark.style]), (mark.meaning, _PLAIN)]


def _grid(table: Table, side: str) -> Iterator[list[Span]]:
    """Write the grid of all pairs for one of `SIDES`."""
    consumers = [line(one) for one in table.matrix.consumers]
    producers = [line(one) for one in table.matrix.producers]
    first = max(len(_TO), *map(len, producers))
    widths = [max(_CELL, len(one) + 2) for one in consumers]
    yield [(f"All pairs {SIDES[side]}{_CHOSEN[side]}:", _PLAIN)]
    heads = [f"{one:{width}}" for one, width in zip(consumers, widths, strict=True)]
    yield [(f"{_TO:{first}}  {''.join(heads)}", _PLAIN)]
    for producer, name in zip(table.matrix.producers, producers, strict=True):
        row: list[Span] = [(f"{name:{first}}  ", _PLAIN)]
        for consumer, width in zip(table.matrix.consumers, widths, strict=True):
            row += [
                _cell(_shown(table, (producer, consumer), side)),
                (" " * (width - _CELL), _PLAIN),
            ]
        yield row


def _shown(table: Table, pair: Pair, side: str) -> str:
    if side == CONVERT:
        return table.by_convert(pair)
    return table.with_bridge(pair) if side == "views" else table.best(pair, bridged=False)


def _routes(table: Table) -> Iterator[list[Span]]:
    """Write for each pair, route by route, the outcome of each aspect."""
    width = max(len(route.name) for route in table.routes) + len(_ADVISED) + 4
    heads = "".join(f"{aspect:{_CELL}}" for aspect in ASPECTS)
    for pair in table.pairs:
        yield [(f"{_named(pair):{width}}{heads}", "bold")]
        advised = table.advised(pair)
        for route in table.routes:
            name = f"  {route.name}{_ADVISED if route == advised else ''}"
            cells = [_cell(table.outcome(pair, route, aspect)) for aspect in ASPECTS]
            yield [(f"{name:{width}}", _PLAIN), *cells]


def _cell(outcome: str) -> Span:
    mark = OUTCOMES[outcome]
    return f"{f'{mark.letter} {mark.word}':{_CELL}}", COLOURS[mark.style]


_TO = "from \\ to"
_CHOSEN = {"native": ", on the best route", "views": ", on the route that is advised", CONVERT: ""}
_ADVISED = " (advised)"
_CELL = (
    max(len(one) for one in (*ASPECTS, *(f"{m.letter} {m.word}" for m in OUTCOMES.values()))) + 2
)


def _named(pair: Pair) -> str:
    return line(f"{pair[0]} -> {pair[1]}")
