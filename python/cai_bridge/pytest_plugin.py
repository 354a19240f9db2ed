"""The pytest plugin: options for ``pytest --pyargs cai_bridge.conformance``.

Pytest loads it in every run of an environment that has `cai_bridge`, so it imports nothing before
one of its options is used.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cai_bridge.conformance import ConsumerAdapter, ProducerAdapter, Requirement

ROLES = ("producer", "consumer")
CASES = pytest.StashKey[dict[str, list[Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("cai_bridge", "conformance to DLPack and the CUDA Array Interface")
    for role in ROLES:
        group.addoption(
            f"--{role}",
            action="append",
            default=[],
            metavar="SUBJECT",
            help=f"a {role} to judge: a library that is known, such as torch, or module:factory; "
            "may be given more than once",
        )
    for kind, what in (("skips", "not run"), ("xfails", "expected to fail, and to be told of")):
        group.addoption(
            f"--{kind}-file",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help=f"requirements that are {what}: a TOML table a subject, of requirement = reason; "
            "'known' is what is known of the libraries",
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Tell what is judged."""
    given = [f"{role} {one}" for role in ROLES for one in config.getoption(f"--{role}")]
    return [f"conformance: {', '.join(given)}"] if given else []


def _adapter(role: str, subject: str) -> ProducerAdapter | ConsumerAdapter:
    from cai_bridge.conformance import consumer_named, producer_named

    try:
        return producer_named(subject) if role == "producer" else consumer_named(subject)
    except ValueError as unknown:
        raise pytest.UsageError(f"--{role}: {unknown}") from None


def _known(config: pytest.Config, kind: str, subject: str) -> dict[str, str]:
    """Read what the files say of a subject: reasons by the requirements' names."""
    from cai_bridge.conformance import requirements
    from cai_bridge.conformance.known import known as shipped

    known: dict[str, str] = {}
    names = {one.name for one in requirements()}
    for file in config.getoption(f"--{kind}-file"):
        if str(file) == "known":
            known |= shipped("skips" if kind == "skips" else "xfails").get(subject, {})
            continue
        try:
            said = tomllib.loads(file.read_text()).get(subject, {})
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise pytest.UsageError(f"--{kind}-file: {file}: {error}") from None
        for name, reason in said.items():
            if name not in names:
                raise pytest.UsageError(f"--{kind}-file: {file}: there is no {name!r}")
            known[name] = str(reason)
    return known


def _cases(config: pytest.Config, role: str) -> list[Any]:
    """Make one test a subject and requirement, with what is known of it."""
    if not config.getoption(f"--{role}"):
        return []
    from cai_bridge.conformance import requirements

    made = []
    for subject in config.getoption(f"--{role}"):
        adapter = _adapter(role, subject)
        skips, xfails = (_known(config, kind, subject) for kind in ("skips", "xfails"))
        for one in requirements("producer" if role == "producer" else "consumer"):
            marks = []
            if one.name in skips:
                marks.append(pytest.mark.skip(reason=skips[one.name]))
            if one.name in xfails:
                marks.append(pytest.mark.xfail(reason=xfails[one.name], strict=True))
            made.append(pytest.param(adapter, one, id=f"{subject}-{one.name}", marks=marks))
    return made


def pytest_configure(config: pytest.Config) -> None:
    """Find the subjects, so that a mistake in an option ends the run before it begins."""
    config.stash[CASES] = {role: _cases(config, role) for role in ROLES}


def make_tests(metafunc: pytest.Metafunc, role: str) -> None:
    """Make the tests of a role, or one that says that there are none."""
    made = metafunc.config.stash[CASES][role]
    if not made:
        skip = pytest.mark.skip(reason=f"no --{role} was given")
        made = [pytest.param(None, None, id="none", marks=skip)]
    metafunc.parametrize(("adapter", "requirement"), made)


def run_case(adapter: ProducerAdapter | ConsumerAdapter, requirement: Requirement) -> None:
    """Judge one requirement, as a test."""
    from cai_bridge.conformance import open_lab
    from cai_bridge.conformance.report import judge

    with open_lab() as lab:
        verdict = judge(requirement, adapter, lab)
    if verdict.outcome == "skipped":
        pytest.skip(verdict.evidence)
    if verdict.outcome == "failed":
        lines = (
            f"{requirement.name}: {requirement.rule}",
            requirement.citation,
            f"otherwise: {requirement.why}",
            f"seen: {verdict.evidence}",
            "",
            verdict.program,
        )
        if requirement.level == "should":
            pytest.xfail(f"advice: {requirement.rule}; seen: {verdict.evidence}")
        pytest.fail("\n".join(lines), pytrace=False)
