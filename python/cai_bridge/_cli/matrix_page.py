"""The page of a matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from . import page
from .marks import OUTCOMES, Mark
from .table import ASPECTS, CONVERT, DOORS, SIDES, Pair, Table

_GOOD = ("right", "waits")


def of_matrix(table: Table) -> str:
    """Render the page."""
    matrix = table.matrix
    facts = {
        "Device": matrix.place,
        "Libraries": ", ".join(f"{name} {text}" for name, text in matrix.versions.items()),
        "Bridge": f"cai_bridge {matrix.version}",
        "Rounds": f"{matrix.rounds} for each check that depends on timing",
    }
    return page.rendered(
        "matrix.html.jinja",
        "GPU arrays between libraries",
        "What happens when one library hands an array to another: alone, and with cai_bridge "
        "between them.",
        facts,
        matrix.date,
        matrix=_shown(table),
    )


def _shown(table: Table) -> dict[str, Any]:
    pairs = {pair: _pair(table, pair, index) for index, pair in enumerate(table.pairs, 1)}
    matrix = table.matrix
    return {
        "shares": [
            {"name": "By themselves", "count": _good(table.best(p, bridged=False) for p in pairs)},
            {"name": "By the bridge's views", "count": _good(map(table.with_bridge, pairs))},
            *_share_of_convert(table, pairs),
        ],
        "sides": [SIDES[side] for side in table.sides],
        "aspects": [{"name": name, "meaning": text} for name, text in ASPECTS.items()],
        "tally": _tally(table),
        "consumers": matrix.consumers,
        "grid": [
            {"producer": one, "pairs": [pairs.get((one, other)) for other in matrix.consumers]}
            for one in matrix.producers
        ],
        "pairs": list(pairs.values()),
    }


def _share_of_convert(table: Table, pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    if CONVERT not in table.sides:
        return []
    return [{"name": "By convert()", "count": _good(map(table.by_convert, pairs))}]


def _good(outcomes: Iterable[str]) -> int:
    return sum(outcome in _GOOD for outcome in outcomes)


def _tally(table: Table) -> list[dict[str, Any]]:
    counts = [Counter(table.outcomes(side)) for side in table.sides]
    return [
        {"kind": mark, "counts": [_counted(count, name) for count in counts]}
        for name, mark in _best_first()
    ]


def _counted(counts: Counter[str], name: str) -> dict[str, Any]:
    judged = sum(count for one, count in counts.items() if one != "none")
    share = "" if name == "none" or not judged else f"{100 * counts[name] / judged:.0f} %"
    return {"count": counts[name], "share": share}


def _best_first() -> list[tuple[str, Mark]]:
    judged = [one for one in OUTCOMES.items() if one[0] != "none"]
    return [*reversed(judged), ("none", OUTCOMES["none"])]


def _pair(table: Table, pair: Pair, index: int) -> dict[str, Any]:
    return {
        "id": f"pair-{index}",
        "producer": pair[0],
        "consumer": pair[1],
        "native": [OUTCOMES[table.best(pair, door=door, bridged=False)] for door in DOORS],
        "bridged": _bridged(table, pair),
        "groups": [{"side": side, "routes": _routes(table, pair, side)} for side in table.sides],
        "seen": _seen(table, pair),
    }


def _bridged(table: Table, pair: Pair) -> list[Mark]:
    """List the mark of the advised view, and that of `convert`."""
    found = [table.with_bridge(pair)]
    found += [table.by_convert(pair)] if CONVERT in table.sides else []
    return [OUTCOMES[one] for one in found]


def _routes(table: Table, pair: Pair, side: str) -> list[dict[str, Any]]:
    return [
        {
            "name": route.name,
            "advised": route == table.advised(pair),
            "kinds": [OUTCOMES[table.outcome(pair, route, aspect)] for aspect in ASPECTS],
        }
        for route in table.routes
        if route.side == side
    ]


def _seen(table: Table, pair: Pair) -> list[dict[str, Any]]:
    """List what was seen, gravest first."""
    found = []
    for aspect in ASPECTS:
        for route in table.routes:
            seen = table.seen(pair, route, aspect)
            if seen is not None and seen.detail:
                found.append((seen, {"aspect": aspect, "route": route.name}))
    found.sort(key=lambda one: list(OUTCOMES).index(one[0].outcome))
    return [{**at, "kind": OUTCOMES[seen.outcome], "detail": seen.detail} for seen, at in found]
