"""The pairs of operations that nothing orders, found by one recorded run of a program, or two."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import perturbed, recorded
from .perturbed import Program, Run
from .races_pair import Pair

_MOST = 500
"""So many launches are compared in the second run."""
_CRASHES = 3
"""So often the second run is made again, if what it makes again ends it."""


@dataclass(frozen=True)
class Findings:
    """What the runs found."""

    runs: list[Run]
    """The recorded run, and those in which bytes were compared."""
    pairs: list[Pair]
    """The pairs, proven ones first."""

    def seen(self) -> dict[str, int]:
        """Count what was seen in the first run, and what was not in any."""
        first = self.runs[0].looked
        seen = {name: sum(one[name] for one in first) for name in ("calls", "operations")}
        seen["addresses"] = sum(one["addresses"] for one in first)
        unseen = {name: sum(one["unseen"][name] for one in first) for name in first[0]["unseen"]}
        for run in self.runs[1:]:
            for name in ("varying", "lost"):
                unseen[name] = max(unseen[name], sum(one["unseen"][name] for one in run.looked))
        return seen | unseen


def find(
    program: Program,
    step: Callable[[str], None],
    *,
    match: str = "",
    host: bool = False,
) -> Findings:
    """Run the program once, recorded; and once more if bytes have to be compared.

    Parameters
    ----------
    program : Program
        What to run.
    step : callable
        Is told what is run next.
    match : str
        A regular expression: only pairs with a line that has it are looked at.
    host : bool
        Whether the host's own accesses to page-locked memory are looked at.
    """
    with tempfile.TemporaryDirectory(prefix="cai-bridge-races-") as folder:
        step("recorded")
        first = recorded.run(program, host=host, keep=_folder(folder, 0))
        pairs = _merged(first.looked, match)
        runs = [first]
        if wanted := _wanted([one for one in pairs if one.verdict == "suspect"]):
            limited = replace(program, timeout=perturbed.limit(program, first))
            looked = [*first.looked]
            for again in range(1, _CRASHES + 1):
                step("serial, with bytes compared" + (", again" if again > 1 else ""))
                kept = _folder(folder, again)
                second = recorded.run(limited, compared=wanted, keep=kept)
                runs.append(second)
                looked += [*second.looked, *recorded.together(Path(folder, "0"), kept)]
                ended = {one["trying"] for one in second.looked if one["trying"]}
                if not ended:
                    break
                # A launch that was made again with other bytes has ended the process.
                wanted = [
                    one for one in wanted if not any(one.startswith(f"{by} ") for by in ended)
                ]
            pairs = _merged(looked, match)
    return Findings(runs, pairs)


def _folder(parent: str, number: int) -> Path:
    """Make the folder for the records of a run."""
    found = Path(parent, str(number))
    found.mkdir()
    return found


def _merged(looked: Sequence[dict[str, Any]], match: str) -> list[Pair]:
    """Put the pairs that several checks found together, by their lines."""
    found: dict[Any, Pair] = {}
    for process in looked:
        for one in process["pairs"]:
            pair = Pair.of(one)
            if match and not pair.has(match):
                continue
            known = found.get(pair.key)
            found[pair.key] = known.joined(pair) if known else pair
    order = {"proven": 0, "race": 1, "suspect": 2}
    return sorted(found.values(), key=lambda one: (order[one.verdict], not one.writes, -one.count))


def _wanted(suspects: Sequence[Pair]) -> list[str]:
    """List the launches whose bytes are to be compared, those of likely pairs first."""
    launches: dict[str, None] = {}
    lines: dict[str, None] = {}
    for pair in suspects:
        for one in pair.wanted:
            launch = " ".join(one.split()[:2]) + " "
            if launch in launches or len(launches) < _MOST:
                launches[launch] = None
                lines[one if one.count(" ") > 1 else launch] = None
    return list(lines)
