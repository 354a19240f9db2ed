"""`python -m tests.gpu.kit_run`: what the kit finds of each library on this GPU, as one small file.

    python -m tests.gpu.kit_run --out FILE [--seconds 540] [--workers N] [--only NAME ...]

First the kit judges its own library, which shows what the lab of this GPU gets wrong; then each
library that is there, as a producer and as a consumer, then the bridge's views of them. A worker
has a GPU of its own where there are several: side by side on one, what is timed is often not
judged. What is done is in FILE, as JSON; a later call with the same file goes on from there.
The last lines say, for each, what fails that `known/xfails.toml` does not list, and the reverse;
of views, what `tests/data/views.toml` does not let fail.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OWN = "the kit's own library"
LIBRARIES = ("cuda.core", "torch", "cupy", "numba", "jax", "tvm-ffi", "rmm")
VIEWS = tuple(
    f"{door}({one})" for one in ("torch", "cupy", "jax", "numba") for door in ("to_cai", "from_cai")
)
TASKS = [
    *((OWN, role) for role in ("producer", "consumer")),
    *((one, "consumer") for one in LIBRARIES),
    *((one, "producer") for one in LIBRARIES if one != "cuda.core"),
    *((one, "producer") for one in VIEWS),
]


def judged(subject: str, role: Any, only: list[str] | None) -> dict[str, Any]:
    """Judge one library, and tell what came of it in few words."""
    from cai_bridge.conformance import check_consumer, check_producer, open_lab
    from cai_bridge.conformance.isolated import check_isolated
    from cai_bridge.conformance.judging import LAB_FAILS, SOMETIMES
    from cai_bridge.conformance.reference import reference_of

    begin = time.monotonic()
    try:
        if subject == OWN:
            with open_lab("gpu") as lab:
                lab.expendable = True
                check = check_producer if role == "producer" else check_consumer
                report = check(reference_of(role, None, lab), lab=lab, only=only)
        else:
            report = check_isolated(role, subject, where="gpu", limit_s=60, only=only)
    except (ValueError, RuntimeError) as error:
        return {"error": f"{error}"[:400]}
    skipped: dict[str, list[str]] = {}
    for one in report.verdicts:
        if one.outcome == "skipped":
            skipped.setdefault(one.evidence[:160], []).append(one.name)
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "summary": report.summary(),
        "failed": {
            one.name: {
                "level": one.requirement.level,
                "evidence": one.evidence[:700],
                "follows": report.follows.get(one.name, ""),
                "cases": [dict(case.odd) for case in one.cases[:6]],
            }
            for one in report.failed
        },
        "lab": {
            one.name: one.evidence[:500] for one in report.verdicts if LAB_FAILS in one.evidence
        },
        "once": {
            one.name: one.evidence[one.evidence.index(SOMETIMES) :][:300]
            for one in report.verdicts
            if SOMETIMES in one.evidence
        },
        "skipped": skipped,
        "passed": [one.name for one in report.verdicts if one.outcome == "passed"],
    }


def left_to(view: str) -> set[str]:
    """Tell what a view may fail in, such as ``"to_cai(torch)"``."""
    rows = tomllib.loads((HERE.parent / "data" / "views.toml").read_text(encoding="utf-8"))
    return {*rows[view.partition("(")[2][:-1]]["may-fail"]}


def listed(subject: str) -> tuple[set[str], set[str]]:
    """Tell what a library is known not to meet, and what it may meet or not."""
    from cai_bridge.conformance.known import known

    if "(" in subject:
        return set(), left_to(subject)
    fails = {*known("xfails").get(subject, {}), *known("skips").get(subject, {})}
    return fails, {*known("varies").get(subject, {})}


def told(key: str, found: dict[str, Any]) -> list[str]:
    """Write what came of one library in lines."""
    if "error" in found:
        return [f"{key}: {found['error'][:150]}"]
    failed, every = {*found["failed"]}, {*found["failed"], *found["passed"]}
    every |= {name for names in found["skipped"].values() for name in names}
    subject = key.rpartition(" as ")[0]
    fails, may = listed(subject)
    lines = [f"{found['summary']} in {found['seconds']} s"]
    for name in sorted(failed - fails - may):
        one = found["failed"][name]
        after = f" (follows {one['follows']})" if one["follows"] else ""
        lines.append(f"  new: {name}{after}: {' '.join(one['evidence'].split())[:400]}")
        lines.append(f"    cases: {'; '.join(map(said_of, one['cases'][:4]))}"[:400])
    if gone := sorted((fails & every) - failed - may):
        lines.append(f"  listed, and did not fail: {', '.join(gone)}")
    if did := sorted(failed & may):
        lines.append(f"  may fail, and did: {', '.join(did)}")
    lines += [
        f"  lab: {name}: {' '.join(text.split())[:400]}" for name, text in found["lab"].items()
    ]
    lines += [f"  once: {name}: {' '.join(text.split())}" for name, text in found["once"].items()]
    return lines


def said_of(case: dict[str, str]) -> str:
    return ", ".join(f"{axis} {value!r}" for axis, value in case.items()) or "the plain one"


def run_child(key: str, gpu: int, gpus: int, seconds: float, asked: Any) -> dict[str, Any]:
    """Judge in a process of its own, by its GPU."""
    subject, _, role = key.rpartition(" as ")
    env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if gpus > 1:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    command = [sys.executable, "-m", "tests.gpu.kit_run", "--child", subject, role]
    command += [part for name in asked.only for part in ("--only", name)]
    try:
        ran = subprocess.run(
            command,
            cwd=HERE.parents[1],
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return dict(json.loads(ran.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {}
    except (ValueError, IndexError):
        return {"error": f"exit code {ran.returncode}: {ran.stderr[-400:]}"}


def count_gpus() -> int:
    try:
        shown = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 1
    return max(1, shown.stdout.count("GPU "))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.kit_run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--only", action="append", default=[], help="a requirement")
    parser.add_argument("--subject", action="append", default=[], help="a part of a name")
    parser.add_argument("--child", nargs=2)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(judged(*asked.child, asked.only or None)))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    file, end = asked.out, time.monotonic() + asked.seconds
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    keys = [f"{subject} as {role}" for subject, role in TASKS]
    keys = [one for one in keys if not asked.subject or any(part in one for part in asked.subject)]
    left, lock, gpus = [one for one in keys if one not in done], threading.Lock(), count_gpus()

    def work(gpu: int) -> None:
        while True:
            with lock:
                if not left or time.monotonic() > end:
                    return
                key = left.pop(0)
            found = run_child(key, gpu % gpus, gpus, end - time.monotonic(), asked)
            with lock:
                if found:
                    done[key] = found
                    file.write_text(json.dumps(done, separators=(",", ":")))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(asked.workers or gpus)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    for key in keys:
        print("\n".join(told(key, done[key])) if key in done else f"{key}: not reached")


if __name__ == "__main__":
    main()
