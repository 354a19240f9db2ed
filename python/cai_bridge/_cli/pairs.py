"""``cai-bridge matrix``: what happens between all pairs of libraries, by themselves and bridged."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from . import page
from .exits import OK, UsageError
from .libraries import find_libraries
from .marks import COLOURS, OUTCOMES, Mark
from .pairs_page import of_matrix
from .progress import Progress
from .subjects import adapters_named
from .table import ASPECTS, Pair, Table, read
from .text import escaped, line


def run(
    subjects: Sequence[str],
    *,
    source: str | None,
    to_json: str | None,
    html: str | None,
    ways: Sequence[str] = (),
    jobs: int = 1,
) -> int:
    """Run all pairs, or read what a run wrote, and show it.

    Raises
    ------
    UsageError
        What was asked for cannot be done.
    """
    page.check_asked(html)
    if to_json == "":
        raise UsageError("--json: got no path; allowed: one, or - for the standard output")
    if source and subjects:
        raise UsageError("--from shows what was run; it takes no subjects")
    table = read(source) if source else _run(subjects, ways, jobs)
    pages = {html: of_matrix(table)} if html else {}
    if to_json and to_json != "-":
        pages[to_json] = as_json(table)
    with page.written(pages):
        if to_json == "-":
            # Escaped in ASCII: who reads it need not know the terminal's encoding.
            print(json.dumps(table.matrix.to_dict(), indent=1))
        else:
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
    """List the libraries that are installed and that the kit has adapters for."""
    from cai_bridge.conformance.lab.cuda import why_no_gpu
    from cai_bridge.conformance.named import LIBRARIES

    reason = why_no_gpu()
    if reason is not None:
        raise UsageError(f"there is {reason}; name what to run, such as simulated, or use --from")
    found = [one.name for one in find_libraries() if one.name in LIBRARIES]
    if not found:
        raise UsageError(f"none is installed of {', '.join(LIBRARIES)}")
    return found


def _roles(subjects: Sequence[str]) -> tuple[list[str], list[str]]:
    roles = {subject: adapters_named(subject, "") for subject in subjects}
    producers = [subject for subject, found in roles.items() if "producer" in found]
    consumers = [subject for subject, found in roles.items() if "consumer" in found]
    for role, found in (("makes", producers), ("takes", consumers)):
        if not found:
            raise UsageError(f"got {', '.join(subjects)}, of which none {role} arrays")
    return producers, consumers


def as_json(table: Table) -> str:
    """Write a matrix as JSON, which `read` reads."""
    return json.dumps(table.matrix.to_dict(), indent=1, ensure_ascii=False)


def show(table: Table) -> None:
    """Print a line for each pair, in colour where the terminal has it."""
    width = max((len(_named(pair)) for pair in table.pairs), default=0)
    numbers = "".join(f"{number:<{_GAP}}" for number, _ in enumerate(table.routes, 1)).rstrip()
    print(f"{line(table.matrix.place)}\n\n{'':{width}}  {numbers}")
    rows = [(_named(pair), _marks(table, pair)) for pair in table.pairs]
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        for name, groups in rows:
            cells = ("".join(mark.letter for mark in group) for group in groups)
            print(f"{name:{width}}  {''.join(f'{cell:{_GAP}}' for cell in cells)}".rstrip())
    else:
        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        for name, groups in rows:
            row = Text(f"{name:{width}}  ")
            for group in groups:
                for mark in group:
                    row.append(mark.letter, COLOURS[mark.style])
                row.append(" " * (_GAP - len(group)))
            row.rstrip()
            console.print(row)
    print(_legend(table))


_GAP = len(ASPECTS) + 2


def _named(pair: Pair) -> str:
    return line(f"{pair[0]} -> {pair[1]}")


def _marks(table: Table, pair: Pair) -> list[list[Mark]]:
    return [
        [OUTCOMES[table.outcome(pair, route, aspect)] for aspect in ASPECTS]
        for route in table.routes
    ]


def _legend(table: Table) -> str:
    routes = ", ".join(f"{number} {route.name}" for number, route in enumerate(table.routes, 1))
    letters = ", ".join(f"{mark.letter} {mark.word}" for mark in OUTCOMES.values())
    return escaped(f"\nroutes: {routes}\neach: {', '.join(ASPECTS)}\n{letters}")
