"""`python -m tests.golden`: does the bridge do in random programs what was written down?

    python -m tests.golden [--write]

Runs 4,000 programs of the soak, in half of which the bridge knows no library, and compares each
step, driver call, log record, warning and exception with behaviour.txt, and the messages with
messages.txt. Of a difference it prints the first program and the first line. `--write` writes the
files anew. Exits with 1 where something differs.
"""

from __future__ import annotations

import argparse
import difflib
import multiprocessing
import sys
import time
from pathlib import Path

from . import reference
from .record import GROUPS, programs

BEFORE = 12


def recorded() -> reference.Groups:
    """Run the programs, each group in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(len(GROUPS)) as pool:
        return dict(zip(GROUPS, pool.map(programs, GROUPS, chunksize=1), strict=True))


def difference(groups: reference.Groups) -> str:
    """Tell how the programs differ from what is committed; nothing where they do not."""
    before = reference.read(reference.BEHAVIOUR.read_text())
    now = reference.read(reference.hashes(groups))
    differ = [one for one in now if before.get(one) != now[one]]
    if not differ:
        return ""
    group, seed = differ[0]
    strangers = " --strangers" if GROUPS[group] else ""
    told = [
        f"{len(differ)} of {len(now)} programs differ; the first: {group} {seed}",
        f"replay it with: python -m tests.soak --replay {seed}{strangers}",
    ]
    old, new = reference.lines(group, seed), groups[group][seed].lines
    if old is None:
        return "\n".join(
            [*told, "its text cannot be had: the commit that wrote it has other hashes"]
        )
    pairs = zip([*old, None], [*new, None], strict=False)
    at = next((n for n, (left, right) in enumerate(pairs) if left != right), len(old))
    step = max((n for n in range(at + 1) if new[n : n + 1] and new[n][0] == ">"), default=0)
    first = max(step, at - BEFORE)
    told += [f"line {at + 1}, in {new[step][2:]}"] if step < first else []
    told += [f"  {line}" for line in new[first:at]]
    return "\n".join([*told, f"- {_at(old, at)}", f"+ {_at(new, at)}"])


def _at(lines: list[str], number: int) -> str:
    return lines[number] if number < len(lines) else "(nothing more)"


def main(given: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files anew")
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    began = time.monotonic()
    groups = recorded()
    calls = sum(line[:2] == "cu" for some in groups.values() for one in some for line in one.lines)
    took = f"{time.monotonic() - began:.1f} s"
    print(f"{sum(map(len, groups.values()))} programs, {calls} driver calls, {took}", flush=True)
    if asked.keep:
        reference.KEPT = asked.keep
        reference.keep(groups)
        return 0
    behaviour, messages = reference.hashes(groups), reference.messages(groups)
    if asked.write:
        reference.BEHAVIOUR.write_text(behaviour)
        reference.MESSAGES.write_text(messages)
    differs = difference(groups)
    if not differs:
        reference.keep(groups)
    said = reference.MESSAGES.read_text().splitlines(), messages.splitlines()
    names = (f"{reference.MESSAGES.name}, committed", "now")
    apart = [*difflib.unified_diff(*said, *names, n=0, lineterm="")]
    print("\n".join([*filter(None, [differs]), *apart]) or "nothing differs")
    return int(bool(differs or apart))


if __name__ == "__main__":
    sys.exit(main())
