"""What the bridge costs, beside what the libraries' own ways cost, on whatever machine this is.

    python tests/bench/bench.py [--json FILE] [--check]

With a GPU: each of the bridge's calls in turns with the peer's that does the same and with its
floor, which is what the driver and the libraries take of it. The times are the least
and the median of 61 rounds of 200 calls, a ratio is the median of the rounds' ratios. Anywhere:
import time, size, growth, and the bridge over the simulated device. `--check` exits with 1 when a
budget is missed that the floor does not forbid.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import anywhere
import growth
import on_gpu
from timing import Row

from gpu.__main__ import machine

PACKAGES = (
    "cai_bridge torch jax cupy-cuda13x cupy-cuda12x numba numba-cuda cuda-core cuda-bindings "
    "apache-tvm-ffi numpy"
)


def environment() -> dict[str, str]:
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": machine(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }
    for package in PACKAGES.split():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def measured(only_growth: bool) -> Iterator[Row]:
    if only_growth:
        return growth.rows()
    # Growth comes last: a million views leave the allocator another one than it was.
    return itertools.chain(all_others(), growth.rows())


def all_others() -> Iterator[Row]:
    yield from anywhere.rows()
    reason = on_gpu.why_not()
    if reason is None:
        yield from on_gpu.rows()
    else:
        yield Row("GPU", "all rows", None, remark=reason)


def number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if unit in ("ns", "") else 1 if unit == "KiB" else 4
    return f"{value:,.{digits}f} {unit}".rstrip()


def line(row: Row) -> str:
    ratio = f"{row.ratio:.2f}x" if row.ratio is not None else ""
    limit = (
        ""
        if row.budget is None
        else f"<= {row.budget:g}{'x' if row.peer else ' ' + row.unit}".rstrip()
    )
    cells = [
        f"{row.name:<52}",
        f"{number(row.value, row.unit):>13}",
        f"{number(row.median, row.unit):>11}",
        f"{number(row.floor, row.unit):>9}",
        f"{f'{row.from_floor:.2f}x' if row.from_floor else '':>7}",
        f"{number(row.peer_value, row.unit):>11}",
    ]
    cells += [f"{ratio:>7}", f"{limit:>10}", f"{row.verdict:<12}", row.remark or row.peer]
    return " ".join(cells).rstrip()


def show(rows: Iterator[Row]) -> list[Row]:
    shown = []
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        print(f"\n{group}")
        heads = (
            f"{'least':>13} {'median':>11} {'floor':>9} {'of it':>7} {'peer':>11} {'ratio':>7}"
            f" {'budget':>10}"
        )
        print(f"{'':<52} {heads} {'':<12} peer's call")
        for row in members:
            print(line(row), flush=True)
            shown.append(row)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row to FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a budget is missed")
    parser.add_argument("--growth", action="store_true", help="only how times grow")
    arguments = parser.parse_args()
    found = environment()
    print("  ".join(f"{name} {version}" for name, version in found.items()))
    rows = show(measured(arguments.growth))
    missed = [row for row in rows if row.verdict == "over"]
    at_floor = [row for row in rows if row.verdict == "at floor"]
    budgeted = [row for row in rows if row.verdict and row.value is not None]
    unmeasured = [row for row in rows if row.budget is not None and row.value is None]
    kept = len(budgeted) - len(missed) - len(at_floor)
    print(f"\n{kept} of {len(budgeted)} budgets kept, {len(at_floor)} at their floor", end="")
    print(f", {len(unmeasured)} not measured" if unmeasured else "")
    if arguments.json:
        as_data = [asdict(row) | {"verdict": row.verdict} for row in rows]
        arguments.json.write_text(
            json.dumps({"environment": found, "rows": as_data}, indent=2) + "\n"
        )
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
