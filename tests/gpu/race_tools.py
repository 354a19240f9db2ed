"""`python -m tests.gpu.race_tools`: what finds the races of `perturb_programs`, tool by tool.

    python -m tests.gpu.race_tools --out FOLDER [--jobs N] [--seconds S] [--timeout S]
        [--parts NAME ...] [--programs NAME ...]

Run from the checkout, with `cai_bridge` importable. The tools are `cai-bridge races` and
`cai-bridge perturb`, PyTorch's CSAN, and memcheck of compute-sanitizer with its check for
stream-ordered races. Each runs over each racy program and its right twin. The training loops run
too. The parts:

- `cost` measures how much longer two training loops take under `races`. Nothing runs beside it.
- `shown` writes the output of `perturb` that docs/races.md shows.
- `races`, `perturb`, `csan` and `memcheck` are these tools, the longest programs first.

A program is NAME, for every part that has it, or PART:NAME:KIND for one part, where NAME and KIND
may be `*`. A part that no program is named for runs over all. With several GPUs each of the N jobs
has one of them, in turn.

The folder gets these files:

- results.jsonl has a line for each result, written at once. `python docs/generate.py races FILE`
  reads it.
- races.jsonl has what `races` said, and logs.txt what the other tools printed.
- perturb.gpu.txt is for docs/programs.

After `--seconds` the command ends what runs. Exits with 0 if a result was written.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import perturb_judged, races_run
from .race_reports import (
    Result,
    csan_reports,
    framed,
    is_ours,
    judged,
    marks,
    of_races,
    result,
    sanitizer_errors,
    sanitizer_reports,
    verdict_of,
)
from .races_run import BY_HOST, HERE, LOOPS, programs

ROOT = Path(__file__).parents[2]
PARTS = "cost", "shown", "races", "perturb", "csan", "memcheck"
LIMITS = {"cost": 110.0, "shown": 300.0, "perturb": 400.0, "csan": 60.0, "memcheck": 150.0}
"""How many seconds a part, or one program of it, may take."""
COSTS = "plain", "prefetch"
SEEDS = "4"
"""So many seeds the training loops run under."""
KEPT = 4000
"""So many characters of a tool's output are kept; of memcheck, whose stacks are long, five times
as many."""
SUSPECTS = 20
"""So many suspects of a program are kept: a training loop has hundreds, with long stacks."""
FOLDERS = "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin"
PACKAGES = (
    *("torch", "cupy-cuda13x", "cupy-cuda12x", "jax", "jaxlib", "numba", "numba-cuda", "triton"),
    *("warp-lang", "numpy", "nvidia-nccl-cu13", "nvidia-nccl-cu12"),
)


def output(command: Sequence[str]) -> str:
    """Return what a command prints, and nothing if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def compute_sanitizer() -> str | None:
    """Find compute-sanitizer, which may not be on the PATH."""
    found = shutil.which("compute-sanitizer")
    others = [Path(one, "compute-sanitizer") for one in FOLDERS]
    others += [*Path("/usr/local").glob("cuda*/bin/compute-sanitizer")]
    return found or next((str(one) for one in others if one.is_file()), None)


