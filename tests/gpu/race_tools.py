"""`python -m tests.gpu.race_tools`: what finds the races of `perturb_programs`, tool by tool.

    python -m tests.gpu.race_tools --out FOLDER [--jobs N] [--seconds S] [--parts NAME ...]
        [--programs NAME ...]

Run from the checkout, with `cai_bridge` importable. The tools are `cai-bridge races` and
`cai-bridge perturb`, PyTorch's CSAN, and memcheck of compute-sanitizer with its check for
stream-ordered races. Each runs over each racy program and its right twin. The training loops run
too. The parts:

- `cost` measures how much longer two training loops take under `races`. Nothing runs beside it.
- `perturb` is tests/gpu/test_perturb.py in 16 processes, which also names the two operations.
- `shown` writes the output of `perturb` that docs/races.md shows.
- `races`, `csan` and `memcheck` are these tools.
- `racecheck` is this check of compute-sanitizer over three programs. It looks at shared memory.

The folder gets these files:

- results.jsonl has a line for each result, written at once. `python docs/generate.py races FILE`
  reads it.
- accusations.txt has both stacks of each pair that is proven in a right program.
- races.jsonl has what `races` said, and logs.txt what the other tools printed.
- perturb.gpu.txt is for docs/programs. pytest.txt and pytest.xml are of `perturb`.

After `--seconds` the command ends what runs. Exits with 0 if a result was written.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from . import races_run
from .races_run import BY_HOST, HERE, LOOPS, SIDES, programs

ROOT = Path(__file__).parents[2]
PARTS = "cost", "perturb", "shown", "races", "csan", "memcheck", "racecheck"
PROCESSES = 16
"""So many processes run the tests of `perturb`; with twice as many cores the rest runs beside."""
LIMITS = {"cost": 110.0, "perturb": 230.0, "shown": 150.0, "csan": 60.0, "memcheck": 150.0}
"""How many seconds a part, or one program of it, may take."""
RACECHECKED = "torch_side_stream", "cupy_graph", "torch_nccl"
COSTS = "plain", "prefetch"
ROUNDS = 3
KEPT = 4000
"""So many characters of a tool's output are kept."""
SUSPECTS = 20
"""So many suspects of a program are kept: a training loop has hundreds, with long stacks."""
FOLDERS = "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin"
PACKAGES = (
    *("torch", "cupy-cuda13x", "cupy-cuda12x", "jax", "jaxlib", "numba", "numba-cuda", "triton"),
    *("warp-lang", "numpy", "nvidia-nccl-cu13", "nvidia-nccl-cu12"),
)
Result = dict[str, Any]


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


def marks(text: str) -> list[str]:
    """List the marked lines that a text shows."""
    return [one for one in SIDES if one in text]


