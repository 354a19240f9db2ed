"""The options of ``pytest --pyargs cai_bridge.conformance``.

Pytest imports this module in every run of an environment that has `cai_bridge`. A module of the
package would import the package first. So the options stand here, all of them begin with
``--cai-``, unlike those of other suites, and `cai_bridge` is imported where one names a subject.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROLES = ("producer", "consumer")
SLOW_S = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("cai_bridge", "conformance to DLPack and the CUDA Array Interface")
    for role in ROLES:
        group.addoption(
            f"--cai-{role}",
            action="append",
            default=[],
            metavar="SUBJECT",
            help=f"a {role} to test: a known library, such as torch, or module:factory; repeatable",
        )
    for kind, what in (("skips", "not run"), ("xfails", "expected to fail, and reported")):
        group.addoption(
            f"--cai-{kind}-file",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help=f"requirements that are {what}: one TOML table for each subject, of requirement = "
            "reason; 'known' is the package's list",
        )
    group.addoption(
        "--cai-simulated",
        action="store_true",
        help="use the simulated device, also on a machine with a GPU",
    )
    group.addoption(
        "--cai-slow-after",
        type=float,
        default=SLOW_S,
        metavar="SECONDS",
        help="name a requirement on the terminal after so many seconds (default: %(default)g)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Judge where a subject is named: the rest of the plugin is in the package."""
    if not any(config.getoption(f"--cai-{role}") for role in ROLES):
        return
    from cai_bridge import pytest_plugin

    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "cai_bridge.conformance")
