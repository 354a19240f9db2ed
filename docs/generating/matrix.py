"""The tables of docs/matrix.md between their marks, and the picture, from the run in docs/matrix/.

The folder has one file: the run, on any GPU.
"""

from __future__ import annotations

import itertools
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cai_bridge._cli.marks import OUTCOMES
from cai_bridge._cli.table import ASPECTS, CONVERT, DOORS, Pair, Route, Table
from cai_bridge.conformance.matrix import Matrix
from generating import DOCS, PICTURES, ROOT, between, data, grid
from generating.drawing import svg, text
from generating.explanations import Bad, explained

(RUN,) = (DOCS / "matrix").glob("*.json")
PAGE = DOCS / "matrix.md"
VERSIONS = DOCS / "versions.md"
BEGIN, END = "<!-- written by docs/generate.py -->", "<!-- end -->"


def overview(table: Table) -> list[str]:
    """Write a row for each producer: alone by CAI and by DLPack, and with the bridge."""
    consumers = table.matrix.consumers
    rows = []
    for producer in table.matrix.producers:
        cells = []
        for consumer in consumers:
            pair = (producer, consumer)
            if producer == consumer:
                cells.append("")
                continue
            native = [OUTCOMES[table.best(pair, door=door, bridged=False)] for door in DOORS]
            bridged = [OUTCOMES[table.with_bridge(pair)]]
            if CONVERT in table.sides:
                bridged.append(OUTCOMES[table.by_convert(pair)])
            # On a phone a line may end at the arrow, and nowhere else.
            before, after = (
                "\N{NO-BREAK SPACE}".join(one.letter for one in some) for some in (native, bridged)
            )
            cells.append(f"{before}\N{NO-BREAK SPACE}→ **{after}**")
        rows.append([f"**{producer}**", *cells])
    return grid(["from \\ to", *consumers], rows)


def not_right(table: Table) -> list[str]:
    """List the pairs with a wrong cell with the bridge, and the outcome that the run saw."""
    rows = []
    for pair, route in _bridged(table):
        found = {aspect: table.seen(pair, route, aspect) for aspect in ASPECTS}
        bad = {
            aspect: seen
            for aspect, seen in found.items()
            if seen is not None and seen.outcome not in ("right", "none")
        }
        if bad:
            marks = ", ".join(
                f"{name} {OUTCOMES[seen.outcome].letter}" for name, seen in bad.items()
            )
            worst = min(bad.values(), key=lambda seen: list(OUTCOMES).index(seen.outcome))
            detail = textwrap.shorten(worst.detail, 110, placeholder="…").replace("|", "\\|")
            rows.append([" → ".join(pair), f"`{route.name}`", marks, detail])
    return grid(["pair", "route", "not right", "seen"], rows)


def bad_cells(table: Table) -> Iterator[Bad]:
    """List each question whose answer is wrong with the bridge."""
    for pair, route in _bridged(table):
        for aspect in ASPECTS:
            seen = table.seen(pair, route, aspect)
            if seen is not None and seen.outcome not in ("right", "none"):
                yield Bad(*pair, route.name, aspect, seen.outcome)


def example(table: Table) -> str:
    """Explain one cell: the first pair that is wrong alone and has both protocols."""
    for pair in table.pairs:
        native = [table.best(pair, door=door, bridged=False) for door in DOORS]
        if pair[0] == pair[1] or "none" in native or set(native) == {"right"}:
            continue
        after = [table.with_bridge(pair)]
        after += [table.by_convert(pair)] if CONVERT in table.sides else []
        before, now = (" ".join(OUTCOMES[one].letter for one in some) for some in (native, after))
        alone = " and ".join(
            f"{OUTCOMES[one].word} by {door}"
            for one, door in zip(native, ("CAI", "DLPack"), strict=True)
        )
        ways = ("by the view", "by `convert`")
        told = " and ".join(
            f"{OUTCOMES[one].word} {way}" for one, way in zip(after, ways, strict=False)
        )
        return (
            f"So {' → '.join(pair)}, `{before} → {now}`, is {alone} alone; with the bridge {told}. "
        )
    return ""


def _bridged(table: Table) -> Iterator[tuple[Pair, Route]]:
    """List each pair's routes over the bridge: the advised view, and `convert`."""
    for pair in table.pairs:
        if pair[0] == pair[1]:
            continue
        advised = table.advised(pair)
        for route in table.routes:
            if route == advised or route.side == CONVERT:
                yield pair, route


