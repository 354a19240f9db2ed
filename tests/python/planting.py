"""`python tests/python/planting.py FILE`: what the kit says of each library of a file of rows.

The file has the tables ``producer`` and ``consumer``, of faults, and ``right_producer`` and
``right_consumer``, of libraries that are right, each with rows as in `tests/data/planted.toml`;
these may be without requirements.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

import planted

from cai_bridge.conformance import Report, check_consumer, check_producer, open_lab

CHECKS = {"producer": check_producer, "consumer": check_consumer}


def judged(role: str, name: str, row: dict[str, Any], *, thorough: bool = False) -> Report:
    """Judge one library by all requirements."""
    with open_lab("simulated") as lab:
        lab.thorough = thorough
        return CHECKS[role](planted.library(role, name, row), lab=lab)


def failures(report: Report, level: str) -> dict[str, str]:
    """Tell what failed at a level, what leads first."""
    failed = [one for one in report.failed if one.requirement.level == level]
    failed.sort(key=lambda one: one.name in report.follows)
    return {one.name: one.evidence for one in failed}


def main() -> None:
    """Judge each row of a file, and count."""
    parser = argparse.ArgumentParser(prog="python tests/python/planting.py")
    parser.add_argument("file", type=Path)
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--only", default="", help="a part of a name, or several behind |")
    asked = parser.parse_args()
    tables = tomllib.loads(asked.file.read_text(encoding="utf-8"))
    counts: dict[str, dict[str, int]] = {}
    for table, rows in tables.items():
        role = table.removeprefix("right_")
        for name, parts in rows.items():
            row = planted.as_row(parts)
            if not any(part in name for part in asked.only.split("|")):
                continue
            try:
                report = judged(role, name, row, thorough=asked.thorough)
            except Exception as error:
                print(f"{table}, {name}: not judged: {type(error).__name__}: {error}", flush=True)
                continue
            must, should = failures(report, "must"), failures(report, "should")
            found = "demand" if must else "recommendation" if should else "nothing"
            count = counts.setdefault(
                table, dict.fromkeys(("demand", "recommendation", "nothing"), 0)
            )
            count[found] += 1
            right = table.startswith("right_")
            mark = "!" if (found == "demand") == right else " "
            told = [f"{one}: {why[:160]}" if mark == "!" else one for one, why in must.items()]
            told = told[:4] or [f"{one} (should)" for one in should]
            print(f"{mark} {table}, {name}: {found}: {'; '.join(told)}", flush=True)
    for table, count in counts.items():
        print(f"{table}: failed in a " + ", ".join(f"{what}: {n}" for what, n in count.items()))


if __name__ == "__main__":
    main()
