"""The options of ``pytest --pyargs cai_bridge.conformance``.

Pytest imports this module in every run of an environment that has `cai_bridge`. A module of the
package would import the package first. So the options stand here, and `cai_bridge` is imported only
if an option names a subject. All options begin with ``--cai-``, so they differ from other suites'.
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
        "--cai-thorough",
        action="store_true",
        help="judge each requirement in every case of its product of layouts, types, pending work, "
        "streams and exports; by default large products are thinned to all pairs of values",
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


NOTHING = (
    "cai_bridge: nothing was judged; add --pyargs cai_bridge.conformance, and --cai-producer or "
    "--cai-consumer with a library or module:factory"
)


def _nothing_judged(session: pytest.Session) -> bool:
    """Tell whether a run was to judge a library, ended well, and judged none."""
    config = session.config
    apart = config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput")
    plugin = config.pluginmanager.get_plugin("cai_bridge.conformance")
    ran: list[str] = [] if plugin is None else config.stash.get(plugin.RAN, [])
    if apart or config.option.collectonly or ran:
        return False
    own = "cai_bridge.conformance.test_"
    kit = any(
        getattr(item, "module", None) is not None and item.module.__name__.startswith(own)
        for item in session.items
        if isinstance(item, pytest.Function)
    )
    return kit or any(config.getoption(f"--cai-{role}") for role in ROLES)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End with 2 where a library was to be judged and none was: nothing green by accident."""
    if exitstatus == pytest.ExitCode.OK and _nothing_judged(session):
        session.exitstatus = pytest.ExitCode.INTERRUPTED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n{NOTHING}", red=True)