class Tools(races_run.All):
    """The parts that run, and what came of those that have ended."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__(asked)
        self.out: Path = asked.out
        self.slots = threading.local()
        self.count = max(1, len(gpus()))
        self.next = 0
        self.said = 0
        self.stream_ordered = stream_ordered()

    @property
    def beside(self) -> bool:
        """Whether there are cores for the tests of `perturb` and for the rest."""
        return self.asked.jobs >= 2 * PROCESSES

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
        print(f"{time.strftime('%H:%M:%S')}", *(what[one] for one in keys if what.get(one)))
        sys.stdout.flush()

    def say(self, what: dict[str, Any], *, expected: bool) -> None:
        """Write what came of a program under `races`."""
        named, certain = what.get("named", []), what.get("certain", 0)
        if "error" in what:
            verdict = "failed"
        elif what["kind"] == "racy":
            found = {"proven", "race"} & set(named)
            verdict = "named" if found else "found" if certain else "not found"
        else:
            verdict = "accused" if certain else "quiet"
        if what.get("status") == 2:
            verdict = "failed"
        self.result({"part": "races", "verdict": verdict, "expected": expected} | what)

    def found(self, name: str, kind: str, what: dict[str, Any]) -> None:
        """Keep what `races` said, and what it said of right programs for a reader."""
        certain = [one for one in what["pairs"] if one["verdict"] != "suspect"]
        pairs = [*certain, *(one for one in what["pairs"] if one["verdict"] == "suspect")]
        whole = {"program": name, "kind": kind, **what, "pairs": pairs[: len(certain) + SUSPECTS]}
        self.write("races.jsonl", f"{json.dumps(whole)}\n")
        if kind == "racy":
            certain = [one for one in certain if not races_run.is_right(one)]
        for pair in certain:
            self.write("accusations.txt", f"=== {name} {kind}\n{accusation(pair)}\n")

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
        self.result(said | found | {"seconds": round(time.monotonic() - began, 1)})

    def races(self, name: str, kind: str) -> None:
        self.slots.more, self.slots.all_gpus = {}, kind == "ddp"
        self.run(name, kind)

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

    def sanitizer(self, tool: str, *options: str) -> Callable[[str, str], Result]:
        def memcheck(name: str, kind: str) -> Result:
            found = compute_sanitizer()
            if not found:
                return {"verdict": "failed", "error": "no compute-sanitizer"}
            self.slots.more = self.stream_ordered
            command = [found, "--tool", tool, *options, "--target-processes", "all"]
            command += ["--print-limit", "20", sys.executable, str(HERE / f"{name}.py"), kind]
            status, out, errors = self.child(command, min(self.left, LIMITS["memcheck"]))
            text = f"{out}\n{errors}"
            self.log(tool, name, kind, text)
            count, messages = sanitizer_errors(text)
            # A program that it breaks has no result; without a summary nothing was checked.
            ended = status if count is not None or status is None else status or 1
            more = {"status": status, "messages": messages.most_common(5), "result": result(out)}
            return judged(ended, kind, count or 0, marks(text), name) | more

        return memcheck

    def log(self, part: str, name: str, kind: str, text: str) -> None:
        shown = text if len(text) <= KEPT else f"{text[: KEPT // 2]}\n[...]\n{text[-KEPT // 2 :]}"
        self.write("logs.txt", f"=== {part} {name} {kind}\n{shown}\n")

    def cost(self, kind: str) -> None:
        """Measure a training loop in a process of its own, which prints a line a round."""
        command = [sys.executable, "-m", "tests.gpu.race_tools", "--cost", kind]
        limit = min(self.left, LIMITS["cost"] / (1 if self.count > 1 else len(COSTS)))
        status, out, errors = self.child([*command, "--seconds", str(limit)], limit + 30)
        lines = [one for one in out.splitlines() if one.startswith("{")]
        said = json.loads(lines[-1]) if lines else {"verdict": "failed", "error": errors[-500:]}
        self.result({"part": "cost", "program": "training", "kind": kind, "status": status} | said)

    def perturb(self) -> None:
        """Run the tests of `perturb`, which write a line for each program themselves."""
        to = str(self.out / "results.jsonl")
        self.slots.more, self.slots.all_gpus = {"PERTURB_TO": to}, True
        if self.count > 1:
            self.slots.more["SPREAD_OVER_GPUS"] = str(self.count)
        processes = str(min(PROCESSES, self.asked.jobs))
        command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:benchmark"]
        command += ["-p", "no:cacheprovider", "-m", "not alone", "-n", processes]
        command += ["--dist", "worksteal", f"--junitxml={self.out / 'pytest.xml'}"]
        command += ["--durations=0", "tests/gpu/test_perturb.py"]
        if self.asked.programs:
            command += ["-k", " or ".join(self.asked.programs)]
        began = time.monotonic()
        # Beside the rest nothing waits for it.
        limit = self.left - 30 if self.beside else LIMITS["perturb"]
        status, out, errors = self.child(command, min(self.left, limit))
        self.write("pytest.txt", f"{out}\n{errors}\n")
        seconds = round(time.monotonic() - began, 1)
        outcomes = Counter(re.findall(r"^\[gw\d+\].* (PASSED|FAILED|SKIPPED|ERROR) ", out, re.M))
        counts = {name.lower(): count for name, count in outcomes.items()}
        verdict = "ended for its time" if status is None else f"exit status {status}"
        self.result({"part": "pytest", "verdict": verdict, "seconds": seconds} | counts)

    def shown(self, name: str, kind: str) -> Result:
        """Write the output that docs/races.md shows, with the names of the program's files."""
        command = [sys.executable, "-m", "cai_bridge", "perturb", "--match", "^RESULT", "--"]
        command += [sys.executable, str(HERE / f"{name}.py"), kind]
        status, out, errors = self.child(command, min(self.left, LIMITS["shown"]))
        if status == 1:
            self.write("perturb.gpu.txt", out.replace(f"{HERE}/", ""))
        else:
            self.log("shown", name, kind, f"{out}\n{errors}")
        return {"verdict": {1: "found", 0: "not found"}.get(status or 0, "failed")}


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


def accusation(pair: dict[str, Any]) -> str:
    """Write a pair with whole stacks."""
    parts = [f"{pair['verdict']}, {pair['count']} times, {pair['low']:#x} to {pair['high']:#x}"]
    for side in (pair["first"], pair["second"]):
        parts.append(
            f"  {side['function']} {side['kernel']} #{side['operation']} on {side['stream']}, "
            f"{side['how']} {side['why']}"
        )
        parts += [f"    with {one}" for one in side["kernels"]]
        parts += [f"    {frame[0]}:{frame[1]} in {frame[2]}: {frame[3]}" for frame in side["stack"]]
        parts += [f"    captured at {one}" for one in side["nodes"]]
    return "\n".join([*parts, f"  {pair['advice']}", ""])


def stream_ordered() -> dict[str, str]:
    """Give the variables of `races --stream-ordered`: memcheck sees no other allocations."""
    from cai_bridge._cli.races import _stream_ordered

    return _stream_ordered()