def gpus() -> list[str]:
    """Name each GPU, with the driver."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return output(asked).splitlines()


def machine() -> Result:
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if tool := compute_sanitizer():
        number = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output([tool, "--version"]))
        versions["compute-sanitizer"] = number[1] if number else "unknown"
    commit = os.environ.get("COMMIT") or output(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    return {
        "part": "machine",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpus": gpus(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "versions": versions,
        "commit": commit,
    }


def has_torch(name: str) -> bool:
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    return re.search(r"^import torch", text, re.MULTILINE) is not None


class Tools:
    """The parts that run, and what came of those that have ended."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.ends, self.timeout = time.monotonic() + asked.seconds, asked.timeout
        self.running: set[int] = set()
        self.lock = threading.Lock()
        self.out: Path = asked.out
        self.slots = threading.local()
        self.count = max(1, len(gpus()))
        self.next = 0
        self.said = 0
        self.stream_ordered = stream_ordered()

    @property
    def left(self) -> float:
        return self.ends - time.monotonic()

    def environment(self) -> dict[str, str]:
        """Give each thread a GPU of its own where there are several, and the job's variables."""
        given = dict(getattr(self.slots, "more", {}))
        if self.count > 1 and not getattr(self.slots, "all_gpus", False):
            if not hasattr(self.slots, "number"):
                with self.lock:
                    self.slots.number, self.next = self.next, self.next + 1
            given["CUDA_VISIBLE_DEVICES"] = str(self.slots.number % self.count)
        return given

    def write(self, name: str, text: str) -> None:
        with self.lock, (self.out / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def result(self, what: Result) -> None:
        self.said += 1
        self.write("results.jsonl", f"{json.dumps(what)}\n")
        keys = ("part", "program", "kind", "verdict", "seconds", "error")
        told = [time.strftime("%H:%M:%S"), *(str(what[one]) for one in keys if what.get(one))]
        sys.stdout.write(f"{' '.join(told)}\n")
        sys.stdout.flush()

    def child(self, command: list[str], timeout: float) -> tuple[int | None, str, str]:
        """Run a command in a session of its own; its status, None if it was ended for its time."""
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **self.environment()},
        )
        with self.lock:
            self.running.add(child.pid)
        try:
            out, errors = child.communicate(timeout=max(1.0, timeout))
            return child.returncode, out, errors
        except subprocess.TimeoutExpired:
            # An interrupt lets the command end its own program, which has a session of its own.
            os.killpg(child.pid, signal.SIGINT)
            try:
                out, errors = child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, errors = child.communicate()
            return None, out, errors
        finally:
            with self.lock:
                self.running.discard(child.pid)

    def job(self, what: Callable[..., Result], part: str, name: str, kind: str) -> None:
        """Run a tool on a program; whatever comes, a result is written."""
        self.slots.more, self.slots.all_gpus = {}, kind == "ddp"
        said = {"part": part, "program": name, "kind": kind}
        began = time.monotonic()
        try:
            if self.left < 10:
                found: Result = {"verdict": "not begun"}
            else:
                found = what(name, kind)
        except Exception as error:
            found = {"verdict": "failed", "error": repr(error)}
        self.result({"seconds": round(time.monotonic() - began, 1)} | said | found)

    def races(self, name: str, kind: str) -> Result:
        program = [sys.executable, str(HERE / f"{name}.py"), kind]
        began = time.monotonic()
        alone, _, _ = self.child(program, min(self.left, self.timeout))
        own = time.monotonic() - began
        options = ["--json", "--timeout", str(self.timeout)]
        options += ["--host"] if name in BY_HOST else []
        command = [sys.executable, "-m", "cai_bridge", "races", *options, "--", *program]
        status, out, errors = self.child(command, min(self.left, 5 * self.timeout))
        said: Result = {"kind": kind, "status": status, "alone": [alone, round(own, 2)]}
        try:
            found = json.loads(out)
        except ValueError:
            said |= {"error": "no JSON", "output": out[-500:], "errors": errors[-1500:]}
        else:
            certain = [one for one in found["pairs"] if one["verdict"] != "suspect"]
            others = [one for one in found["pairs"] if one["verdict"] == "suspect"]
            whole = {"program": name, "kind": kind, **found, "pairs": certain + others[:SUSPECTS]}
            self.write("races.jsonl", f"{json.dumps(whole)}\n")
            said |= races_run.summary(found) | {"errors": errors[-500:]}
        return {"verdict": of_races(said)} | said

    def csan(self, name: str, kind: str) -> Result:
        if not has_torch(name):
            return {"verdict": "not applicable"}
        self.slots.more = {"TORCH_CUDA_SANITIZER": "1"}
        command = [sys.executable, str(HERE / f"{name}.py"), kind]
        status, out, errors = self.child(command, min(self.left, LIMITS["csan"]))
        text = f"{out}\n{errors}"
        self.log("csan", name, kind, text)
        reports = csan_reports(text)
        return judged(status, kind, len(reports), marks("".join(reports)), name) | {
            "status": status,
            "end": errors[-300:],
        }

    def memcheck(self, name: str, kind: str) -> Result:
        found = compute_sanitizer()
        if not found:
            return {"verdict": "failed", "error": "no compute-sanitizer"}
        self.slots.more = self.stream_ordered
        command = [found, "--tool", "memcheck", "--track-stream-ordered-races", "all"]
        command += ["--report-api-errors", "no", "--target-processes", "all"]
        command += ["--print-limit", "100", sys.executable, str(HERE / f"{name}.py"), kind]
        status, out, errors = self.child(command, min(self.left, LIMITS["memcheck"]))
        text = f"{out}\n{errors}"
        self.log("memcheck", name, kind, text, 5 * KEPT)
        errors_found, messages = sanitizer_errors(text)
        reports = sanitizer_reports(text)
        # Others are of a library's own memory, or of what comes before the rounds.
        ours = [one for one in reports if is_ours(one, name)]
        # A program that it breaks has no result; without a summary nothing was checked.
        ended = status if errors_found is not None or status is None else status or 1
        more = {
            "status": status,
            "errors": errors_found,
            "reports": len(reports),
            "messages": messages.most_common(5),
            "result": result(out),
        }
        named = marks("\n".join(line for one in ours for line in framed(one)))
        return judged(ended, kind, len(ours), named, name) | more

    def log(self, part: str, name: str, kind: str, text: str, kept: int = KEPT) -> None:
        shown = text if len(text) <= kept else f"{text[: kept // 2]}\n[...]\n{text[-kept // 2 :]}"
        self.write("logs.txt", f"=== {part} {name} {kind}\n{shown}\n")

    def cost(self, name: str, kind: str) -> Result:
        """Measure a training loop in a process of its own, which prints a line a round."""
        command = [sys.executable, "-m", "tests.gpu.race_cost", kind]
        limit = min(self.left, LIMITS["cost"] / (1 if self.count > 1 else len(COSTS)))
        status, out, errors = self.child([*command, str(limit)], limit + 30)
        lines = [one for one in out.splitlines() if one.startswith("{")]
        said = json.loads(lines[-1]) if lines else {"verdict": "failed", "error": errors[-500:]}
        return {"status": status} | said

    def perturb(self, name: str, kind: str) -> Result:
        """Perturb a program: a racy one by two seeds, and by all if it is the same under these."""
        seeds = {"racy": ["2", ""], "right": [""]}.get(kind, [SEEDS])
        found: Result = {}
        for count in seeds:
            options = ["--seeds", count] if count else []
            command = perturb_judged.command(name, kind, *options)
            status, out, errors = self.child(command, min(self.left, LIMITS["perturb"]))
            before = found.get("runs", 0)
            try:
                found = perturb_judged.judged(name, kind, json.loads(out))
            except ValueError:
                self.log("perturb", name, kind, f"{out}\n{errors}")
                return {"verdict": "timed out" if status is None else "failed", "status": status}
            found["runs"] += before
            if found["verdict"] != "not found":
                break
        return found

    def shown(self, name: str, kind: str) -> Result:
        """Write the output that docs/races.md shows, with the names of the program's files."""
        command = [sys.executable, "-m", "cai_bridge", "perturb", "--match", "^RESULT", "--"]
        command += [sys.executable, str(HERE / f"{name}.py"), kind]
        status, out, errors = self.child(command, min(self.left, LIMITS["shown"]))
        if status == 1:
            self.write("perturb.gpu.txt", out.replace(f"{HERE}/", ""))
        else:
            self.log("shown", name, kind, f"{out}\n{errors}")
        return {"verdict": verdict_of(status), "status": status}


