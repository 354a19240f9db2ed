"""A pytest plugin: collects the tests once, and forks a process for each mistake.

The fork makes its mistake, and runs the tests that reach it until one fails; or, for the table of
mistakes and files, until one of each file has.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .sites import Site

SLOWER, START_S = 20.0, 30.0
"""So much longer than without a mistake, and so long at least, all tests may take together."""
FAILED = "it died", "it never ended"


@dataclass
class Verdict:
    """What came of a mistake: the tests that failed, and how many were chosen."""

    site: Site
    failed: list[str]
    tests: int


@dataclass
class Zygote:
    """Judges mistakes: `choose` gives the tests of one in order, and the seconds that they take."""

    sites: list[Site]
    choose: Callable[[Site], tuple[list[str], float]]
    tell: Callable[[Verdict], None]
    jobs: int
    every: bool
    _failed: Path | None = None
    _running: dict[int, tuple[Site, Path, int, float]] = field(default_factory=dict)

    # --- the process that forks -------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        # No collection of a child looks at what is here.
        gc.collect()
        gc.freeze()
        with tempfile.TemporaryDirectory() as folder:
            for site in self.sites:
                while len(self._running) >= self.jobs:
                    self._wait()
                names, seconds = self.choose(site)
                failed = Path(folder) / str(site.number)
                failed.touch()
                child = os.fork()
                if not child:
                    self._run(site, failed, [items[name] for name in names if name in items])
                until = time.monotonic() + START_S + SLOWER * seconds
                self._running[child] = (site, failed, len(names), until)
            while self._running:
                self._wait()
        return True

    def _wait(self) -> None:
        time.sleep(0.01)
        for child, (site, failed, tests, until) in list(self._running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            found = failed.read_text().splitlines()
            if not ended and time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                found.append(FAILED[1])
            elif not ended:
                continue
            elif status:
                found.append(FAILED[0])
            del self._running[child]
            self.tell(Verdict(site, found, tests))

    # --- the process of a mistake -----------------------------------------------------------------

    def _run(self, site: Site, failed: Path, items: list[pytest.Item]) -> None:
        code = 3
        try:
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            self._failed = failed
            os.environ["CAI_BRIDGE_MUTANT"] = str(site.number)
            from cai_bridge import _core

            ctypes.CDLL(_core.__file__).cai_bridge_choose(ctypes.c_size_t(site.number))
            for item, after in self._one_by_one(items):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            code = 0
        finally:
            os._exit(code)

    def _one_by_one(
        self, items: list[pytest.Item]
    ) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        left = items[::-1]
        while left:
            item = left.pop()
            found = set() if self._failed is None else set(self._failed.read_text().splitlines())
            files = {name.partition("::")[0] for name in found}
            if found and not self.every:
                return
            if item.nodeid.partition("::")[0] not in files:
                yield item, left[-1] if left else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failed is not None:
            with self._failed.open("a") as file:
                print(report.nodeid, file=file)
