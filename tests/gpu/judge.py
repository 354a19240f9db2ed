"""Reports of the conformance kit on this GPU, of as many libraries as one asks for.

    python -m tests.gpu.judge producer torch cupy "to_cai(torch)"
    python -m tests.gpu.judge consumer torch cupy --folder OUT

Each library is judged in processes of its own: torch aborts on negative strides, for one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from cai_bridge.conformance.isolated import check_isolated


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["producer", "consumer"])
    parser.add_argument("subjects", nargs="+")
    parser.add_argument("--only", nargs="+", help="names of requirements")
    parser.add_argument("--folder", type=Path, help="where reports are written as JSON")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one requirement")
    parser.add_argument("--where", default="gpu")
    asked = parser.parse_args()
    for subject in asked.subjects:
        start = time.perf_counter()
        try:
            report = check_isolated(
                asked.role, subject, only=asked.only, where=asked.where, limit_s=asked.limit
            )
        except (ValueError, RuntimeError) as refusal:
            print(f"\n== {subject}: {refusal}", flush=True)
            continue
        took = time.perf_counter() - start
        counts = dict(Counter(one.outcome for one in report.verdicts))
        print(f"\n== {subject} as a {asked.role} on {report.place}: {counts}, {took:.1f} s")
        for one in report.verdicts:
            if one.outcome != "passed":
                print(f"  {one.outcome:8}{one.name}: {one.evidence[:600]}", flush=True)
        if asked.folder:
            name = "".join(c if c.isalnum() else "-" for c in f"{asked.role}-{subject}")
            path = asked.folder / f"{name}.json"
            path.write_text(json.dumps(report.to_dict(), indent=1))


if __name__ == "__main__":
    main()
