"""Exporters that move to another stream, and what tests of them share."""

from __future__ import annotations

from typing import Any

import pytest

GIVEN = pytest.mark.parametrize("given", ["object", "handle"])
# Where somebody else keeps the stream that was named, too, the exporter may be around an array of a
# library's, and name its stream of the moment: both are ordered.
BEFORE = pytest.mark.parametrize("before", ["legacy", "per-thread", "a library's", "its own"])
# One that names none yet is asked again as well.
BEFORE_OR_NONE = pytest.mark.parametrize("before", [*BEFORE.args[1], "none", "none, unknown"])


def moved(array: Any, first: Any, then: Any) -> None:
    """Move the producer's work to another stream, as one that keeps to the dict's rules does."""
    if first is not None:
        then.wait(first.record())
    then.fill(array, 2.0)


def host_waits(cuda: Any) -> int:
    return [call.call for call in cuda.calls].count("cuModuleUnload")


def stream_before(cuda: Any, before: str) -> Any:
    named = {"legacy": cuda.legacy, "per-thread": cuda.per_thread}
    return named.get(before) or (None if "none" in before else cuda.stream("first"))


def exporter_before(array: Any, before: str) -> Any:
    """Give the exporter of the array: of a type that the bridge knows, or not."""
    return Stranger(array) if before == "none, unknown" else array


class Stranger:
    """An exporter of a type that nobody knows."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__