def stream_ordered() -> dict[str, str]:
    """Give the variables of `races --stream-ordered`: memcheck sees no other allocations."""
    from cai_bridge._cli.races import _stream_ordered

    return _stream_ordered()


def is_asked(rules: Sequence[str], part: str, name: str, kind: str) -> bool:
    """Whether the command line asks for a program in a part: it names it, or none for the part."""
    parsed = [one.split(":") for one in rules]
    own = [tuple(one[1:]) for one in parsed if len(one) == 3 and one[0] == part]
    own += [(one[0], "*") for one in parsed if len(one) == 1]
    return not own or any(
        fnmatch.fnmatch(name, by_name) and fnmatch.fnmatch(kind, by_kind)
        for by_name, by_kind in own
    )


def listed(asked: argparse.Namespace, part: str, loops: Sequence[str]) -> list[tuple[str, str]]:
    """List the programs of a part, as the command line says."""
    return [one for one in programs(loops) if is_asked(asked.programs, part, *one)]


def a_rule(text: str) -> str:
    """Check the name of a program on the command line."""
    parts = text.split(":")
    if len(parts) not in {1, 3} or (len(parts) == 3 and parts[0] not in PARTS):
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: NAME or PART:NAME:KIND")
    return text


def longest(one: tuple[str, str]) -> tuple[bool, ...]:
    """Sort what takes longest first: where the host is early, naming takes many runs."""
    name, kind = one
    return kind != "ddp", name not in BY_HOST, name != "torch_nccl", kind == "right"


