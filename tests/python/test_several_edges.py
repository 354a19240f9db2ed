"""Several edges at once beside a graph capture: all are made, or none.

A stream that waits for captured work joins the capture. One that is left there by a hand-over that
was refused ends it with an error.
"""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import DriverError, convert


def assert_not_joined(cuda: Any, captured: Any, call: Any, got: str) -> None:
    with cuda.capture(captured):
        with pytest.raises(DriverError, match=got):
            call()
    # The end of the capture fails where a stream is left joined.


def test_of_a_tree_that_is_refused_no_edge_is_made(cuda):
    captured, consumer = (
        cuda.stream("captured", blocking=True),
        cuda.stream("consumer", blocking=False),
    )
    arrays = [
        cuda.array(fill=1, shape=(3,), stream=stream, speaks="cai3")
        for stream in (captured, cuda.legacy)
    ]
    cuda.legacy.fill(arrays[1], 2)
    assert_not_joined(
        cuda,
        captured,
        lambda: convert(arrays, "cai", stream=consumer),
        r"got an edge from the legacy default stream \(1\) to the stream",
    )
    cuda.synchronize()


def test_streams_of_two_captures_cannot_both_be_waited_for(cuda):
    captured, other = cuda.stream("captured"), cuda.stream("other")
    consumer = cuda.stream("consumer", blocking=False)
    arrays = [
        cuda.array(fill=1, shape=(3,), stream=stream, speaks="cai3") for stream in (captured, other)
    ]
    with cuda.capture(other):
        assert_not_joined(
            cuda,
            captured,
            lambda: convert(arrays, "cai", stream=consumer),
            "got an edge from the stream .* to the stream",
        )
    cuda.synchronize()
