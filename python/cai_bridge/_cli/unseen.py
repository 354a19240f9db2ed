"""Why no work of a program was seen."""

from __future__ import annotations

import contextlib
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from . import perturbed
from .perturbed import Program, Run

_EVERY = 0.01
"""After so many seconds the processes are looked at again."""
_INTERPRETER = 3
"""The kind of a program header that names the loader (`PT_INTERP`)."""


def why(run: Run, program: Program) -> str:
    """Say why a run saw no work. It may run the program again, to look at its processes."""
    from cai_bridge.conformance.lab import cuda

    if any(run.functions.values()):
        return "the program called the CUDA driver, and queued no work"
    if reason := cuda.why_no_gpu():
        return f"there is no GPU to use here ({reason}); `cai-bridge doctor` looks at the driver"
    first = shutil.which(program.command[0])
    if first and is_static(Path(first)):
        return f"{first} is linked statically, so that no library can be loaded before it"
    for path, is_bare in _processes(program).items():
        if is_static(path):
            return (
                f"the program starts {path}, which is linked statically, so that no library can be "
                "loaded before it"
            )
        if is_bare:
            return (
                f"{path} ran without LD_PRELOAD, which was removed from its environment (as env -i "
                "or sudo do): pass the environment on"
            )
    return "the program did not call the CUDA driver"


def is_static(path: Path) -> bool:
    """Whether a file is a program without a loader, which would load libraries before it."""
    with contextlib.suppress(OSError, struct.error), path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return False
        (at,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(at)
        headers = file.read(size * count)
        kinds = {struct.unpack_from("<I", headers, size * one)[0] for one in range(count)}
        return _INTERPRETER not in kinds
    return False


def _processes(program: Program) -> dict[Path, bool]:
    """Run the program, and list what it executes, and whether each ran without the library."""
    seen: dict[Path, int] = {}
    ended = threading.Event()

    def watch(session: int) -> None:
        while not ended.is_set():
            for process in _of_session(session):
                # The process has ended meanwhile, or is another user's.
                with contextlib.suppress(OSError):
                    said = (process / "environ").read_bytes().split(b"\0")
                    path = (process / "exe").readlink()
                    preloaded = [one for one in said if one.startswith(b"LD_PRELOAD=")]
                    is_bare = not any(perturbed.LIBRARY.name.encode() in one for one in preloaded)
                    seen[path] = seen.get(path, 0) + is_bare
            time.sleep(_EVERY)

    def started(session: int) -> None:
        threading.Thread(target=watch, args=(session,), daemon=True).start()

    try:
        perturbed.run_and_look(program, "record", {}, lambda _: [], started=started)
    finally:
        ended.set()
    # A process that has just begun has no environment yet.
    return {path: count > 1 for path, count in seen.items()}


def _of_session(session: int) -> Iterator[Path]:
    """List the processes of a session."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may have spaces. Behind it: state, parent, group, session.
            behind = (process / "stat").read_text().rpartition(")")[2].split()
            if int(behind[3]) == session:
                yield process
