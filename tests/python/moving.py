"""Exporters that move to another stream, and what tests of them share."""

from __future__ import annotations

from typing import Any

import pytest

GIVEN = pytest.mark.parametrize("given", ["object", "handle"])
# Where somebody else keeps the stream that was named, too, the exporter may be around an array of a
# library's, and name its stream of the moment: both are ordered.
BEFORE = pytest.mark.parametrize("before", ["legacy", "per-thread", "a library's", "its own"])


def moved(array: Any, first: Any, then: Any) -> None:
    """Move the producer's work to another stream, as one that keeps to the dict's rules does."""
    then.wait(first.record())
    then.fill(array, 2.0)


def host_waits(cuda: Any) -> int:
    return [call.call for call in cuda.calls].count("cuModuleUnload")


def stream_before(cuda: Any, before: str) -> Any:
    named = {"legacy": cuda.legacy, "per-thread": cuda.per_thread}
    return named.get(before) or cuda.stream("first")
