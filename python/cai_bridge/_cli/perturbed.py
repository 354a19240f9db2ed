"""A program, run with its GPU work perturbed by the preloaded library."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cai_bridge._environment import QUEUES

from .exits import UsageError

LIBRARY = Path(__file__).parents[1] / "_perturb.so"
"""The library that is preloaded; `make perturb` builds it."""

PREFIX = "CAI_BRIDGE_PERTURB_"
_ENDING = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU),
)
_DEFAULTS = {1: "legacy", 2: "per-thread"}
"""The handles of the default streams."""
_PATIENCE = 60, 10
"""After so many seconds, and so many times the program's own, a late run is ended, if the user gave
no limit: what makes work late may keep a program waiting for itself."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_COUNTS = ("seen", "late", "gates", "opened", "captured", "host_waits", "failed")


def command_of(words: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the program and its arguments, as the command `name` was given them."""
    write = f"write: cai-bridge {name} [options] --"
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise UsageError(f"got no program; {write} python train.py")
    if words[0].endswith(".py") and not os.access(words[0], os.X_OK):
        raise UsageError(f"{words[0]} is no program; {write} python {shlex.join(words)}")
    return tuple(words)


def check_match(match: str) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(match)
    except re.error as error:
        raise UsageError(f"--match: got {match!r} ({error}); allowed: an expression") from error


def check_timeout(timeout: float | None) -> None:
    """Refuse a time that is no time."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise UsageError(f"--timeout: got {timeout}; allowed: more than 0 seconds")


@dataclass(frozen=True)
class Program:
    """What is run, and what of it is compared."""

    command: tuple[str, ...]
    """The program and its arguments."""
    compare: str = "stdout"
    """``"stdout"`` or ``"checkpoints"``."""
    match: str = ""
    """A regular expression: only lines of stdout that have it are compared."""
    tolerance: float = 0.0
    """How far two numbers may be apart, of the larger one."""
    delay: float = 0.05
    """By how many seconds late work is late."""
    timeout: float | None = None
    """After how many seconds a run is ended."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are set beside those of this process."""


@dataclass(frozen=True)
class Told:
    """What a process told of an operation."""

    stream: int
    """The index of its stream, in the order in which the process first used its streams."""
    stream_name: str
    """The kind of its stream, and the handle: ``"non-blocking stream 0x55..."``."""
    late: bool
    """Whether it was late."""
    function: str
    """The driver's function."""
    kernel: str
    """The kernel, or the function once more."""


@dataclass
class Process:
    """What was written down of one process. Its operations have the numbers of any other's."""

    traced: dict[int, Told]
    """Operations by number, in the order of their launches."""
    stacks: dict[int, list[list[Any]]]
    """Python stacks by operation."""


@dataclass
class Run:
    """What came of a run.

    Attributes
    ----------
    lines : list of str
        What is compared.
    status : int or None
        The exit status; None if it was ended for its time.
    seconds : float
        How long it took.
    counts : dict of str to int
        What the library counted in all processes.
    streams : int
        The most streams that one process used.
    errors : str
        The end of stderr.
    functions : dict of str to int
        How often each hooked function of the driver was called.
    processes : list of Process
        The operations and stacks of each process, if they were asked for.
    looked : list
        What the caller read in the folder.
    """

    lines: list[str]
    status: int | None
    seconds: float
    counts: dict[str, int]
    streams: int
    errors: str
    functions: dict[str, int] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    looked: list[Any] = field(default_factory=list)

    @property
    def operations(self) -> list[int]:
        """The numbers of all operations, by process in the order of their launches."""
        return list(dict.fromkeys(one for process in self.processes for one in process.traced))

    def told(self, operation: int) -> set[Told]:
        """Find what the processes tell of an operation."""
        return {one.traced[operation] for one in self.processes if operation in one.traced}


def run(program: Program, mode: str, **asked: object) -> Run:
    """Run the program once.

    Parameters
    ----------
    program : Program
        What to run.
    mode : str
        ``"serial"``, ``"late"``, or ``"off"``: by itself, without the library.
    **asked : object
        What the library reads of the environment, such as ``seed=3``.

    Raises
    ------
    UsageError
        It cannot be started.
    """
    return run_and_look(program, mode, asked, lambda _: [])


def run_and_look(
    program: Program,
    mode: str,
    asked: dict[str, object],
    look: Callable[[Path], list[Any]],
    *,
    started: Callable[[int], None] = lambda _: None,
) -> Run:
    """Run the program once, and read what is asked for in the folder of the run's files.

    Parameters
    ----------
    program : Program
        What to run.
    mode : str
        As :func:`run` takes it, or ``"record"``.
    asked : dict of str to object
        What the library reads of the environment.
    look : callable
        Reads what it needs, before the files are removed.
    started : callable
        Is told the number of the program's process, and of its session.
    """
    with _Ends() as ends, tempfile.TemporaryDirectory(prefix="cai-bridge-perturb-") as name:
        folder = Path(name)
        out, err = folder / "stdout", folder / "stderr"
        began = time.monotonic()
        with out.open("wb") as to, err.open("wb") as errors:
            try:
                child = subprocess.Popen(  # noqa: S603  (what the user asked for)
                    program.command,
                    stdout=to,
                    stderr=errors,
                    stdin=subprocess.DEVNULL,
                    env=_environment(program, folder, mode, asked),
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"{program.command[0]}: {error.strerror or error}") from error
            started(child.pid)
            status = ends.wait(child, program.timeout, folder)
        seconds = time.monotonic() - began
        logs = [one for path in folder.glob("*.counts") if (one := _log(path.read_bytes()))]
        return Run(
            lines=_compared(program, folder),
            status=status,
            seconds=seconds,
            counts={name: sum(one[name] for one in logs) for name in _COUNTS},
            streams=max((one["streams"] for one in logs), default=0),
            functions=_called([one["functions"] for one in logs]),
            errors=err.read_text(errors="replace")[-2000:],
            processes=[
                Process(_traced(path), _stacks(path.with_suffix(".stacks")))
                for path in sorted(folder.glob("*.trace"))
            ],
            looked=look(folder),
        )


def limit(program: Program, reference: Run) -> float:
    """Tell for how long a late run may take, beside what its delays take."""
    least, times = _PATIENCE
    return program.timeout or least + times * reference.seconds


def _environment(
    program: Program, folder: Path, mode: str, asked: dict[str, object]
) -> dict[str, str]:
    if mode == "off":
        return {**os.environ, **program.environment}
    if not LIBRARY.exists():
        raise UsageError(f"{LIBRARY}: got no file; allowed: the library, built by `make perturb`")
    library = LIBRARY
    if set(" :") & set(str(LIBRARY)):  # either ends a name in LD_PRELOAD
        library = folder / LIBRARY.name
        library.symlink_to(LIBRARY)
    preloaded = os.environ.get("LD_PRELOAD")
    said = {"mode": mode, "log": folder, "delay_us": round(program.delay * 1e6), **asked}
    if program.tolerance:
        said["values"] = 1
    if program.compare == "checkpoints":
        said["checkpoints"] = 1
    defaults = {"PYTHONHASHSEED": "0"}
    if mode == "record" or "compared" in asked:
        # XLA takes memory as it needs it: of most of the GPU in one piece nothing can be put back.
        defaults["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return {
        # Streams that share a queue of the device hide what the one lacks of the other.
        **QUEUES,
        **defaults,
        **os.environ,
        **program.environment,
        "LD_PRELOAD": f"{library}:{preloaded}" if preloaded else str(library),
        **{PREFIX + name.upper(): str(value) for name, value in said.items()},
    }


class _Ends:
    """Puts the signals that end the command off until its program has ended, which they end.

    The program has a session of its own, so that no signal of the terminal reaches it. Nothing is
    raised meanwhile: no signal, nor a second one, comes between the program's start and its end.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before: dict[int, Any] = {}
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                # One that is ignored, as by nohup, stays so; one that C handles is not ours.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._came:
            signal.raise_signal(self._came[0])

    def _take(self, number: int, _: object) -> None:
        self._came.append(number)
        self._end()

    def _end(self) -> None:
        """End the program, and those that it started, which would go on."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def wait(
        self, child: subprocess.Popen[bytes], timeout: float | None, folder: Path
    ) -> int | None:
        """Wait for the program, and end what it started; None if it was ended for its time.

        Of what has a session of its own, as torchrun's workers have, nobody is left to end it if
        the program was ended before it did so.
        """
        self._child = child
        if self._came:
            self._end()
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(timeout)
        self._end()
        child.wait()
        self._child = None
        if status is None or self._came:
            _end_all(f"{PREFIX}LOG={folder}".encode())
        return status


