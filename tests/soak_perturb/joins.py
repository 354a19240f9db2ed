"""Joins: a stream that waits for several others, and forgets one of them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

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


def judge() -> tuple[int, int, list[str]]:
    """Judge each join.

    Returns
    -------
    tuple of int, int, list of str
        How many joins lack a wait; how many of these were seen; what was judged wrongly.
    """
    racy, wrong = 0, []
    with driver(), tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "join.py"
        asked = perturbed.Program((sys.executable, str(program)), delay=DELAY)
        for count in range(1, MOST + 1):
            for forgotten in (None, *range(count)):
                program.write_text(PROGRAM.format(count=count, forgotten=forgotten))
                verdict = perturb.judge(asked, None, lambda *_: None)
                racy += forgotten is not None
                if verdict.status != (forgotten is not None):
                    wrong.append(f"{count} streams without {forgotten}: {verdict.conclusion}")
    missed = sum(" without None" not in one for one in wrong)
    return racy, racy - missed, wrong
