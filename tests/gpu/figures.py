"""The figures of a run of the GPU tests: counts, reasons of skips, and the page of the last run."""

from __future__ import annotations

import datetime
import importlib.metadata
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

LINES = 10
# By the names of their distributions, which may say for which CUDA they are.
LIBRARIES = re.compile(
    r"^(torch|cupy|cupy-cuda1\d.|jax|jaxlib|numba|numba-cuda|numba-cuda-mlir|cuda-core|cuda-bindings"
    r"|cuda-cccl|warp-lang|apache-tvm-ffi|rmm(-cu\d+)?|numpy|pytest)$"
)


@dataclass
class Figures:
    """Counts of tests by their outcome, and how long they took."""

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    expected: int = 0
    took_s: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.expected + other.expected,
            self.took_s + other.took_s,
        )

    def __str__(self) -> str:
        return (
            f"{self.passed} passed, {self.failed} failed, {self.skipped.total()} skipped, "
            f"{self.expected} xfailed in {self.took_s:.0f} s"
        )

    def without(self, reason: str) -> Figures:
        """Leave out what was skipped for a reason that begins so."""
        left = {why: count for why, count in self.skipped.items() if not why.startswith(reason)}
        return replace(self, skipped=Counter(left))

    def skips(self) -> list[str]:
        """List what was skipped by its reason, the most first, in ten lines at most."""
        reasons = self.skipped.most_common()
        shown = reasons if len(reasons) <= LINES else reasons[: LINES - 1]
        lines = [f"skipped {count}: {reason[:150]}" for reason, count in shown]
        if rest := reasons[len(shown) :]:
            lines.append(f"skipped {sum(n for _, n in rest)}: {len(rest)} other reasons")
        return lines


def read(report: Path, took_s: float) -> Figures:
    """Read pytest's report in JUnit's format. A test whose teardown also fails has failed once."""
    figures = Figures(took_s=took_s)
    failed, passed = set(), set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = (case.get("classname"), case.get("name"))
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif skip is None:
            passed.add(name)
        elif skip.get("type") == "pytest.xfail":
            figures.expected += 1
        else:
            figures.skipped[" ".join(skip.get("message", "").split())] += 1
    figures.passed, figures.failed = len(passed - failed), len(failed)
    return figures


def skipped_for(reason: str, report: Path) -> list[str]:
    """Name the tests that were skipped for a reason that begins so, as pytest takes them."""
    cases = [
        case
        for case in ElementTree.parse(report).iter("testcase")
        for skip in case.iter("skipped")
        if skip.get("message", "").startswith(reason)
    ]
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in cases
    ]


def page(figures: Figures, line: str, machine: str, commit: str, options: str = "") -> str:
    """Write the page of the last run; `options` are pytest's, by which tests may be left out."""
    found = {one.name.lower(): one.version for one in importlib.metadata.distributions()}
    versions = ", ".join(f"{n} {found[n]}" for n in sorted(found) if LIBRARIES.match(n))
    rows = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine,
        "libraries": versions,
        "commit": commit,
        "figures": line,
    }
    if options:
        rows["options"] = f"`{options}`"
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    skips = "\n".join(f"- {one}" for one in figures.skips())
    return (
        f"# The last run of `make gpu`\n\nWritten by it.\n\n| | |\n|---|---|\n{table}\n\n{skips}\n"
    )


def one_gpu_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Name the GPU of a process of pytest-xdist, where each has one of several."""
    worker, spread = environment.get("PYTEST_XDIST_WORKER"), environment.get("SPREAD_OVER_GPUS")
    if not (worker and spread):
        return {}
    return {"CUDA_VISIBLE_DEVICES": str(int(worker.removeprefix("gw")) % int(spread))}
