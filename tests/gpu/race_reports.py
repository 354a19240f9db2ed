"""What CSAN, compute-sanitizer and `perturb` report of the programs of perturb_programs, judged."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from .races_run import BY_HOST, HERE, SIDES

ARRAY = 4 << 16
"""So many bytes each array has that the programs hand over."""
Result = dict[str, Any]


def marks(text: str) -> list[str]:
    """List the marked lines that a text shows."""
    return [one for one in SIDES if one in text]


def of_races(what: Result) -> str:
    """Say what `races` found of a program, by the line that races_run makes of it."""
    if "status" in what and what["status"] is None:
        return "timed out"
    if "was ended for its time" in what.get("conclusion", ""):
        return "timed out"
    if "error" in what or what["status"] == 2:
        return "failed"
    if what["kind"] != "racy":
        return "accused" if what["certain"] else "quiet"
    if {"proven", "race"} & set(what["named"]):
        return "named"
    return "found" if what["certain"] else "not found"


def verdict_of(status: int | None) -> str:
    """Say what the exit status of `perturb` says; None if it was ended for its time."""
    if status is None:
        return "timed out"
    return {1: "found", 0: "not found"}.get(status, "failed")


def csan_reports(text: str) -> list[str]:
    """Cut CSAN's reports out: both accesses, without the allocation and what it raises then."""
    ends = r"Tensor was allocated|Trace for tensor|Traceback \(most"
    return re.findall(rf"CSAN detected.*?(?={ends}|CSAN detected|\Z)", text, re.DOTALL)


def sanitizer_errors(text: str) -> tuple[int | None, Counter[str]]:
    """Read how many errors compute-sanitizer found, None if it did not check, and its messages."""
    counts = re.findall(r"SUMMARY: (\d+) (?:error|hazard)", text)
    messages = Counter(
        line.removeprefix("========= ")
        for line in text.splitlines()
        if re.match(r"========= (?!\s|COMPUTE|ERROR SUMMARY|RACECHECK|Target)\S", line)
    )
    if not counts or "Device not supported" in text:
        return None, messages
    return sum(map(int, counts)), messages


def sanitizer_reports(text: str) -> list[str]:
    """Cut compute-sanitizer's reports out: a report's first line is not indented."""
    found: list[str] = []
    for line in text.splitlines():
        if not line.startswith("========= ") or line.startswith("=========  "):
            if found and line.startswith("========="):
                found[-1] += f"\n{line}"
        elif re.match(r"=+ (?!COMPUTE|\w+ SUMMARY|Error:|Target|Device)\S", line):
            found.append(line)
    return found


FRAME = re.compile(r"Host Frame: .* in (\w+\.py):(\d+)$", re.MULTILINE)


def is_ours(report: str, name: str) -> bool:
    """Whether a report is of an array that the program hands over, in one of its rounds."""
    if name == "training":
        return True
    sizes = re.findall(r"allocation (?:at 0x[\da-f]+ )?of size ([\d,]+) bytes", report)
    files = {file for file, _ in FRAME.findall(report)}
    return ARRAY in {int(one.replace(",", "")) for one in sizes} and (
        not files or "common.py" in files
    )


def framed(report: str) -> list[str]:
    """List the lines of the programs that a report's stacks name."""
    found = []
    for file, number in FRAME.findall(report):
        path = HERE / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found += lines[int(number) - 1 : int(number)]
    return found


def result(out: str) -> str:
    """Return the line of what a program read."""
    return next((one for one in out.splitlines() if one.startswith("RESULT")), "")


def judged(status: int | None, kind: str, count: int, named: list[str], name: str) -> Result:
    """Say what a tool found: "named" if it shows the lines that are marked."""
    enough = len(named) >= (1 if name in BY_HOST else 2)
    if count:
        verdict = "accused" if kind != "racy" else "named" if enough else "found"
    elif status is None:
        verdict = "timed out"
    elif status:
        verdict = "failed"
    else:
        verdict = "not found" if kind == "racy" else "quiet"
    return {"verdict": verdict, "count": count, "marks": named}
