"""Joins: a stream that waits for several others, and forgets one of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cai_bridge._cli import perturb, perturbed

from .judging import driver

MOST = 6
"""The most streams that a join waits for."""
DELAY = 0.2
PROGRAM = """
from soft import *
c, y, s = stream(), word(), [stream() for _ in range({count})]
x = [word() for _ in s]
for i in range({count}):
    launch("fill", s[i], x[i], i + 1)
    if i != {forgotten}:
        order(s[i], c)
for i in range({count}):
    launch("add", c, y, x[i])
print(read(y, c))
"""


def joins(**how: Any) -> Iterator[tuple[int, int | None, perturbed.Program]]:
    """Write each join, whole and without one of its waits: how many streams, which, the program."""
    with driver(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "join.py"
        program = perturbed.Program((sys.executable, str(path)), **how)
        for count in range(1, MOST + 1):
            for forgotten in (None, *range(count)):
                path.write_text(PROGRAM.format(count=count, forgotten=forgotten))
                yield count, forgotten, program


def judge() -> tuple[int, int, list[str]]:
    """Judge each join.

    Returns
    -------
    tuple of int, int, list of str
        How many joins lack a wait; how many of these were seen; what was judged wrongly.
    """
    racy, wrong = 0, []
    for count, forgotten, program in joins(delay=DELAY):
        verdict = perturb.judge(program, None, lambda *_: None)
        racy += forgotten is not None
        if verdict.status != (forgotten is not None):
            wrong.append(f"{count} streams without {forgotten}: {verdict.conclusion}")
    missed = sum(" without None" not in one for one in wrong)
    return racy, racy - missed, wrong
