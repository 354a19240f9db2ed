"""What the programs share: rounds with a value of their own each, and what is printed of them.

    python PROGRAM.py racy|right

A program prints a line RESULT with the values that it read. On stderr it says how many are wrong,
and how long the rounds took. The lines of the two operations that race say "the write" and "the
read"; where the host is one of the two it has none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

# NumPy 2.5 has no row_stack, whose name numba-cuda reads at import: import this module before it.
np.row_stack = getattr(np, "row_stack", np.vstack)  # type: ignore[attr-defined]

ROUNDS, WORDS = 8, 1 << 16
Round = Callable[[int], float]


def run(racy: Round, right: Round) -> None:
    """Run the rounds of what the command line asks for: each returns the number of its round."""
    once = {"racy": racy, "right": right}[sys.argv[1]]
    begun = time.perf_counter()
    got = [float(once(number)) for number in range(1, ROUNDS + 1)]
    spent = time.perf_counter() - begun
    wrong = sum(value != number for number, value in enumerate(got, 1))
    print("RESULT", got)
    print(f"WRONG {wrong} of {ROUNDS} TIME {spent:.5f}", file=sys.stderr)
