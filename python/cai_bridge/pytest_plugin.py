"""The pytest plugin of ``pytest --pyargs cai_bridge.conformance``: one test per requirement.

`pytest_cai_bridge` has the options, and registers this module if an option names a subject.
"""

from __future__ import annotations

import sys
import threading
import tomllib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from cai_bridge.conformance import (
    ConsumerAdapter,
    Lab,
    ProducerAdapter,
    Report,
    Requirement,
    Verdict,
    consumer_named,
    open_lab,
    producer_named,
    requirements,
)
from cai_bridge.conformance.judging import judge, text_of
from cai_bridge.conformance.known import known as shipped
from cai_bridge.conformance.place import judged_on
from cai_bridge.conformance.requirement import Role, did_you_mean
from cai_bridge.testing import SimulatedCuda

ROLES = ("producer", "consumer")
RAN = pytest.StashKey[list[str]]()
"""The names of the requirements that were run."""
CASES = pytest.StashKey[dict[str, list[Any]]]()
PLACE = pytest.StashKey["Place"]()
TALLIES = pytest.StashKey[list["Tally"]]()
REASONS, FEW = 5, 3
"""How many reasons for skips are reported, and how many requirements of a reason by name."""


class Place:
    """The lab, open as long as the plugin's tests run.

    An adapter may keep a stream, and a library its pool. So one simulated device serves all tests,
    as in ``cai-bridge check``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._where: Literal["simulated"] | None = (
            "simulated" if config.getoption("--cai-simulated") else None
        )
        self._open = ExitStack()
        self._lab: Lab | None = None
        self._device: object = None

    def lab(self) -> Lab:
        """Return the lab, and open it first if it is closed."""
        if self._lab is None or SimulatedCuda.current() is not self._device:
            # A fixture may install another simulated device for each test.
            self.close()
            self._lab = self._open.enter_context(open_lab(self._where))
            self._lab.thorough = self.config.getoption("--cai-thorough")
            self._device = SimulatedCuda.current()
        return self._lab

    def close(self) -> None:
        """Close the lab, so that other tests may install their own simulated device."""
        self._lab = None
        self._open.close()


@dataclass
class Tally:
    """The results of a subject's tests in one role.

    Attributes
    ----------
    expected : int
        The number of requirements that no file leaves out.
    name, role, place : str
        The subject's name, its role, and the device.
    verdicts : list of Verdict
        The verdicts of this run.
    """

    name: str
    role: Role
    expected: int = 0
    place: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def report(self) -> Report:
        """Return the verdicts so far."""
        return Report(self.name, self.role, self.place, tuple(self.verdicts))


@dataclass(frozen=True)
class Case:
    """One test: a requirement, or for None the check that there was any verdict at all."""

    requirement: Requirement | None
    place: Place
    subject: str
    tally: Tally = field(repr=False)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the names of the subjects."""
    given = [f"{role} {one}" for role in ROLES for one in config.getoption(f"--cai-{role}", [])]
    return [f"conformance: {', '.join(given)}"] if given else []


def _adapter(role: str, subject: str) -> ProducerAdapter | ConsumerAdapter:
    """Find an adapter. An exception of its module, even ``SystemExit``, is the option's fault."""
    try:
        return producer_named(subject) if role == "producer" else consumer_named(subject)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The kit's message for these two types needs no type name.
        kind = "" if type(error) in (ValueError, TypeError) else f"{type(error).__name__}: "
        raise pytest.UsageError(f"--cai-{role} {subject}: {kind}{text_of(error)}") from None


def _listed(kind: str, file: Path, judged: set[str]) -> dict[str, dict[str, str]]:
    """Read a file: reasons by subject and requirement name. Each name must exist.

    A file may contain subjects of other runs, but not only such.
    """
    try:
        listed = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--cai-{kind}-file: {file}: {error}") from None
    names = {one.name for one in requirements()}
    for subject, reasons in listed.items():
        if not isinstance(reasons, dict):
            raise pytest.UsageError(
                f"--cai-{kind}-file: {file}: {subject}: got {reasons!r}; "
                "allowed: a table of requirement = reason"
            )
        for name in reasons:
            if name not in names:
                what = f"there is no {name!r}{did_you_mean(name, names)}"
                raise pytest.UsageError(f"--cai-{kind}-file: {file}: {subject}: {what}")
    if listed and not judged & listed.keys():
        likely = next(filter(None, (did_you_mean(one, judged) for one in listed)), "")
        what = f"got tables of {', '.join(listed)}; allowed: one of what is judged at least"
        raise pytest.UsageError(
            f"--cai-{kind}-file: {file}: {what}, {', '.join(sorted(judged))}{likely}"
        )
    return listed


def _known(config: pytest.Config, kind: str) -> dict[str, dict[str, str]]:
    """Read all files: reasons by subject and requirement name."""
    known: dict[str, dict[str, str]] = {}
    judged = {one for role in ROLES for one in config.getoption(f"--cai-{role}", [])}
    for file in config.getoption(f"--cai-{kind}-file"):
        if str(file) == "known":
            listed = shipped("skips" if kind == "skips" else "xfails")
        else:
            listed = _listed(kind, file, judged)
        for subject, reasons in listed.items():
            known[subject] = known.get(subject, {}) | reasons
    return known


