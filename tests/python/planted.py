"""Libraries with one planted fault each, and unusual ones: small libraries, a few words changed.

`tests/data/planted.toml` and `tests/data/unusual.toml` have a row for each: for a fault the
requirements that it breaks, then texts, each followed by what takes its place, in which … is the
text itself. Each text occurs once.
"""

from __future__ import annotations

import functools
import re
import sys
import tomllib
import types
from pathlib import Path

from cai_bridge.conformance import check_consumer, check_producer, judging, open_lab
from cai_bridge.conformance.cases import AXES

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
BASES = {"producer": HERE / "small_library.py", "consumer": HERE / "small_consumer.py"}
CHECKS = {"producer": check_producer, "consumer": check_consumer}
CLASSES = {"producer": "Producer", "consumer": "Consumer"}


@functools.cache
def rows(file):
    """Read the rows of a file, by role and name."""
    data = tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
    return {(role, name): as_row(data[role][name]) for role in BASES for name in data[role]}


def as_row(parts):
    """Tell the requirements of a row, if it has any, from what it changes."""
    named = len(parts) % 2
    return {"caught": " ".join(parts[:named]).split(), "change": parts[named:]}


def plain(role):
    """Name one fault for each requirement: the first row that has to be caught by it."""
    found = {}
    for (side, name), row in rows("planted").items():
        if side == role:
            found.setdefault(row["caught"][0], name)
    return found


def faulty(role, requirement):
    """Make the adapter of that library for a requirement."""
    name = plain(role)[requirement]
    return library(role, name, rows("planted")[role, name])


def source(role, row):
    """Change the text of the small library as a row says."""
    text = BASES[role].read_text(encoding="utf-8")
    for old, new in zip(row["change"][::2], row["change"][1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new.replace("…", old))
    return text


def library(role, name, row):
    """Make the adapter of a library of a row, in a module that programs can import."""
    module = types.ModuleType(f"planted_{role}_{re.sub(r'[^a-zA-Z0-9]', '_', name)}")
    sys.modules[module.__name__] = module
    exec(compile(source(role, row), f"<planted: {name}>", "exec"), vars(module))
    kind = getattr(module, CLASSES[role])
    kind.name = name
    return kind


def run_printed(program):
    """Run a program that the kit printed as its reader does: without this file's `annotations`."""
    exec(compile(program, "<printed>", "exec", dont_inherit=True), {})


def missed_without(axis, lab, enough=10**6):
    """Tell which planted faults are not caught with an axis' plain value only; look for enough."""
    missed = []
    whole = judging.with_dtypes

    def without(over, dtypes):
        values = whole(over, dtypes)
        return {**values, axis: values[axis][:1]} if axis in values else values

    judging.with_dtypes = without
    try:
        for (role, name), row in rows("planted").items():
            if len(missed) >= enough:
                break
            only = row["caught"][0]
            report = CHECKS[role](library(role, name, row), lab=lab, only=only)
            if not report.failed:
                missed.append(name)
    finally:
        judging.with_dtypes = whole
    return missed


def main():
    """Judge every row by every requirement, and print what is missed or accused.

    Then print what each axis finds alone; with ``axes`` only that.
    """
    for file in () if sys.argv[1:] == ["axes"] else ("planted", "unusual"):
        caught = 0
        for (role, name), row in rows(file).items():
            with open_lab("simulated") as lab:
                report = CHECKS[role](library(role, name, row), lab=lab)
            leads = {one.name for one in report.causes if one.requirement.level == "must"}
            failed = {one.name for one in report.failed}
            others = sorted(leads - {*row["caught"]})
            found = failed.issuperset(row["caught"][:1])
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
