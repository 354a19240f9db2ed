"""Judges in a child process, so that a library that crashes costs only one requirement.

The child writes a line of JSON before and after each requirement. If it crashes or takes too long
between the two, the requirement has failed, and another child continues with the next.
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
        The lab's kind, as for `open_lab`.
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
        If the process crashed in a requirement, that requirement has failed, and its evidence says
        how.

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
        """Return whether each of `requirements` has its verdict."""
        return requirements.keys() <= {one.name for one in self.verdicts}

    def take(self, line: dict[str, Any], requirements: dict[str, Requirement]) -> str | None:
        """Take a line in; return the name of the requirement that the child judges next, if any."""
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
    # Two crashes in the same place have one cause.
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
    """Judge in one child until it ends; return how it ended, and where."""
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
            # A thread may keep a child alive that has judged everything, and a process that the
            # child started may keep the pipe open.
            child.wait(_LAST_WORDS_S if seen.have(requirements) else limit_s)
        except TimeoutError as late:
            end = str(late)
            _ask_where(child)
        except subprocess.TimeoutExpired as late:
            end = f"it did not end in {late.timeout:g} s"
            _ask_where(child)
        finally:
            # Also after an interrupt, since nothing else would end the child.
            child.kill()
            code = child.wait()
        said.seek(0)
        # The output may have any encoding.
        text, trace = split_dump(said.read().decode(errors="backslashreplace"))
        last = " ".join(text[-400:].split())
    end = end or ended_by(code) or f"exit code {code}"
    return f"{end}; the last that it said: {last}" if last else end, trace


def _ask_where(child: subprocess.Popen[bytes]) -> None:
    """Make a hanging child dump its stacks: its `faulthandler` does so when it is aborted."""
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
    """Judge, and write the results to the pipe."""
    role, subject, where, cases, pipe, *names = arguments
    # `faulthandler` shows where the process crashes or hangs.
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
            # The subject may behave differently here than in the parent, or exit.
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
