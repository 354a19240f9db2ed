"""`python -m tests.soak_races [--programs N] [--shared N] [--seed N] [--no-joins]`.

Random programs: what is proven must be a race, and of the racy programs most must have a pair that
is proven. Programs as libraries make them: of careful ones nothing is proven. And each join of up
to six streams, whole and without one of its waits. Exits with 1 if that is not so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from .judging import LEAST, Found, judge_joins, judge_random, judge_shared

BATCH = 100


def judged(what: str, count: int, seed: int, judge: Callable[[range], Found]) -> Found:
    found = Found()
    for start in range(0, count, BATCH):
        found += judge(range(seed + start, seed + min(start + BATCH, count)))
    print(f"{what}: {found}", *found.wrong[:20], sep="\n  ", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_races")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--shared", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-joins", action="store_true")
    asked = parser.parse_args()
    plain = judged("random", asked.programs, asked.seed, judge_random)
    careful = judged("careful", asked.shared, asked.seed, lambda n: judge_shared(n, careful=True))
    sloppy = judged("sloppy", asked.shared, asked.seed, lambda n: judge_shared(n, careful=False))
    racy, right, joins = (0, 0, []) if asked.no_joins else judge_joins()
    print(f"joins without one of their waits: {right} of {racy} proven", *joins, sep="\n  ")
    wrong = plain.wrong or careful.wrong or sloppy.wrong or careful.racy or joins
    few = plain.recall < LEAST["random"] or sloppy.recall < LEAST["shared"]
    sys.exit(bool(wrong or few))


if __name__ == "__main__":
    main()
