"""Write the lists of known failures from reports of `tests.gpu.judge`.

    python -m tests.gpu.known FOLDER "one H100, driver 580.159, 2026-11-26, with torch 2.11.0"

What a library does not meet is listed with the reason that the list had before, or else with what
was seen, in parentheses, until somebody has looked at it by hand. What ended the process is
skipped.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import cai_bridge.conformance.known as package
from cai_bridge.conformance.known import known

FILES = Path(package.__file__).parent
ENDED = "the process ended"


def main(folder: str, where: str) -> None:
    before: dict[str, dict[str, str]] = {}
    for kind in ("xfails", "skips"):
        for subject, reasons in known(kind).items():
            before.setdefault(subject, {}).update(reasons)
    found: dict[str, dict[str, dict[str, str]]] = {"xfails": {}, "skips": {}}
    fresh = []
    for path in sorted(Path(folder).glob("*.json"), key=lambda one: "producer" not in one.name):
        report = json.loads(path.read_text(encoding="utf-8"))
        for one in report["verdicts"]:
            if one["outcome"] != "failed":
                continue
            name, subject = one["requirement"], report["subject"]
            kind = "skips" if one["evidence"].startswith(ENDED) else "xfails"
            reason = before.get(subject, {}).get(name) or _seen(one, report)
            if name not in before.get(subject, {}):
                fresh.append(f"{subject}, {name} ({one['level']}): {one['evidence'][:300]}")
            found[kind].setdefault(subject, {})[name] = reason
    for kind, subjects in found.items():
        (FILES / f"{kind}.toml").write_text(_text(kind, subjects, where), encoding="utf-8")
    print(f"{len(fresh)} are new, to be looked at by hand:", *fresh, sep="\n  ")


def _seen(verdict: dict[str, Any], report: dict[str, Any]) -> str:
    cause = report["follows"].get(verdict["requirement"])
    if cause:
        return f"(likely follows from {cause})"
    seen = re.sub(r"0x[0-9a-f]+", "...", " ".join(verdict["evidence"].split()))
    return f"({seen[:140]})"


def _text(kind: str, subjects: dict[str, dict[str, str]], where: str) -> str:
    heads = {
        "xfails": f"# What the libraries do not meet: {where}.\n"
        "# tests/gpu/test_known_failures.py keeps it true.\n",
        "skips": "# What ends the process, and is therefore not run in one that judges the rest: "
        "see xfails.toml.\n",
    }
    parts = [heads[kind]]
    for subject, reasons in subjects.items():
        title = subject if re.fullmatch(r"[\w-]+", subject) else json.dumps(subject)
        rows = (f"{name} = {json.dumps(text)}" for name, text in reasons.items())
        parts.append("\n".join([f"[{title}]", *rows]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
