"""Write docs/specification.md: the sentences of the specification, and the tests that show them."""

from __future__ import annotations

import ast
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("specification.md")
TESTS = ROOT / "tests" / "python"
SENTENCES = tomllib.loads((ROOT / "tests/data/specification.toml").read_text())["sentence"]
prose = runpy.run_path(str(Path(__file__).with_name("list_systems.py")))["prose"]
SIDES = {"consumer": "as_consumer", "producer": "as_producer"}
HEAD = """\
# The specification, sentence by sentence

Each sentence of the [CUDA Array Interface][text] that states a rule, beside the tests that show it.
As *consumer* the bridge reads a dict: `from_cai`, `to_dlpack`, `convert`.
As *producer* it writes one: the views of `to_cai`.
The text is that of version 3, and of version 2 where it differs.
Sentences about Numba alone and examples are left out.
*Does not bind* stands beside a sentence that asks nothing of the bridge on that side.
The tests run on the simulated device, in every run of `make test`.
The script `docs/list_specification.py` writes this page
from `tests/data/specification.toml` and the tests' marks.

[text]: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
"""


def found() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Find the tests of each side: their files and names, by the sentence that they show."""
    tests: dict[str, dict[str, list[tuple[str, str]]]] = {side: {} for side in SIDES}
    for path in sorted(TESTS.glob("test_specification_*.py")):
        for node in ast.parse(path.read_text()).body:
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


def cell(row: dict[str, str], side: str, tests: dict[str, list[tuple[str, str]]]) -> str:
    """Write what there is of a side: the tests, or why there is none."""
    if f"not_{side}" in row:
        return f"does not bind: {row[f'not_{side}']}"
    links = [f"[{prose(name)}](../tests/python/{file})" for file, name in tests[row["id"]]]
    return "; ".join(links)


def page() -> str:
    """Write the page."""
    tests, parts, part = found(), [HEAD], ""
    for row in SENTENCES:
        chapter = row["section"].split(",")[0]
        if chapter != part:
            part = chapter
            parts += [
                *([""] if len(parts) > 1 else []),
                f"## {chapter}",
                "",
                "| sentence | bridge as consumer | bridge as producer |",
                "|---|---|---|",
            ]
        within = row["section"].removeprefix(chapter).removeprefix(", ")
        where = ", ".join(filter(None, [within, "version 2" if row["version"] == 2 else ""]))
        quoted = (f"*{where}*: " if where else "") + f"“{row['sentence']}”"
        cells = [cell(row, side, tests[side]) for side in SIDES]
        parts.append(f"| {' | '.join([quoted, *cells])} |".replace("__", r"\_\_"))
    return "\n".join([*parts, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