def _end_all(said: bytes) -> None:
    """End all processes that have this in their environment, with those they start meanwhile."""
    for _ in range(10):
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            # The process has ended meanwhile, or is another user's.
            with contextlib.suppress(OSError):
                if said in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    found = True
        if not found:
            return


def _called(logs: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(one[name] for one in logs) for name in logs[0]} if logs else {}


def _log(text: bytes) -> dict[str, Any] | None:
    """Read the counts of a process; None if it was killed before it counted anything."""
    line, _, rest = text.partition(b"\n")
    if not rest:
        return None
    head = json.loads(line)
    names, functions = head["counts"], head["functions"]
    form = f"={len(names) + len(functions)}Q"
    if len(text) < head["at"] + struct.calcsize(form):
        return None
    words = struct.unpack_from(form, text, head["at"])
    called = dict(zip(functions, words[len(names) :], strict=True))
    return dict(zip(names, words, strict=False)) | {"functions": called}


def _compared(program: Program, folder: Path) -> list[str]:
    if program.compare == "stdout":
        text = (folder / "stdout").read_text(errors="surrogateescape")
        return [one for one in text.splitlines() if re.search(program.match, one)]
    found = []
    for path in folder.glob("*.checkpoints"):
        found += [one for one in path.read_text().splitlines() if re.search(program.match, one)]
    # Processes have other numbers in each run: what they say is put in order by itself.
    return sorted(found) if len(list(folder.glob("*.checkpoints"))) > 1 else found


