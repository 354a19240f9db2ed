"""Write the tables of docs/matrix.md from docs/matrix/h200.json, between its two marks."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from cai_bridge._cli.marks import OUTCOMES
from cai_bridge._cli.table import ASPECTS, DOORS, Table
from cai_bridge.conformance.matrix import Matrix

DATA = Path(__file__).with_name("matrix") / "h200.json"
PAGE = Path(__file__).with_name("matrix.md")
BEGIN, END = "<!-- written by docs/draw_matrix.py -->", "<!-- end -->"


def overview(table: Table) -> list[str]:
    """Write a row a producer: by themselves by CAI and by DLPack, and with the bridge."""
    consumers = table.matrix.consumers
    rows = [f"| from \\ to | {' | '.join(consumers)} |", "|---" * (len(consumers) + 1) + "|"]
    for producer in table.matrix.producers:
        cells = []
        for consumer in consumers:
            pair = (producer, consumer)
            if producer == consumer:
                cells.append("")
                continue
            native = [OUTCOMES[table.best(pair, door=door, bridged=False)] for door in DOORS]
            bridged = OUTCOMES[table.with_bridge(pair)]
            cells.append(f"{' '.join(one.letter for one in native)} → **{bridged.letter}**")
        rows.append(f"| **{producer}** | {' | '.join(cells)} |")
    return rows


def not_right(table: Table) -> list[str]:
    """List the pairs that are not right throughout on the advised route, and what was seen."""
    rows = ["| pair | route | not right | seen |", "|---|---|---|---|"]
    for pair in table.pairs:
        route = table.advised(pair)
        if route is None or pair[0] == pair[1]:
            continue
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
            rows.append(f"| {pair[0]} → {pair[1]} | `{route.name}` | {marks} | {detail} |")
    return rows


def tables() -> str:
    """Write both tables, and what they were measured on."""
    matrix = Matrix.from_dict(json.loads(DATA.read_text()))
    table = Table(matrix)
    versions = ", ".join(f"{name} {version}" for name, version in matrix.versions.items())
    letters = ", ".join(f"**{one.letter}** {one.word}" for one in OUTCOMES.values())
    return "\n".join(
        [
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
        ]
    )


def page() -> str:
    """Put the tables into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