def measure(kind: str, seconds: float) -> None:
    """Print how much longer a training loop takes in each run of `races`, after each round."""
    from cai_bridge._cli import finding, perturbed, recorded
    from cai_bridge._cli.perturbed import Program, Run

    ends = time.monotonic() + seconds
    program = Program((sys.executable, str(HERE / "training.py"), kind), timeout=60)
    inner: dict[str, list[float]] = {"own": [], "first": [], "second": []}
    whole: dict[str, list[float]] = {"own": [], "first": [], "second": []}

    def keep(name: str, run: Run) -> None:
        whole[name].append(run.seconds)
        times = [float(one.split()[1]) for one in run.lines if one.startswith("TIME")]
        inner[name] += times[:1]

    perturbed.run(program, "off")  # files are read for the first time
    forced = False
    for _ in range(ROUNDS):
        keep("own", perturbed.run(program, "off"))
        runs = finding.find(program, lambda _: None).runs
        keep("first", runs[0])
        if len(runs) > 1:
            keep("second", runs[-1])
        else:  # no launch has to be looked at
            forced = True
            keep("second", recorded.run(program, compared=[]))
        said = {
            name: {key: round(statistics.median(one), 4) for key, one in found.items() if one}
            for name, found in (("loop", inner), ("process", whole))
        }
        factors = {
            f"{name} x": {
                key: round(one / found["own"], 3) for key, one in found.items() if found.get("own")
            }
            for name, found in said.items()
        }
        rounds = len(whole["own"])
        verdict = ", ".join(f"{key} x {one:.2f}" for key, one in factors["loop x"].items())
        told = {"verdict": verdict, "rounds": rounds, "nothing looked at": forced}
        print(json.dumps(told | said | factors), flush=True)
        if time.monotonic() + 1.2 * sum(one[-1] for one in whole.values()) > ends:
            return


def listed(asked: argparse.Namespace, loops: Sequence[str]) -> list[tuple[str, str]]:
    return [one for one in programs(loops) if not asked.programs or one[0] in asked.programs]


def pooled(tools: Tools, asked: argparse.Namespace) -> None:
    """Run what may run side by side, the longest first."""
    every, few = listed(asked, LOOPS), listed(asked, COSTS)
    memcheck = tools.sanitizer(
        *("memcheck", "--track-stream-ordered-races", "all", "--report-api-errors", "no")
    )
    racecheck = tools.sanitizer("racecheck")
    chosen = {
        "shown": (tools.shown, [one for one in few if one == ("torch_to_cupy", "racy")]),
        "csan": (tools.csan, few),
        "memcheck": (memcheck, few),
        "racecheck": (
            racecheck,
            [one for one in few if one[0] in RACECHECKED and one[1] == "racy"],
        ),
    }
    jobs: dict[str, list[Callable[[], None]]] = {
        part: [partial(tools.job, tool, part, *one) for one in some]
        for part, (tool, some) in chosen.items()
    }
    jobs["races"] = [
        partial(tools.races, *one) for one in sorted(every, key=lambda one: one[0] != "training")
    ]
    order = [
        one for one in ("shown", "races", "csan", "memcheck", "racecheck") if one in asked.parts
    ]
    beside = tools.beside and "perturb" in asked.parts
    with ThreadPoolExecutor(max(1, asked.jobs - (PROCESSES if beside else 0))) as pool:
        for part in order:
            for job in jobs[part]:
                pool.submit(job)


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
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--programs", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--cost", choices=COSTS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    # JAX leaves memory to the others, and Numba warns of every small launch.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if asked.cost:
        measure(asked.cost, asked.seconds)
        return
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    # What races_run asks of its own command line.
    asked.limit, asked.timeout, asked.to = asked.seconds, 90.0, None
    asked.confirm = asked.host = False
    os.chdir(ROOT)
    tools = Tools(asked)
    threading.Thread(target=end, args=(tools,), daemon=True).start()
    tools.result(machine())
    if "cost" in asked.parts:
        with ThreadPoolExecutor(tools.count) as pool:
            for kind in COSTS:
                pool.submit(guarded, tools.cost, kind)
    perturb = threading.Thread(target=guarded, args=(tools.perturb,))
    if "perturb" in asked.parts:
        perturb.start()
        if not tools.beside:
            perturb.join()
    pooled(tools, asked)
    if perturb.ident is not None:
        perturb.join()
    print(f"{tools.said} results in {asked.out / 'results.jsonl'}", flush=True)
    sys.exit(0 if tools.said else 1)


def guarded(what: Callable[..., None], *arguments: str) -> None:
    """Print what a part raises, and go on."""
    try:
        what(*arguments)
    except Exception as error:
        print(f"{getattr(what, '__name__', what)}: {error!r}", flush=True)


if __name__ == "__main__":
    main()
