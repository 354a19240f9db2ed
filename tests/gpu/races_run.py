"""The programs of `perturb_programs`, and what `cai-bridge races` says of one as a line of JSON.

The line has the pairs with both lines, and what was not seen. A racy program is to have a pair
whose lines say "the write" and "the read"; a right one is to have none that is certain.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "perturb_programs"
LIBRARIES = ("torch", "cupy", "jax", "numba", "triton", "warp")
SIDES = "the write", "the read"
BY_HOST = {"numpy_on_pinned", "torch_pinned_reuse"}
"""The programs in which the host is one of the two."""
SHOWN = 12
"""So many pairs of a program are written."""
LOOPS = "plain", "prefetch", "graphed", "compiled", "reduced", "ddp"


def programs(loops: Sequence[str]) -> list[tuple[str, str]]:
    """List the programs whose libraries are installed, racy ones before their twins."""
    absent = {one for one in LIBRARIES if importlib.util.find_spec(one) is None}
    found = []
    for path in sorted(HERE.glob("*.py")):
        imports = set(re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE))
        if path.stem not in {"common", "training"} and not imports & absent:
            found.append(path.stem)
    twins = [(name, kind) for name in found for kind in ("racy", "right")]
    return [*twins, *([] if "torch" in absent else [("training", kind) for kind in loops])]


def lines(side: dict[str, Any]) -> list[str]:
    """Return the lines of the program's own files."""
    return [
        f"{Path(file).name}:{number}: {source}"
        for file, number, _, source in reversed(side["stack"])
        if "perturb_programs" in file
    ][:2]


def told(pair: dict[str, Any]) -> dict[str, Any]:
    sides = [
        {
            "kernel": one["kernel"][:100],
            "kernels": [kernel[:100] for kernel in one["kernels"][:3]],
            **{name: one[name] for name in ("how", "why", "stream")},
            "lines": lines(one),
        }
        for one in (pair["first"], pair["second"])
    ]
    return {
        **{name: pair[name] for name in ("verdict", "writes", "count")},
        "bytes": pair["high"] - pair["low"],
        "sides": sides,
        "advice": pair["advice"][:200],
    }


def is_right(pair: dict[str, Any]) -> bool:
    """Whether the two lines are those that the program marks."""
    texts = [" ".join(lines(pair[side])) for side in ("first", "second")]
    marked = [{mark for mark in SIDES if mark in text} for text in texts]
    if "the host" in (pair["first"]["kernel"], pair["second"]["kernel"]):
        return any(marked)
    # A line without Python frames may be either side.
    return all(texts) and set().union(*marked) == set(SIDES)


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Say in short what `races --json` found of a program."""
    pairs = found["pairs"]
    certain = [one for one in pairs if one["verdict"] != "suspect"]
    right = [one for one in pairs if is_right(one)]
    return {
        "named": sorted({one["verdict"] for one in right}),
        "certain": len(certain),
        "suspects": len(pairs) - len(certain),
        **{name: found[name] for name in ("seconds", "conclusion", "seen", "functions")},
        "pairs": [told(one) for one in [*certain, *right, *pairs][:SHOWN]],
    }
