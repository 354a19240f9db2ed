"""A pytest plugin: which lines of the files that are changed each test reaches, and its time."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = os.environ["CAI_BRIDGE_REACHED_ROOT"]
PARTS = tuple(os.environ["CAI_BRIDGE_REACHED_PARTS"].split(os.pathsep))
_lines: set[tuple[str, int]] = set()
_tests: dict[str, dict[str, Any]] = {}


def _call(frame: FrameType, event: str, argument: Any) -> Any:
    name = frame.f_code.co_filename
    if not name.startswith(PARTS):
        return None
    _lines.add((name, frame.f_lineno))

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        _lines.add((name, frame.f_lineno))
        return line

    return line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _lines.clear()
    threading.settrace(_call)
    sys.settrace(_call)
    start = time.monotonic()
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        reached = sorted((os.path.relpath(name, ROOT), line) for name, line in _lines)
        _tests[item.nodeid] = {"seconds": time.monotonic() - start, "lines": reached}


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ["CAI_BRIDGE_REACHED_OUTPUT"]).write_text(json.dumps(_tests))
