"""A pytest plugin: which places of the Rust sources each test reaches, and if it passes."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_OUTPUT = Path(os.environ["CAI_BRIDGE_SITES_OUTPUT"])
_WHO = os.environ.get("PYTEST_XDIST_WORKER", "main")
_COUNT = int(os.environ["CAI_BRIDGE_SITES_COUNT"])
# The extension and its children find the file by this name, once they are loaded.
os.environ["CAI_BRIDGE_SITES"] = str(_OUTPUT / f"{_WHO}.sites")
_file = (_OUTPUT / f"{_WHO}.sites").open("w+b")
_file.write(bytes(_COUNT))
_file.flush()
_sites = mmap.mmap(_file.fileno(), _COUNT)
_tests: dict[str, dict[str, Any]] = {}
_failed: set[str] = set()


def _spent() -> float:
    """Tell the seconds of this process and of its children that are over."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _sites[:] = bytes(_COUNT)
    start = _spent()
    try:
        return (yield)
    finally:
        reached = [number for number, one in enumerate(_sites[:]) if one]
        seconds = _spent() - start
        _tests[item.nodeid] = {"seconds": seconds, "sites": reached}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _tests:
        told = {name: {**one, "passed": name not in _failed} for name, one in _tests.items()}
        (_OUTPUT / f"{_WHO}.json").write_text(json.dumps(told))
