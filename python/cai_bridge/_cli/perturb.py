"""``cai-bridge perturb``: whether a program's values hold when unordered GPU work runs late."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import naming, output, perturbed, unseen
from .exits import FAILED, OK, USAGE, UsageError
from .perturb_race import Race
from .perturbed import Program, Run
from .progress import Progress
from .schedule import Schedule, begun, chosen
from .text import escaped, line


@dataclass
class Row:
    """A run, as it is shown.

    Attributes
    ----------
    name : str
        ``"serial"``, or what is late.
    verdict : str
        ``"reference"``, ``"same"``, ``"differs"``, ``"hangs"`` or ``"timed out"``.
    what : str
        In what it differs.
    run : Run
        What came of it.
    schedule : Schedule or None
        What was late; None in a serial run.
    """

    name: str
    verdict: str
    what: str
    run: Run
    schedule: Schedule | None = None


@dataclass
class Verdict:
    """What came of all runs.

    Attributes
    ----------
    rows : list of Row
        The runs, in order.
    status : int
        0 same, 1 differs, 2 could not judge.
    conclusion : str
        The same in words.
    schedules : list of Schedule
        What was late in the runs that differ.
    race : Race or None
        The two operations that nothing orders, if they were named.
    """

    rows: list[Row]
    status: int
    conclusion: str
    schedules: list[Schedule] = field(default_factory=list)
    race: Race | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        rows = [
            {
                "run": one.name,
                "verdict": one.verdict,
                "difference": one.what,
                "seconds": round(one.run.seconds, 3),
                "exit_status": one.run.status,
                "streams": one.run.streams,
                **one.run.counts,
            }
            for one in self.rows
        ]
        race = self.race and self.race.to_dict()
        return {"status": self.status, "conclusion": self.conclusion, "race": race, "runs": rows}


def judge(
    program: Program,
    seeds: int | None,
    step: Callable[[str, int], None],
    *,
    thorough: bool = False,
) -> Verdict:
    """Run the program serially twice, then with some of its work late.

    Parameters
    ----------
    program : Program
        What to run.
    seeds : int or None
        How many seeds; None: as many as the streams need, and then each stream alone.
    step : callable
        Is told what is run next, and of how many runs.
    thorough : bool
        Whether a program that is the same is also run with each stream late from the middle of its
        work on.
    """
    rows: list[Row] = []
    count = 2 + (seeds or 2)
    for name in ("serial", "serial again"):
        step(name, count)
        rows.append(Row(name, "reference", "", perturbed.run(program, "serial")))
        if reason := _unjudged(rows[-1].run, rows[0].run, program):
            rows[-1].verdict, rows[-1].what = "cannot be judged", reason
            return Verdict(rows, USAGE, reason)

    def run_all(schedules: Sequence[Schedule]) -> None:
        total = len(rows) + len(schedules)
        for one in schedules:
            step(str(one), total)
            rows.append(_row(one, rows, program))

    run_all(chosen(rows[0].run.streams, seeds))
    if thorough and all(one.verdict in {"reference", "same"} for one in rows):
        step("serial, written down", len(rows) + 1)
        run_all(begun(perturbed.run(program, "serial", trace=1)))
    return _verdict(rows)


def _unjudged(run: Run, first: Run, program: Program) -> str:
    """Say why nothing can be said of a program that runs so serially."""
    if run.status is None:
        return f"the serial run was ended after {program.timeout} s: give it more by --timeout"
    if run.status:
        end = line(run.errors.strip()[-300:]) or "nothing on stderr"
        return f"the serial run {_ended(run)}, {_alone(run, program)}: {end}"
    if not run.counts["seen"]:
        return f"0 operations seen: {unseen.why(run, program)}"
    if not run.lines:
        return f"there is nothing to compare: it wrote no {_compared(program)}"
    if what := perturbed.difference(first, run, program.tolerance):
        return (
            f"two serial runs differ from each other, in {what}; set seeds and deterministic "
            "modes, or choose the lines that must stay the same by --match"
        )
    return ""


def _alone(run: Run, program: Program) -> str:
    """Say how the program ends without the command: which of the two is to blame."""
    alone = perturbed.run(program, "off")
    if alone.status == run.status:
        return "as without the command if stdin is empty"
    return f"but without the command it {_ended(alone)}"


def _ended(run: Run) -> str:
    if run.status is None:
        return "ran too long"
    return f"{'was' if run.status < 0 else 'ended with'} {perturbed.end_of(run)}"


def _compared(program: Program) -> str:
    what = "line to stdout" if program.compare == "stdout" else "checkpoint"
    return f"{what} that has {program.match!r}" if program.match else what


def _row(schedule: Schedule, rows: Sequence[Row], program: Program) -> Row:
    reference, name = rows[0].run, str(schedule)
    most = perturbed.limit(program, reference) + program.delay * reference.counts["seen"]
    limited = program if program.timeout else replace(program, timeout=most)
    run = perturbed.run(limited, "late", **schedule.asked())
    if run.status is None and not program.timeout:
        # A machine that was busy for a while is not, in the second run.
        run = perturbed.run(limited, "late", **schedule.asked())
    if run.status is None:
        verdict = "timed out" if program.timeout else "hangs"
        return Row(name, verdict, f"after {limited.timeout:.0f} s", run, schedule)
    what = perturbed.difference(reference, run, program.tolerance)
    run.lines.clear()  # a program may print much, and run under many seeds
    return Row(name, "differs" if what else "same", what or "", run, schedule)


def _verdict(rows: list[Row]) -> Verdict:
    differing = [one for one in rows if one.verdict == "differs"]
    if differing:
        text = f"a wait is missing: {differing[0].name} differs in {differing[0].what}"
        return Verdict(rows, FAILED, text, [one.schedule for one in differing if one.schedule])
    if hangs := [one for one in rows if one.verdict == "hangs"]:
        text = (
            f"under {hangs[0].name} it twice ran for longer than {hangs[0].what[6:]}, where the "
            f"serial run took {rows[0].run.seconds:.1f} s: it may wait for a value that late work "
            "is to write, without a wait of the driver; look with a debugger, or set --timeout"
        )
        return Verdict(rows, FAILED, text)
    if late := [one for one in rows if one.verdict == "timed out"]:
        return Verdict(rows, USAGE, f"{late[0].name} was ended for its time: raise --timeout")
    runs = [one.run for one in rows if one.verdict == "same"]
    if not sum(one.counts["gates"] for one in runs):
        why = "each was in a capture, or one that the host waits for, or its gate failed"
        return Verdict(rows, USAGE, f"no operation could be delayed: {why}")
    many = f"{len(runs)} choice{'s' if len(runs) > 1 else ''} of late work"
    return Verdict(rows, OK, f"the same under {many}: evidence, not proof")


def run(
    command: Sequence[str],
    *,
    seeds: int | None,
    compare: str,
    match: str,
    tolerance: float,
    delay: float,
    timeout: float | None,
    named: bool,
    thorough: bool,
    as_json: bool,
    path: str | None,
) -> int:
    """Judge a program, print what came of it, and return the exit status."""
    output.check_asked(path)
    words = perturbed.command_of(command, "perturb")
    _check(seeds, match, tolerance, delay, timeout)
    program = Program(words, compare, match, tolerance, delay, timeout)
    with Progress(None) as progress:
        done = -1

        def step(name: str, total: int) -> None:
            nonlocal done
            done += 1
            progress.done(done, total, name)

        verdict = judge(program, seeds, step, thorough=thorough)
        if verdict.schedules and named:
            total = len(verdict.rows)
            reference = verdict.rows[0].run
            try:
                verdict.race = naming.name(
                    program, reference, verdict.schedules, lambda label: step(label, total + 20)
                )
            except naming.UnnamedError as why:
                verdict.conclusion += f"; the two operations could not be named: {why}"
    if as_json:
        text = output.as_json(verdict.to_dict(), to_file=path is not None)
    else:
        text = shown(verdict, colour=path is None and sys.stdout.isatty())
    output.give(text, path)
    return verdict.status


def _check(
    seeds: int | None, match: str, tolerance: float, delay: float, timeout: float | None
) -> None:
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds: got {seeds}; allowed: 1 or more")
    perturbed.check_match(match)
    if not 0 <= tolerance < 1:
        raise UsageError(f"--tolerance: got {tolerance}; allowed: 0 or more, and less than 1")
    if not 0.001 <= delay <= 10:
        raise UsageError(f"--delay: got {delay}; allowed: 0.001 to 10 seconds")
    perturbed.check_timeout(timeout)


_COLUMNS = ("run", "result", "time", "operations", "late", "gates", "opened", "not delayed")


def _cells(row: Row) -> tuple[str, ...]:
    counts = row.run.counts
    kept = {"captured": "captured", "host_waits": "host waits", "failed": "failed"}
    not_delayed = [f"{counts[name]} {word}" for name, word in kept.items() if counts[name]]
    numbers = [str(counts[name]) for name in ("seen", "late", "gates", "opened")]
    return (
        row.name,
        row.verdict,
        f"{row.run.seconds:.2f} s",
        *numbers,
        ", ".join(not_delayed) or "-",
    )


def shown(verdict: Verdict, *, colour: bool = False) -> str:
    """Lay the runs out as a table, with the conclusion below."""
    rows = [_cells(row) for row in verdict.rows]
    table = _rich(rows) if colour else None
    if table is None:
        widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip()
            for one in (_COLUMNS, *rows)
        ]
        table = "\n".join(lines)
    race = f"\n\n{escaped(str(verdict.race))}" if verdict.race else ""
    return f"{table}\n\n{escaped(verdict.conclusion)}{race}"


def _rich(rows: Sequence[Sequence[str]]) -> str | None:
    try:
        from rich import box, console, table
    except ImportError:
        return None
    colours = {"differs": "red", "same": "green", "hangs": "red", "timed out": "yellow"}
    made = table.Table(*_COLUMNS, box=box.SIMPLE)
    for row in rows:
        made.add_row(*row, style=colours.get(row[1]))
    screen = console.Console()
    with screen.capture() as capture:
        screen.print(made)
    return capture.get().strip("\n")