def tables() -> str:
    """Write both tables, and the machine and versions of the run."""
    matrix = Matrix.from_dict(data(RUN))
    table = Table(matrix)
    versions = ", ".join(f"{name} {version}" for name, version in matrix.versions.items())
    letters = ", ".join(f"**{one.letter}** {one.word}" for one in OUTCOMES.values())
    by_convert = " and by `convert`" if CONVERT in table.sides else ""
    return "\n".join(
        [
            "Each cell has what a pair does alone, by CAI and by DLPack, and what it does with the "
            f"bridge, by the advised view{by_convert}. {example(table)}Each letter is the gravest "
            "outcome, in the order below; refused values and types do not count, and are listed "
            "after the table.",
            "",
            f"{matrix.place}, {matrix.date[:10]}, {matrix.rounds} rounds where timing matters; "
            f"{versions}.",
            "",
            f"{letters}.",
            "",
            *overview(table),
            "",
            "## What is not right with the bridge",
            "",
            *not_right(table),
            "",
            "## Why these are not right",
            "",
            *explained(bad_cells(table)),
        ]
    )


def picture() -> str:
    """Draw each pair as four letters: by CAI, by DLPack, by a view, by `convert`."""
    found = Matrix.from_dict(data(RUN))
    table = Table(found)
    names, parts, cell, left, top = found.consumers, [], 92, 110, 66
    parts.append(
        text(
            20,
            28,
            "From (rows) to (columns): alone by CAI and DLPack, then by a view and convert",
            "head",
        )
    )
    for column, name in enumerate(names):
        parts.append(text(left + column * cell + 40, top - 10, name, "small", text_anchor="middle"))
    for row, producer in enumerate(found.producers):
        y = top + row * 34
        parts.append(text(20, y + 19, producer, "small"))
        for column, consumer in enumerate(names):
            if producer == consumer:
                continue
            pair = (producer, consumer)
            outcomes = [table.best(pair, door=door, bridged=False) for door in DOORS]
            outcomes += [table.with_bridge(pair), table.by_convert(pair)]
            for at, outcome in enumerate(outcomes):
                x = left + column * cell + at * 20 + (4 if at > 1 else 0)
                parts.append(
                    f'<rect class="s-{outcome}" x="{x}" y="{y}" width="18" height="26" rx="3"/>'
                )
                letter = OUTCOMES[outcome].letter
                parts.append(text(x + 9, y + 18, letter, "small on", text_anchor="middle"))
    bottom = top + len(found.producers) * 34
    legend = ", ".join(f"{one.letter} {one.word}" for one in OUTCOMES.values())
    parts.append(text(20, bottom + 22, f"{legend}. {found.place}, {found.date[:10]}", "small soft"))
    width = left + len(names) * cell + 10
    return svg(width, bottom + 36, "What the libraries do to each other", parts)


def joined(before: Matrix, after: Matrix) -> Matrix:
    """Put the cells of a later run into an earlier one, a pair's routes in a row."""
    cells = {
        (cell.producer, cell.consumer, cell.route): cell
        for matrix in (before, after)
        for cell in matrix.cells
    }
    producers, consumers = before.producers, before.consumers
    order = {pair: n for n, pair in enumerate(itertools.product(producers, consumers))}
    return replace(
        after,
        versions={**before.versions, **after.versions},
        producers=producers,
        consumers=consumers,
        cells=tuple(sorted(cells.values(), key=lambda one: order[one.producer, one.consumer])),
    )


def versions() -> str:
    """Write the versions that ran on a GPU, beside the oldest that is installed for the tests."""
    run = data(RUN)
    gpu, *_ = run["place"].split(", ")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    oldest = dict(re.findall(r"([\w-]+)>=([\d.]+)", " ".join(groups["test"] + groups["clients"])))
    rows = [
        [f"`{name}`", version, oldest.get(name.replace("_", "-"), "")]
        for name, version in run["versions"].items()
    ]
    heads = ["package", f"on a GPU ({gpu}, {run['date'][:10]})", "without a GPU, from"]
    return "\n".join(grid(heads, rows))


def update(*files: str) -> None:
    """Put the cells of runs into the data, in place of older cells."""
    for file in files:
        before, after = (Matrix.from_dict(data(one)) for one in (RUN, Path(file)))
        RUN.write_text(joined(before, after).to_json())


def files() -> dict[Path, str]:
    """List the pages and the picture."""
    written = {PAGE: tables(), VERSIONS: versions()}
    pages = {
        page: between(page.read_text("utf-8"), BEGIN, END, f"\n\n{text}\n\n")
        for page, text in written.items()
    }
    return {**pages, PICTURES / "matrix.svg": picture()}
