"""``cai-bridge matrix``: what happens between all pairs of libraries, by themselves and bridged."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import page
from .cells import ASPECTS, ROUTES, SIDES, Matrix, matrix_of, read
from .exits import OK, UsageError
from .marks import COLOURS, OUTCOMES, Mark
from .progress import Progress


def run(
    subjects: Sequence[str], *, source: str | None, to_json: str | None, html: str | None
) -> int:
    """Run all pairs, or read what a run wrote, and show it.

    Raises
    ------
    UsageError
        What was asked for cannot be done.
    """
    if html:
        # Asked for first, so that nobody waits for minutes to be told what to install.
        page.templates()
    if source and subjects:
        raise UsageError("--from shows what was run; it takes no subjects")
    matrix = read(source) if source else _run(subjects)
    if html:
        page.write(html, of_matrix(matrix))
    if to_json and to_json != "-":
        page.write(to_json, as_json(matrix))
    if to_json == "-":
        print(as_json(matrix))
    else:
        show(matrix)
    return OK


def _run(subjects: Sequence[str]) -> Matrix:
    try:
        engine = importlib.import_module("cai_bridge.conformance.matrix")
    except ImportError as error:
        raise UsageError(f"all pairs cannot be run here: {error}; --from shows a run") from error
    with Progress(None) as progress:
        try:
            found = engine.run_matrix(subjects or None, progress=progress.step)
        except (ValueError, RuntimeError) as error:
            raise UsageError(str(error)) from error
    return matrix_of(found.to_dict())


def as_json(matrix: Matrix) -> str:
    """Write a matrix as JSON, which `read` reads."""
    data = {
        **{name: getattr(matrix, name) for name in ("place", "python", "generated", "versions")},
        "cells": [dataclasses.asdict(one) for one in matrix.cells],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


# --- on a terminal --------------------------------------------------------------------------------


def show(matrix: Matrix) -> None:
    """Print a table with a line for each pair, in colour where the terminal has it."""
    legend = ", ".join(f"{mark.letter} {mark.word}" for mark in OUTCOMES.values())
    rows = [_row(matrix, pair) for pair in matrix.pairs]
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        width = max((len(name) for name, _ in rows), default=0)
        print(matrix.place)
        print(_heading(width))
        for name, groups in rows:
            print(f"{name:{width}}  {_cells(groups)}")
        print(f"\n{_order()}\n{legend}")
        return
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    width = max((len(name) for name, _ in rows), default=0)
    console.print(Text(matrix.place))
    console.print(Text(_heading(width)), style="bold")
    for name, groups in rows:
        line = Text(f"{name:{width}}  ")
        for group in groups:
            for mark in group:
                line.append(mark.letter, COLOURS[mark.style])
            line.append(" " * (_GAP - len(group)))
        line.rstrip()
        console.print(line)
    console.print(Text(f"\n{_order()}\n{legend}"))


_GAP = 15


def _row(matrix: Matrix, pair: tuple[str, str]) -> tuple[str, list[list[Mark]]]:
    groups = [
        [OUTCOMES[matrix.at(pair, route, aspect).outcome] for aspect in ASPECTS] for route in ROUTES
    ]
    return f"{pair[0]} -> {pair[1]}", groups


def _heading(width: int) -> str:
    titles = [f"{side} {short}" for side, routes in SIDES.items() for short in routes.values()]
    return (" " * (width + 2) + "".join(f"{title:{_GAP}}" for title in titles)).rstrip()


def _cells(groups: list[list[Mark]]) -> str:
    letters = ["".join(mark.letter for mark in group) for group in groups]
    return "".join(f"{text:{_GAP}}" for text in letters).rstrip()


def _order() -> str:
    return f"each: {', '.join(ASPECTS)}"


# --- as a page ------------------------------------------------------------------------------------


def of_matrix(matrix: Matrix) -> str:
    """Make the page of a matrix."""
    facts = {
        "Device": matrix.place,
        "Python": matrix.python,
        "Libraries": ", ".join(f"{name} {text}" for name, text in matrix.versions.items()),
    }
    return page.rendered(
        "matrix.html.jinja",
        "GPU arrays between libraries",
        "What happens when an array of one library is handed to another: by themselves, and with "
        "cai_bridge between them.",
        facts,
        matrix.generated,
        matrix=_shown(matrix),
    )


def _share(matrix: Matrix, routes: Iterable[str]) -> int:
    return sum(
        any(matrix.worst(pair, route) in ("right", "waits") for route in routes)
        for pair in matrix.pairs
    )


def _shown(matrix: Matrix) -> dict[str, Any]:
    pairs = [_pair(matrix, pair, index) for index, pair in enumerate(matrix.pairs, 1)]
    by_names = {(one["producer"], one["consumer"]): one for one in pairs}
    return {
        "shares": [
            {"name": title, "count": _share(matrix, SIDES[side])}
            for side, title in (("native", "By themselves"), ("bridge", "With the bridge"))
        ],
        "sides": [{"name": name, "routes": list(r.values())} for name, r in SIDES.items()],
        "aspects": [{"name": name, "meaning": text} for name, text in ASPECTS.items()],
        "tally": [
            {"kind": mark, "counts": [matrix.count(name, tuple(r)) for r in SIDES.values()]}
            for name, mark in _best_first()
        ],
        "consumers": matrix.consumers,
        "grid": [
            {"producer": one, "pairs": [by_names.get((one, other)) for other in matrix.consumers]}
            for one in matrix.producers
        ],
        "pairs": pairs,
    }


def _best_first() -> list[tuple[str, Mark]]:
    judged = [one for one in OUTCOMES.items() if one[0] != "none"]
    return [*reversed(judged), ("none", OUTCOMES["none"])]


def _pair(matrix: Matrix, pair: tuple[str, str], index: int) -> dict[str, Any]:
    return {
        "id": f"pair-{index}",
        "producer": pair[0],
        "consumer": pair[1],
        "worst": [OUTCOMES[matrix.worst(pair, route)] for route in ROUTES],
        "rows": [
            {
                "aspect": aspect,
                "kinds": [OUTCOMES[matrix.at(pair, route, aspect).outcome] for route in ROUTES],
            }
            for aspect in ASPECTS
        ],
        "seen": [
            {
                "aspect": one.aspect,
                "route": one.route,
                "kind": OUTCOMES[one.outcome],
                "detail": one.detail,
            }
            for one in sorted(matrix.of(pair), key=lambda one: list(OUTCOMES).index(one.outcome))
            if one.detail
        ],
    }
