"""Judging in a child process, so that a library which ends the process costs one requirement.

The child writes a line of JSON before and after each requirement. Where it ends between the two, or
takes too long, that is the verdict, and another child goes on behind it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from .cases import Case
from .children import ended_by, environment
from .judging import judge, text_of
from .lab import open_lab
from .named import consumer_named, producer_named
from .place import judged_on
from .report import Report
from .requirement import Requirement, Role, chosen
from .tracebacks import split_dump
from .verdict import Verdict

LIMIT_S = 120.0
"""How long one requirement may take, imports and the compilation of kernels included."""

_LAST_WORDS_S = 5.0


def check_isolated(
    role: Role,
    subject: str,
    *,
    only: str | Iterable[str] | None = None,
    where: Literal["simulated", "gpu"] | None = None,
    thorough: bool = False,
    limit_s: float = LIMIT_S,
    progress: Callable[[str], object] | None = None,
) -> Report:
    """Judge a library as `check_producer` and `check_consumer` do, in child processes.

    Parameters
    ----------
    role : str
        ``"producer"`` or ``"consumer"``.
    subject : str
        A library that the kit knows, or ``module:factory``.
    only : str or iterable of str, optional
        The names of the requirements to judge; by default all.
    where : str, optional
        As for `open_lab`.
    thorough : bool, optional
        Whether each requirement is judged in every case of its product. A requirement may then take
        ten times as long.
    limit_s : float, optional
        How many seconds one requirement may take.
    progress : callable, optional
        Called with the name of each requirement that is judged next.

    Returns
    -------
    Report
        A requirement that the process did not survive has failed, and the evidence says how.

    Raises
    ------
    ValueError
        The subject cannot be found, or `only` names an unknown requirement.
    """
    left = list(chosen(role, only))
    seen = _Seen()
    cases = "every" if thorough else "pairs"
    limit_s *= 10 if thorough else 1
    command = [sys.executable, "-m", __name__, role, subject, where or "any", cases]
    while left:
        before = len(seen.verdicts)
        ended, trace = _run_child(command, left, seen, limit_s=limit_s, progress=progress)
        if seen.refusal:
            raise ValueError(seen.refusal)
        if seen.current is not None:
            program = seen.current.program(subject, seen.where)
            seen.verdicts.append(_died(seen.current, ended, program, trace))
            seen.current = None
        elif len(seen.verdicts) == before:
            raise RuntimeError(f"{subject}: the child process did not begin: {ended}")
        left = left[len(seen.verdicts) - before :]
    return Report(seen.name or subject, role, seen.place, tuple(seen.verdicts))


@dataclass
class _Seen:
    verdicts: list[Verdict] = field(default_factory=list)
    current: Requirement | None = None
    name: str = ""
    place: str = ""
    where: str = ""
    refusal: str = ""

    def have(self, requirements: dict[str, Requirement]) -> bool:
        """Tell whether each of them has its verdict."""
        return requirements.keys() <= {one.name for one in self.verdicts}

    def take(self, line: dict[str, Any], requirements: dict[str, Requirement]) -> str | None:
        """Take a line in; return the name of a requirement that is judged from here on."""
        match line:
            case {"refusal": text}:
                self.refusal = text
            case {"name": name, "place": place, "where": where}:
                self.name, self.place, self.where = name, place, where
            case {"begin": name}:
                self.current = requirements[name]
                return self.current.name
            case {"requirement": name, "outcome": outcome, "evidence": evidence}:
                more = {key: line[key] for key in _MORE}
                more["cases"] = tuple(Case(**one) for one in line["cases"])
                self.verdicts.append(Verdict(requirements[name], outcome, evidence, **more))
                self.current = None
        return None


_MORE = ("program", "traceback", "missing", "missing_in", "raised")
"""What a verdict has beside its outcome and evidence."""


def _died(requirement: Requirement, how: str, program: str, trace: str) -> Verdict:
    evidence = f"the process ended: {how}"
    # Whatever ends it in the same place has one cause.
    frames = [line for line in trace.splitlines() if line.strip().startswith("File ")]
    raised = "\n".join([how.partition(";")[0], *frames]) if frames else ""
    return Verdict(requirement, "failed", evidence, program, trace, cases=(Case(),), raised=raised)


def _run_child(
    command: list[str],
    left: list[Requirement],
    seen: _Seen,
    *,
    limit_s: float,
    progress: Callable[[str], object] | None,
) -> tuple[str, str]:
    """Judge in one child as long as it lives; return how it ended, and where that was."""
    reading, writing = os.pipe()
    requirements = {one.name: one for one in left}
    with tempfile.TemporaryFile() as said, os.fdopen(reading) as lines:
        child = subprocess.Popen(  # noqa: S603 - this interpreter, and this module
            [*command, str(writing), *requirements],
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment(),
        )
        os.close(writing)
        end = ""
        try:
            for line in _lines_of(lines, limit_s):
                begun = seen.take(json.loads(line), requirements)
                if begun and progress:
                    progress(begun)
                if seen.have(requirements):
                    break
            # A thread may keep what has judged all, and a process that it started the pipe.
            child.wait(_LAST_WORDS_S if seen.have(requirements) else limit_s)
        except TimeoutError as late:
            end = str(late)
            _ask_where(child)
        except subprocess.TimeoutExpired as late:
            end = f"it did not end in {late.timeout:g} s"
            _ask_where(child)
        finally:
            # Also after an interrupt: nothing else would end the child.
            child.kill()
            code = child.wait()
        said.seek(0)
        # It may be of any encoding.
        text, trace = split_dump(said.read().decode(errors="backslashreplace"))
        last = " ".join(text[-400:].split())
    end = end or ended_by(code) or f"exit code {code}"
    return f"{end}; the last that it said: {last}" if last else end, trace


def _ask_where(child: subprocess.Popen[bytes]) -> None:
    """Have a child that hangs write where it is: its `faulthandler` does so at its end."""
    child.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WORDS_S)


def _lines_of(lines: IO[str], limit_s: float) -> Iterator[str]:
    """Read lines until the writer is gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(lines, selectors.EVENT_READ)
        buffered = ""
        while selector.select(limit_s):
            read = os.read(lines.fileno(), 1 << 16).decode()
            if not read:
                return
            buffered += read
            *whole, buffered = buffered.split("\n")
            yield from whole
    raise TimeoutError(f"it took more than {limit_s:g} s")


def _child(arguments: list[str]) -> None:
    """Judge, and write lines to the pipe."""
    role, subject, where, cases, pipe, *names = arguments
    # What ends the process, or hangs, is told with its line.
    faulthandler.enable()
    with os.fdopen(int(pipe), "w") as out:

        def say(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        try:
            adapter = producer_named(subject) if role == "producer" else consumer_named(subject)
        except ValueError as unknown:
            say(refusal=str(unknown))
            return
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # It may do another thing here than where it was looked at first, or leave.
            what = f"{type(error).__name__}: {text_of(error)}"
            say(refusal=f"subject: got {subject!r}, which raised {what}")
            return
        device: Any = None if where == "any" else where
        with open_lab(device) as lab:
            lab.expendable = True
            lab.thorough = cases == "every"
            place = judged_on(role, adapter, lab)
            say(name=adapter.name, place=place.name, where=lab.where)
            for one in chosen("producer" if role == "producer" else "consumer", names):
                say(begin=one.name)
                say(**judge(one, adapter, place).to_dict())


if __name__ == "__main__":
    _child(sys.argv[1:])
