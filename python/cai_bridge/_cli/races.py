"""``cai-bridge races``: which two GPU operations of a program nothing orders, by one run or two."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import finding, output, perturbed, showing, unseen
from .exits import FAILED, OK, USAGE
from .perturbed import Program, Run
from .progress import Progress
from .races_pair import Pair
from .text import escaped, line


@dataclass
class Verdict:
    """What came of the runs.

    Attributes
    ----------
    status : int
        0 no race was proven, 1 one was, 2 could not judge.
    conclusion : str
        The same in words.
    pairs : list of Pair
        What was found: proven ones first.
    seen : dict of str to int
        What the first run had: calls, operations, addresses, and what was not seen.
    seconds : list of float
        How long each run took.
    functions : dict of str to int
        How often the first run called each function of the driver.
    """

    status: int
    conclusion: str
    pairs: list[Pair] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)

    @property
    def certain(self) -> list[Pair]:
        """The pairs that are races for certain."""
        return [one for one in self.pairs if one.verdict != "suspect"]

    @property
    def suspects(self) -> list[Pair]:
        return [one for one in self.pairs if one.verdict == "suspect"]

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        return {
            "status": self.status,
            "conclusion": self.conclusion,
            "seen": self.seen,
            "functions": self.functions,
            "seconds": [round(one, 3) for one in self.seconds],
            "pairs": [one.to_dict() for one in self.pairs],
        }


def judge(
    program: Program,
    step: Callable[[str, int], None],
    *,
    match: str = "",
    confirm: bool = False,
    host: bool = False,
) -> Verdict:
    """Run the program once, recorded; and once more if bytes have to be compared.

    Parameters
    ----------
    program : Program
        What to run.
    step : callable
        Is told what is run next, and of how many runs.
    match : str
        A regular expression: only pairs with a line that has it are looked at.
    confirm : bool
        Whether each pair is run the other way round, to show it in what the program prints.
    host : bool
        Whether the host's own accesses to page-locked memory are looked at.
    """
    findings = finding.find(program, lambda label: step(label, 2), match=match, host=host)
    first, pairs = findings.runs[0], findings.pairs
    seconds = [one.seconds for one in findings.runs]
    if reason := _unjudged(first, program):
        return Verdict(USAGE, reason, seconds=seconds)
    functions = {name: count for name, count in first.functions.items() if count}
    verdict = Verdict(OK, "", pairs, findings.seen(), seconds, functions)
    reason = ""
    if confirm and verdict.suspects:
        total = len(seconds) + 2 + min(showing.MOST, len(verdict.suspects))
        reason = showing.show(program, pairs, lambda label: step(label, total))
    _conclude(verdict, first, host=host)
    verdict.conclusion += f"; {reason}" if reason else ""
    return verdict


def _unjudged(run: Run, program: Program) -> str:
    """Say why nothing can be said of a run."""
    if run.status is None:
        return "the program was ended for its time: raise --timeout"
    if not run.counts["seen"]:
        end = f"; it ended with {perturbed.end_of(run)}" if run.status else ""
        return f"0 operations seen: {unseen.why(run, program)}{end}"
    if not run.looked or not any(one.get("calls") for one in run.looked):
        return "no record was written: the program ended in a way that runs no handlers"
    return ""


_UNSEEN = {
    "orders": "waits for what is not known",
    "fog": "operations behind one",
    "without": "launches without a known address",
    "graphs": "launches of graphs that could not be read",
    "varying": "launches that differ from themselves",
    "lost": "operations that took longer than a second",
}


def _conclude(verdict: Verdict, first: Run, *, host: bool) -> None:
    seen = verdict.seen
    certain, suspects = len(verdict.certain), len(verdict.suspects)
    what = f"{certain} race{'s' if certain != 1 else ''}" if certain else "no race proven"
    if suspects:
        what += f", {suspects} suspect{'s' if suspects != 1 else ''}"
    missed = [f"{seen[name]} {text}" for name, text in _UNSEEN.items() if seen[name]]
    if not host:
        missed.append("what the host reads and writes by itself")
    verdict.status = FAILED if certain else OK
    verdict.conclusion = (
        f"{what}; {seen['operations']} operations with {seen['addresses']} addresses seen; "
        f"not seen: {', '.join(missed) or 'nothing that is known of'}"
    )
    if first.status:
        verdict.conclusion += f"; the program ended with {perturbed.end_of(first)}"


def run(
    command: Sequence[str],
    *,
    match: str,
    suspects: bool,
    confirm: bool,
    host: bool,
    stream_ordered: bool,
    timeout: float | None,
    as_json: bool,
    path: str | None,
) -> int:
    """Judge a program, print what came of it, and return the exit status."""
    output.check_asked(path)
    words = perturbed.command_of(command, "races")
    perturbed.check_match(match)
    perturbed.check_timeout(timeout)
    program = Program(
        words, timeout=timeout, environment=_stream_ordered() if stream_ordered else {}
    )
    with Progress(None) as progress:
        done = -1

        def step(name: str, total: int) -> None:
            nonlocal done
            done += 1
            progress.done(done, total, name)

        verdict = judge(program, step, match=match, confirm=confirm, host=host)
    if as_json:
        text = output.as_json(verdict.to_dict(), to_file=path is not None)
    else:
        text = shown(verdict, suspects=suspects)
    output.give(text, path)
    return verdict.status


def _stream_ordered() -> dict[str, str]:
    """Give the variables that have PyTorch, JAX and CuPy take memory in the order of streams."""
    torch = (
        "PYTORCH_ALLOC_CONF" if "PYTORCH_ALLOC_CONF" in os.environ else "PYTORCH_CUDA_ALLOC_CONF"
    )

    def beside(name: str, *, own: str, by: str, first: bool = False) -> str:
        parts = [os.environ[name]] if os.environ.get(name) else []
        return by.join([own, *parts] if first else [*parts, own])

    folder = str(Path(__file__).parent / "stream_ordered")
    return {
        torch: beside(torch, own="backend:cudaMallocAsync", by=","),
        "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
        "PYTHONPATH": beside("PYTHONPATH", own=folder, by=os.pathsep, first=True),
    }


def shown(verdict: Verdict, *, suspects: bool) -> str:
    """Lay the pairs out, with the conclusion below."""
    told = verdict.pairs if suspects else verdict.certain
    hidden = len(verdict.pairs) - len(told)
    parts = [escaped(str(one)) for one in told]
    more = "; --suspects lists those that are not certain" if hidden else ""
    return "\n\n".join([*parts, line(verdict.conclusion + more)])
