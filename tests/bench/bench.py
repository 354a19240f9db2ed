"""What the bridge costs, beside what the libraries' own ways cost, on whatever machine this is.

    python tests/bench/bench.py [--json FILE] [--check]

With a GPU: each of the bridge's calls in turns with the peer's that does the same and with its
floor, which is what the driver and the libraries take of it. The times are the least and the
median of 61 rounds of 200 calls, a ratio is the median of the rounds' ratios. Anywhere: import
time and size. `--check` exits with 1 when a budget is missed that the floor does not forbid.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import itertools
import json
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import on_gpu
from timing import Row

from gpu.__main__ import machine

PACKAGES = (
    "cai_bridge torch jax cupy-cuda13x cupy-cuda12x numba numba-cuda cuda-core cuda-bindings "
    "apache-tvm-ffi numpy"
)
IMPORT_BUDGET_MS = 12.0
# The profile makes the extension larger by a sixth: 2.8 MB (2026-11-28) of 3.2 that it may have.
# Compressed half of that is left, and all else in a wheel takes 0.4 MB.
EXTENSION_BUDGET_KIB = 3125.0
WHEEL_BUDGET_KIB = 1920.0
ROOT = Path(__file__).parents[2]
FRAMEWORKS = ["numpy", "torch", "cupy", "jax", "numba"]
PROBE = f"""
import json, sys, time
start = time.perf_counter()
import cai_bridge
spent = 1e3 * (time.perf_counter() - start)
print(json.dumps([spent, [name for name in {FRAMEWORKS} if name in sys.modules]]))
"""


def environment():
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


def measured():
    """Give the rows of the package, and then those of a GPU."""
    probe = [sys.executable, "-c", PROBE]
    runs = [json.loads(subprocess.check_output(probe, text=True)) for _ in range(10)]
    least, dragged = min(spent for spent, _ in runs), {one for _, found in runs for one in found}
    name = "import cai_bridge, beyond Python's start"
    yield Row("package", name, least, "ms", budget=IMPORT_BUDGET_MS)
    name, remark = f"of {', '.join(FRAMEWORKS)}: imported along", ", ".join(sorted(dragged))
    yield Row("package", name, len(dragged), "", budget=0.0, remark=remark)
    for wheel in [*ROOT.glob(".venv/wheel-release/*.whl"), *ROOT.glob("dist/*.whl")][:1]:
        yield size("wheel", [wheel], WHEEL_BUDGET_KIB)
    extension = importlib.util.find_spec("cai_bridge._core").origin
    yield size("extension", [Path(extension)], EXTENSION_BUDGET_KIB)
    files = [one for one in Path(extension).parent.rglob("*") if "__pycache__" not in one.parts]
    yield size("installed package", filter(Path.is_file, files))
    reason = on_gpu.why_not()
    if reason is None:
        yield from on_gpu.rows()
    else:
        yield Row("GPU", "all rows", None, remark=reason)


def size(name, files, budget=None):
    """How much there is of some files on disk."""
    value = sum(one.stat().st_size for one in files) / 1024
    return Row("package", name, value, "KiB", budget=budget)


def number(value, unit):
    if value is None:
        return ""
    digits = 0 if unit in ("ns", "") else 1 if unit == "KiB" else 4
    return f"{value:,.{digits}f} {unit}".rstrip()


def line(row):
    unit = "x" if row.peer else f" {row.unit}"
    cells = [
        f"{row.name:<52}",
        f"{number(row.value, row.unit):>13}",
        f"{number(row.median, row.unit):>11}",
        f"{number(row.floor, row.unit):>9}",
        f"{f'{row.from_floor:.2f}x' if row.from_floor else '':>7}",
        f"{number(row.peer_value, row.unit):>11}",
        f"{'' if row.ratio is None else f'{row.ratio:.2f}x':>7}",
        f"{'' if row.budget is None else f'<= {row.budget:g}{unit}'.rstrip():>10}",
        f"{row.verdict:<12}",
        row.remark or row.peer,
    ]
    return " ".join(cells).rstrip()


def show(rows):
    shown = []
    heads = " ".join(
        f"{name:>{width}}"
        for name, width in {
            "least": 13,
            "median": 11,
            "floor": 9,
            "of it": 7,
            "peer": 11,
            "ratio": 7,
            "budget": 10,
        }.items()
    )
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        print(f"\n{group}\n{'':<52} {heads} {'':<12} peer's call")
        for row in members:
            print(line(row), flush=True)
            shown.append(row)
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row to FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a budget is missed")
    arguments = parser.parse_args()
    found = environment()
    print("  ".join(f"{name} {version}" for name, version in found.items()))
    rows = show(measured())
    budgeted = [row.verdict for row in rows if row.verdict and row.value is not None]
    missed, at_floor = budgeted.count("over"), budgeted.count("at floor")
    unmeasured = sum(row.budget is not None and row.value is None for row in rows)
    kept = len(budgeted) - missed - at_floor
    print(f"\n{kept} of {len(budgeted)} budgets kept, {at_floor} at their floor", end="")
    print(f", {unmeasured} not measured" if unmeasured else "")
    if arguments.json:
        data = [asdict(row) | {"verdict": row.verdict} for row in rows]
        arguments.json.write_text(json.dumps({"environment": found, "rows": data}, indent=2) + "\n")
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