def _traced(path: Path) -> dict[int, Told]:
    traced = {}
    for one in path.read_text(errors="replace").splitlines():
        number, stream, handle, blocking, late, function, kernel = one.split("\t")
        name = _stream_name(int(handle), blocking == "1")
        traced[int(number)] = Told(int(stream), name, late == "1", function, kernel)
    return traced


def _stream_name(handle: int, blocking: bool) -> str:
    if handle in _DEFAULTS:
        return f"the {_DEFAULTS[handle]} default stream"
    return f"{'blocking' if blocking else 'non-blocking'} stream {handle:#x}"


def _stacks(path: Path) -> dict[int, list[list[Any]]]:
    stacks = {}
    for one in path.read_text(errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):  # a line that a killed process did not end
            number, frames = json.loads(one)
            stacks[number] = frames
    return stacks


def difference(one: Run, other: Run, tolerance: float) -> str | None:
    """Say in what two runs differ; None if they are the same."""
    if one.status != other.status:
        end = " ".join(other.errors.split())[-500:]
        return f"its end, {end_of(other)} against {end_of(one)}: {end or 'nothing on stderr'}"
    for place, (first, second) in enumerate(zip(one.lines, other.lines, strict=False), 1):
        if not same(first, second, tolerance):
            return f"line {place}: {_around(second, first)} against {_around(first, second)}"
    if len(one.lines) != len(other.lines):
        return f"{len(other.lines)} lines against {len(one.lines)}"
    return None


def _around(line: str, other: str) -> str:
    """Show a line where it begins to differ from another one."""
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(line, other, strict=False))
    at = max(0, sum(1 for _ in alike) - 100)
    return f"{'...' if at else ''}{line[at : at + 200]!r}"


def end_of(run: Run) -> str:
    """Say how a run ended."""
    from cai_bridge.conformance.children import ended_by

    if run.status is None:
        return "ended for its time"
    if run.status < 0:
        return f"killed by {ended_by(run.status) or f'signal {-run.status}'}"
    return f"exit status {run.status}"


def same(first: str, second: str, tolerance: float) -> bool:
    """Compare two lines: the text between numbers exactly, numbers within the tolerance."""
    if first == second:
        return True
    if not tolerance or _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(
        a == b or abs(float(a) - float(b)) <= tolerance * max(abs(float(a)), abs(float(b)))
        for a, b in pairs
    )