def _cases(config: pytest.Config, role: str, known: dict[str, Any]) -> list[Any]:
    """Make a test for each subject and requirement, and a last test that there was any verdict."""
    made = []
    place = config.stash[PLACE]
    for subject in config.getoption(f"--cai-{role}"):
        adapter = _adapter(role, subject)
        tally = Tally(subject, "producer" if role == "producer" else "consumer")
        skips, xfails = (known[kind].get(subject, {}) for kind in ("skips", "xfails"))
        for one in requirements(tally.role):
            marks = []
            if one.name in skips:
                marks.append(pytest.mark.skip(reason=str(skips[one.name])))
            if one.name in xfails:
                marks.append(pytest.mark.xfail(reason=str(xfails[one.name]), strict=True))
            tally.expected += one.name not in skips
            case = Case(one, place, subject, tally)
            made.append(pytest.param(adapter, case, id=f"{subject}-{one.name}", marks=marks))
        case = Case(None, place, subject, tally)
        made.append(pytest.param(adapter, case, id=f"{subject}-anything-judged"))
        config.stash[TALLIES].append(tally)
    return made


def pytest_configure(config: pytest.Config) -> None:
    """Find the subjects, so that a mistake in an option ends the run before it begins."""
    if not any(config.getoption(f"--cai-{role}", []) for role in ROLES):
        return
    here = str(config.invocation_params.dir)
    if here not in sys.path:
        # `python -m pytest` adds the current folder; `pytest` does not.
        sys.path.insert(0, here)
    config.stash[PLACE] = place = Place(config)
    config.add_cleanup(place.close)
    config.stash[TALLIES] = []
    known = {kind: _known(config, kind) for kind in ("skips", "xfails")}
    config.stash[CASES] = {role: _cases(config, role, known) for role in ROLES}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shorten each failure in the summary to one line.

    pytest cuts the lines at the terminal's width, but not if the variable ``CI`` is set.
    """
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and _is_case(item):
        told = crash.message.splitlines()
        seen = [line for line in told[1:] if line.startswith(("seen: ", "likely follows "))]
        crash.message = "; ".join(told[:1] + seen[:1])
    return report


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the device after the last test that needs it."""
    if PLACE in item.config.stash and not (nextitem and _is_case(nextitem)):
        item.config.stash[PLACE].close()


def _is_case(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return isinstance(parameters.get("case"), Case)


def make_tests(metafunc: pytest.Metafunc, role: str) -> None:
    """Make the tests of a role, or one test that reports that there are none."""
    made = metafunc.config.stash.get(CASES, {}).get(role)
    if not made:
        skip = pytest.mark.skip(reason=f"no --cai-{role} was given")
        made = [pytest.param(None, None, id="none", marks=skip)]
    metafunc.parametrize(("adapter", "case"), made)


def run_case(adapter: ProducerAdapter | ConsumerAdapter, case: Case) -> None:
    """Judge one requirement, as a test."""
    if case.requirement is None:
        _anything(case.tally)
        return
    case.place.config.stash.setdefault(RAN, []).append(case.requirement.name)
    lab = judged_on(case.requirement.role, adapter, case.place.lab())
    with _named_when_slow(case):
        verdict = judge(case.requirement, adapter, lab)
    case.tally.place = lab.name
    case.tally.verdicts.append(verdict)
    if verdict.outcome == "skipped":
        pytest.skip(verdict.evidence)
    if verdict.outcome == "failed":
        rule = case.requirement
        if rule.level == "should":
            pytest.xfail(f"advice: {rule.rule}; seen: {verdict.evidence}")
        pytest.fail(_told(verdict, case), pytrace=False)


def _told(verdict: Verdict, case: Case) -> str:
    """Describe a failure in full, or in two lines if it likely follows from another failure."""
    rule = verdict.requirement
    cause = case.tally.report.follows.get(rule.name)
    if cause and case.place.config.get_verbosity() < 1:
        return (
            f"{rule.name}: {rule.rule}\n"
            f"likely follows from {cause}, which failed before; -vv tells it in full"
        )
    quote = (f'"{rule.quote}"',) if rule.quote else ()
    lines = (
        f"{rule.name}: {rule.rule}",
        rule.citation,
        *quote,
        f"otherwise: {rule.why}",
        f"seen: {verdict.evidence}",
        "",
        *((verdict.traceback, "") if verdict.traceback else ()),
        verdict.program,
    )
    return "\n".join(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report each subject's verdicts, the causes of failures, and the skipped requirements."""
    tallies = [one for one in terminalreporter.config.stash.get(TALLIES, []) if one.verdicts]
    if tallies:
        terminalreporter.section("conformance")
    for report in (one.report for one in tallies):
        terminalreporter.write_line(report.summary())
        for one in report.causes:
            after = [name for name, cause in report.follows.items() if cause == one.name]
            what = "failed" if one.requirement.level == "must" else "advice"
            tail = f"; likely from the same cause: {', '.join(after)}" if after else ""
            terminalreporter.write_line(f"  {what} {one.name}{tail}")
        reasons = [*report.skipped.items()]
        for reason, names in reasons[:REASONS]:
            which = ", ".join(names) if len(names) <= FEW else f"{len(names)} requirements"
            terminalreporter.write_line(f"  skipped {which}: {reason}")
        if len(reasons) > REASONS:
            terminalreporter.write_line("  skipped others: -rs tells them")


@contextmanager
def _named_when_slow(case: Case) -> Iterator[None]:
    """Print a requirement's name if its check takes long, since it may hang."""
    config, name = case.place.config, case.requirement.name if case.requirement else ""
    after: float = config.getoption("--cai-slow-after")

    def tell() -> None:
        # Not through pytest's capture.
        writer = config.get_terminal_writer()
        writer.line(f"\ncai_bridge: {case.subject}: {name} has run for {after:g} s")
        writer.flush()

    timer = threading.Timer(after, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _anything(tally: Tally) -> None:
    """Fail if every requirement was skipped: then nothing is known about the library."""
    if any(one.outcome != "skipped" for one in tally.verdicts):
        return
    if len(tally.verdicts) < tally.expected:
        pytest.skip("only some of the requirements ran here")
    pytest.fail("every requirement was skipped: nothing is known of the library", pytrace=False)
