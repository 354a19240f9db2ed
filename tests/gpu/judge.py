"""Reports of the conformance kit on this GPU, of as many libraries as one asks for.

    python -m tests.gpu.judge producer torch cupy "to_cai(torch)"
    python -m tests.gpu.judge consumer torch cupy --folder OUT

Each library is judged in a process of its own. Where a requirement ends it, that requirement has
"crashed" (torch aborts on negative strides, for one) and another process goes on behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cai_bridge.conformance import (
    check_consumer,
    check_producer,
    consumer_named,
    open_lab,
    producer_named,
    requirements,
)


def child(role: str, subject: str, names: list[str], path: Path) -> None:
    """Judge one library, and write a line of JSON for each verdict as it comes."""
    faulthandler.enable()
    with open_lab("gpu") as lab, path.open("a") as out:
        adapter: Any = producer_named(subject) if role == "producer" else consumer_named(subject)
        judge = check_producer if role == "producer" else check_consumer
        for name in names:
            start = time.perf_counter()
            (verdict,) = judge(adapter, only=name, lab=lab).verdicts
            line = verdict.to_dict() | {"ms": round(1e3 * (time.perf_counter() - start), 1)}
            line.pop("program")
            out.write(json.dumps(line) + "\n")
            out.flush()


def judged(role: Any, subject: str, path: Path, limit_s: float) -> list[dict[str, Any]]:
    """All verdicts of one library, whatever crashes."""
    left = [one.name for one in requirements(role)]
    found: list[dict[str, Any]] = []
    while left:
        path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.gpu.judge", "--child", str(path), role, subject]
        try:
            done = subprocess.run(
                [*command, "--only", *left],
                check=False,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
            ended = f"code {done.returncode}: {done.stderr[-1500:]}"
        except subprocess.TimeoutExpired:
            ended = f"ended after {limit_s:.0f} s"
        lines = path.read_text().splitlines() if path.exists() else []
        found += [json.loads(line) for line in lines]
        left = left[len(lines) :]
        if left and not lines and not path.exists():
            return [*found, {"requirement": "(all)", "outcome": "crashed", "evidence": ended}]
        if left:
            crashed = {"requirement": left.pop(0), "outcome": "crashed", "evidence": ended}
            found.append(crashed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["producer", "consumer"])
    parser.add_argument("subjects", nargs="+")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one process")
    asked = parser.parse_args()
    if asked.child:
        child(asked.role, asked.subjects[0], asked.only, asked.child)
        return
    for subject in asked.subjects:
        start = time.perf_counter()
        safe = "".join(c if c.isalnum() else "-" for c in subject)
        path = asked.folder / f"{asked.role}-{safe}.jsonl"
        verdicts = judged(asked.role, subject, path, asked.limit)
        path.write_text("".join(json.dumps(one) + "\n" for one in verdicts))
        counts: dict[str, int] = {}
        for one in verdicts:
            counts[one["outcome"]] = counts.get(one["outcome"], 0) + 1
        print(f"\n== {subject} as a {asked.role}: {counts}, {time.perf_counter() - start:.1f} s")
        for one in verdicts:
            if one["outcome"] != "passed":
                took = f" [{one['ms']} ms]" if one.get("ms", 0) > 1000 else ""
                print(f"  {one['outcome']:8}{one['requirement']}{took}: {one['evidence'][:600]}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
