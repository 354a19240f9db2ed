"""Which sentence of the CUDA Array Interface a test shows the bridge to keep.

The sentences are rows of tests/data/specification.toml. A test names the rows that it shows, and
gets them as its docstring: with `as_consumer` the bridge reads a dict, with `as_producer` somebody
reads the dict of a view.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from contract import rows
from scenes import done

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
each_producer = pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-legacy", "cai3"])

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
    """A read of a DLPack view, queued by a library on a stream of its own."""
    return cuda.consumer("dlpack", stream or cuda.stream("consumer's")).read(view)


def values(cuda: Any, view: Any) -> Any:
    """What a library reads of a DLPack view on a stream of its own."""
    seen = taken_on(cuda, view)
    cuda.synchronize()
    return seen.value


def view_of(cuda: Any, x: Any, works_on: Any, **arguments: Any) -> Any:
    """The CAI view of an array whose library works on a stream."""
    with cuda.current_stream(works_on):
        return to_cai(x, **arguments)


def called(cuda: Any, *names: str) -> list[tuple[str, int | None]]:
    """The calls of these names since they were cleared, with their streams."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in names]


def expect_returned(cuda: Any, seen: Any, producer: Any, x: Any) -> None:
    """Nothing was waited for, and a read that is still queued sees none of the later writes."""
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert not seen.done
    for value in (8.0, 9.0):
        producer.fill(x, value)
    assert done(seen) == [7.0] * 8


def in_a_process(program: str, **environment: str) -> str:
    """What a program prints that runs with these variables set."""
    import os

    kept = {name: value for name, value in os.environ.items() if name != "CAI_BRIDGE_SYNC"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.strip()
