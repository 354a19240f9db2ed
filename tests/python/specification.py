"""Which sentence of the CUDA Array Interface a test shows the bridge to keep.

The sentences are rows of tests/data/specification.toml. A test names the rows that it shows, and
gets them as its docstring: with `as_consumer` the bridge reads a dict, with `as_producer` somebody
reads the dict of a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from contract import rows

from cai_bridge import convert, from_cai, to_cai, to_dlpack

SENTENCES = {row["id"]: row for row in rows("specification", "sentence")}
SIDES = ("consumer", "producer")

# The ways in, each to something that speaks DLPack.
DOORS: dict[str, Callable[[Any], Any]] = {
    "from_cai": from_cai,
    "to_dlpack": to_dlpack,
    "convert": lambda x: convert(x, "dlpack"),
}
each_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)

# The producers whose arrays a view speaks CAI for.
SPEAKS = ("exchange", "dlpack", "dlpack-legacy", "cai3")
each_producer = pytest.mark.parametrize("speaks", SPEAKS)

# Both sides: a dict is read through each door, or the dict of a view of each producer's.
each_way = pytest.mark.parametrize(
    ("door", "speaks"),
    [pytest.param(door, "cai3", id=name) for name, door in DOORS.items()]
    + [pytest.param(to_cai, speaks, id=f"to_cai of {speaks}") for speaks in SPEAKS],
)

WAITS = {"cuEventRecord", "cuStreamWaitEvent"}
BLOCKS = {"cuStreamSynchronize", "cuModuleUnload", "cuEventSynchronize"}

Test = TypeVar("Test", bound=Callable[..., Any])


def _shows(side: str, names: tuple[str, ...]) -> Callable[[Test], Test]:
    quoted = []
    for name in names:
        row = SENTENCES[name]
        assert f"not_{side}" not in row, f"{name} does not bind the bridge as {side}"
        quoted.append(f'As {side}, version {row["version"]}, {row["section"]}: "{row["sentence"]}"')

    def mark(test: Test) -> Test:
        test.__doc__ = "\n".join([*quoted, *filter(None, [test.__doc__])])
        return test

    return mark


def as_consumer(*names: str) -> Callable[[Test], Test]:
    """Mark a test that shows the bridge to keep these sentences where it reads a dict."""
    return _shows("consumer", names)


def as_producer(*names: str) -> Callable[[Test], Test]:
    """Mark a test that shows the bridge to keep these sentences where a view's dict is read."""
    return _shows("producer", names)


def taken_on(cuda: Any, view: Any, stream: Any = None) -> Any:
    """A read of a view, queued by a library on a stream of its own."""
    speaks = "dlpack" if hasattr(view, "__dlpack__") else "cai-waits"
    return cuda.consumer(speaks, stream or cuda.stream("consumer's")).read(view)


def called(cuda: Any, *names: str) -> list[tuple[str, int | None]]:
    """The calls of these names since they were cleared, with their streams."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in names]
