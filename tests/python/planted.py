"""Libraries with one planted fault each, and unusual ones: small libraries, a few words changed.

`tests/data/planted.toml` and `tests/data/unusual.toml` have a row for each: ``change``, a list of
texts, each followed by what takes its place. Each text occurs once.
"""

from __future__ import annotations

import functools
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

from cai_bridge.conformance import check_consumer, check_producer, judging, open_lab
from cai_bridge.conformance.cases import AXES

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
BASES = {"producer": HERE / "small_library.py", "consumer": HERE / "small_consumer.py"}
CLASSES = {"producer": "Producer", "consumer": "Consumer"}


@functools.cache
def rows(file: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the rows of a file, by role and name."""
    data = tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
    return {(role, name): row for role in BASES for name, row in data[role].items()}


def source(role: str, row: dict[str, Any]) -> str:
    """Change the text of the small library as a row says."""
    text = BASES[role].read_text(encoding="utf-8")
    for old, new in zip(row["change"][::2], row["change"][1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


def library(role: str, name: str, row: dict[str, Any]) -> Any:
    """Make the adapter of a library of a row."""
    module = types.ModuleType(f"planted: {name}")
    exec(compile(source(role, row), f"<planted: {name}>", "exec"), vars(module))
    kind = getattr(module, CLASSES[role])
    kind.name = name
    return kind


def missed_without(axis: str, lab: Any, enough: int = 10**6) -> list[str]:
    """Tell which planted faults are no longer caught by name with an axis taken out.

    Parameters
    ----------
    axis : str
        The axis: each requirement is judged with its plain value only.
    lab : Lab
        Where to judge.
    enough : int, optional
        How many are looked for.
    """
    checks = {"producer": check_producer, "consumer": check_consumer}
    missed: list[str] = []
    whole = judging.with_dtypes

    def without(over: Any, dtypes: Any) -> Any:
        values = whole(over, dtypes)
        return {**values, axis: values[axis][:1]} if axis in values else values

    judging.with_dtypes = without
    try:
        for (role, name), row in rows("planted").items():
            if len(missed) >= enough:
                break
            only = row["caught"][0]
            report = checks[role](library(role, name, row), lab=lab, only=only)
            if not report.failed:
                missed.append(name)
    finally:
        judging.with_dtypes = whole
    return missed


def main() -> None:
    """Judge every row by every requirement, and print what is missed or accused.

    Then print what each axis finds alone; with ``axes`` only that.
    """
    checks = {"producer": check_producer, "consumer": check_consumer}
    for file in () if sys.argv[1:] == ["axes"] else ("planted", "unusual"):
        caught = 0
        for (role, name), row in rows(file).items():
            with open_lab("simulated") as lab:
                report = checks[role](library(role, name, row), lab=lab)
            leads = {one.name for one in report.causes if one.requirement.level == "must"}
            failed = {one.name for one in report.failed}
            others = sorted(leads - {*row.get("caught", ())})
            found = row["caught"][0] in failed if "caught" in row else True
            caught += found and not others
            if not found or others:
                print(f"{role}, {name}: {'caught' if found else 'missed'}; accused of {others}")
        print(f"{file}: {caught} of {len(rows(file))} as they have to be")
    for axis in AXES:
        with open_lab("simulated") as lab:
            missed = missed_without(axis, lab)
        print(f"without {axis}: {len(missed)} missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()


def run_printed(program: str) -> None:
    """Run a program that the kit printed as its reader does: without this file's `annotations`."""
    exec(compile(program, "<printed>", "exec", dont_inherit=True), {})
