"""`python -m tests.soak_perturb`: random programs under the covering seeds.

    python -m tests.soak_perturb [--programs N] [--named N] [--seed N]

A program without a race must be the same under every seed. Not every race shows, as some leave the
values as they are. Of the first programs the races are named, too: the two operations must be a
race of the model's. Exits with 1 if a program without a race differs, if fewer than `LEAST` of
those with one do, or if a name is wrong.
"""

from __future__ import annotations

import argparse
import sys

from .judging import LEAST, judge
from .naming import name

BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_perturb")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--named", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
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
    sys.exit(bool((whole and (whole.wrong or whole.recall < LEAST)) or named.wrong))


if __name__ == "__main__":
    main()
