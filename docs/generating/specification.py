"""The page of the specification: its sentences, and the tests that show them.

The results of the tests are those of their last run, which docs/specification.json has.
"""

from __future__ import annotations

import ast
import itertools
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from generating import DATA, DOCS, ROOT, data, grid, link, toml

RESULTS = DOCS / "specification.json"
TESTS = ROOT / "tests" / "python"
SENTENCES = toml(DATA / "specification.toml")["sentence"]
SIDES = {"consumer": "as_consumer", "producer": "as_producer"}
HEAD = """\
# The specification, sentence by sentence

Each sentence of the [CUDA Array Interface][text], beside the tests that show it and their results.
As *consumer* the bridge reads a dict: `from_cai`, `to_dlpack`, `convert`.
As *producer* it writes one: the views of `to_cai`.
The text is that of version 3, and of version 2 where it differs.
Sentences about Numba alone, titles, types and programs are left out.
*Does not bind* stands beside a sentence that asks nothing of the bridge on that side.
A test's docstring quotes the sentences that it shows, with their sections.
The tests run on the simulated device, in every run of `make test`.
{results}
The script `docs/generate.py specification run` writes this page
from `tests/data/specification.toml`, the tests' marks and a run of them.

[text]: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
"""


def found() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Find the tests of each side: their files and names, by the sentence that they show."""
    tests: dict[str, dict[str, list[tuple[str, str]]]] = {side: {} for side in SIDES}
    for path in sorted(TESTS.glob("test_*.py")):
        text = path.read_text()
        for node in ast.parse(text).body if any(mark in text for mark in SIDES.values()) else ():
            if isinstance(node, ast.FunctionDef):
                for side, name in marks(node):
                    tests[side].setdefault(name, []).append((path.name, node.name))
    return tests


def marks(test: ast.FunctionDef) -> list[tuple[str, str]]:
    """Read which sentences a test is marked with, and for which side."""
    made = []
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name):
            sides = [side for side, name in SIDES.items() if name == mark.func.id]
            names = [ast.literal_eval(one) for one in mark.args if sides]
            made += [(side, name) for side in sides for name in names]
    return made


def run() -> dict[str, Any]:
    """Run the tests. Return how many cases of each passed, failed and were skipped."""
    counted: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        shown = itertools.chain(*(one for side in found().values() for one in side.values()))
        names = sorted({f"{TESTS / file}::{test}" for file, test in shown})
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *names]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    for case in cases:
        file = case.get("classname", "").rpartition(".")[2] + ".py"
        test = case.get("name", "").partition("[")[0]
        tags = {child.tag for child in case}
        failed = "failed" if tags & {"failure", "error"} else ""
        outcome = failed or ("skipped" if "skipped" in tags else "passed")
        counted.setdefault(f"{file}::{test}", Counter())[outcome] += 1
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "bridge": version("cai_bridge"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "tests": counted,
    }


def results(found: dict[str, Any]) -> str:
    """Write the day and versions of the tests' last run, and how many passed."""
    total: Counter[str] = sum(map(Counter, found["tests"].values()), Counter())
    counts = ", ".join(f"{total[one]} {one}" for one in ("passed", "failed", "skipped"))
    return (
        f"Results of {found['date']}, cai_bridge {found['bridge']}, {found['python']}: "
        f"{len(found['tests'])} tests; of their cases {counts}."
    )


def cell(
    row: dict[str, str],
    side: str,
    tests: dict[str, list[tuple[str, str]]],
    found: dict[str, dict[str, int]],
) -> str:
    """Write a side's tests with their results, or why there is none."""
    if f"not_{side}" in row:
        return f"does not bind: {row[f'not_{side}']}"
    shown = []
    for file, name in tests[row["id"]]:
        outcomes = found.get(f"{file}::{name}", {"not run": 1})
        result = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        shown.append(f"{link(f'python/{file}', name)}: {result}")
    return "; ".join(shown)


def page(last: dict[str, Any]) -> str:
    """Write the page: a table for each chapter."""
    tests, parts = found(), [HEAD.format(results=results(last))]
    heads = ["sentence", "bridge as consumer", "bridge as producer"]
    for chapter, sentences in itertools.groupby(
        SENTENCES, lambda one: one["section"].split(",")[0]
    ):
        rows = []
        for one in sentences:
            within = one["section"].removeprefix(chapter).removeprefix(", ")
            where = ", ".join(filter(None, [within, "version 2" if one["version"] == 2 else ""]))
            quoted = (f"*{where}*: " if where else "") + f"“{one['sentence']}”"
            cells = [quoted, *(cell(one, side, tests[side], last["tests"]) for side in SIDES)]
            rows.append([text.replace("__", r"\_\_") for text in cells])
        parts += [f"## {chapter}", "", *grid(heads, rows), ""]
    return "\n".join(parts)


def update(_: str) -> None:
    """Run the tests, and keep their results."""
    RESULTS.write_text(json.dumps(run(), indent=1, sort_keys=True) + "\n")


def files() -> dict[Path, str]:
    """List the page."""
    return {DOCS / "specification.md": page(data(RESULTS))}
