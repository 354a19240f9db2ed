"""`python -m tests.soak_perturb`: random programs under the covering seeds.

    python -m tests.soak_perturb [--programs N] [--named N] [--seed N] [--no-joins]

A program without a race must be the same under every seed. Not every race shows, as some leave the
values as they are. Of the first programs the races are named, too: the two operations must be a
race of the model's. And each join of up to six streams is judged, whole and without one of its
waits. Exits with 1 if a program without a race differs, if fewer than `LEAST` of those with one do,
if a name is wrong, or if a join is judged wrongly.
"""

from __future__ import annotations

import argparse
import sys

from .joins import judge as judge_joins
from .judging import LEAST, judge
from .naming import name

BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_perturb")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--named", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-joins", action="store_true")
    asked = parser.parse_args()
    whole = None
    for start in range(0, asked.programs, BATCH):
        numbers = range(asked.seed + start, asked.seed + min(start + BATCH, asked.programs))
        found = judge(numbers)
        whole = found if whole is None else whole + found
        print(whole, flush=True)
        for number in found.wrong:
            print(f"  without a race, and differs: program {number}")
    named = name(range(asked.seed, asked.seed + asked.named))
    print(named)
    for number, why in {**named.wrong, **named.unnamed}.items():
        print(f"  program {number}: {why}")
    racy, seen, joins = (0, 0, []) if asked.no_joins else judge_joins()
    print(f"joins without one of their waits: {seen} of {racy} seen", *joins, sep="\n  ")
    sys.exit(bool((whole and (whole.wrong or whole.recall < LEAST)) or named.wrong or joins))


if __name__ == "__main__":
    main()
