"""``python -m tests.soak``: draw programs, run them, and print what fails, cut down."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator

from . import power, shrink
from . import steps as s
from .batch import Found, batch
from .bridge import Bridge
from .execute import Failure, run
from .generate import program
from .handover import know_nobody

CHUNK = 250
SHOWN = 5


def tasks(arguments: argparse.Namespace) -> Iterator[tuple[int, int, str | None]]:
    end = arguments.seed + arguments.programs
    for start in range(arguments.seed, end, CHUNK):
        yield start, min(start + CHUNK, end), arguments.break_


def show(seed: int, failure: Failure, *, cut: bool) -> None:
    """Print a program that fails, cut down, and how to see it again."""
    drawn = program(seed)
    print(f"\nprogram {seed}: {failure.kind}")
    if cut:
        drawn, failure = shrink.shrink(drawn, failure, shrink.fails_with(Bridge))
    print(s.listing(drawn))
    print(f"{failure.text.rstrip()}\nreplay it with: python -m tests.soak --replay {seed}")


def replay(seed: int) -> int:
    warnings.simplefilter("ignore")
    drawn = program(seed)
    failure = run(drawn, Bridge())
    print(s.listing(drawn))
    if failure is None:
        print(f"program {seed} is right")
        return 0
    show(seed, failure, cut=True)
    return 1


def soak(arguments: argparse.Namespace) -> int:
    began = time.perf_counter()
    failed: list[Found] = []
    counted = Counter[str]()
    # Not by fork after threads: each process imports the bridge for itself.
    first = know_nobody if arguments.strangers else None
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, first) as pool:
        for found, counts in pool.imap(batch, tasks(arguments)):
            failed += found
            counted += counts
            if len(failed) >= arguments.stop_after:
                pool.terminate()
                break
    seconds = time.perf_counter() - began
    warnings.simplefilter("ignore")
    for seed, failure in failed[:SHOWN]:
        show(seed, failure, cut=arguments.break_ is None)
    what = ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))
    rate = arguments.programs / seconds
    asked = f"{arguments.programs} programs from seed {arguments.seed}"
    print(f"{asked} in {seconds:.0f} s ({rate:.0f}/s): {what}")
    print(f"{len(failed)} failed" if failed else "none failed")
    return int(bool(failed))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--programs", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first program's")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one program and print it")
    parser.add_argument("--stop-after", type=int, default=20, help="end at so many failures")
    parser.add_argument(
        "--break",
        dest="break_",
        choices=power.CALLS,
        help="leave one needed call out of each program, which must be reported",
    )
    parser.add_argument(
        "--strangers", action="store_true", help="let the bridge know no library (docs/unknown.md)"
    )
    parsed = parser.parse_args(arguments)
    if parsed.strangers:
        know_nobody()
    return soak(parsed) if parsed.replay is None else replay(parsed.replay)


if __name__ == "__main__":
    sys.exit(main())