def pooled(tools: Tools, asked: argparse.Namespace) -> None:
    """Run what may run side by side, the longest first."""
    judging: dict[str, Callable[[str, str], Result]] = {
        "shown": tools.shown,
        "races": tools.races,
        "perturb": tools.perturb,
        "csan": tools.csan,
        "memcheck": tools.memcheck,
    }
    with ThreadPoolExecutor(max(1, asked.jobs)) as pool:
        for part in [one for one in PARTS[1:] if one in asked.parts]:
            chosen = listed(asked, part, LOOPS if part == "races" else COSTS)
            if part == "shown":
                chosen = [one for one in chosen if one == ("torch_to_cupy", "racy")]
            for one in sorted(chosen, key=longest):
                pool.submit(tools.job, judging[part], part, *one)


def end(tools: Tools) -> None:
    """End what runs when the time is up, and the command itself a little later."""
    time.sleep(max(0.0, tools.left))
    with tools.lock:
        left = list(tools.running)
    for number in (signal.SIGINT, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, number)
        time.sleep(8)
    print("the time is up", flush=True)
    os._exit(0 if tools.said else 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.race_tools")
    parser.add_argument("--out", type=Path, default=Path("race_tools"), help="a folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at a time")
    parser.add_argument("--seconds", type=float, default=540.0, help="default: 540")
    parser.add_argument("--timeout", type=float, default=90.0, help="of a run of `races`")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument(
        "--programs", nargs="+", default=[], type=a_rule, metavar="NAME", help="default: all"
    )
    asked = parser.parse_args()
    # JAX leaves memory to the others, and Numba warns of every small launch.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    tools = Tools(asked)
    threading.Thread(target=end, args=(tools,), daemon=True).start()
    tools.result(machine())
    if "cost" in asked.parts:
        with ThreadPoolExecutor(tools.count) as pool:
            for kind in COSTS:
                pool.submit(tools.job, tools.cost, "cost", "training", kind)
    pooled(tools, asked)
    print(f"{tools.said} results in {asked.out / 'results.jsonl'}", flush=True)
    sys.exit(0 if tools.said else 1)


if __name__ == "__main__":
    main()
