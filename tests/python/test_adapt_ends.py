"""The end of an adapted call where an argument's end, the function or its result fails."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from stand_in import no_libraries

from cai_bridge import adapt, convert, to_cai, to_dlpack

__all__ = ["no_libraries"]


class Fails(Exception):
    """What a function raises."""


class Moving:
    """An exporter whose dict cannot be read once."""

    def __init__(self, array: Any) -> None:
        self.array, self.fails = array, False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.fails:
            self.fails = False
            raise KeyboardInterrupt
        return self.array.__cuda_array_interface__  # type: ignore[no-any-return]


@pytest.mark.parametrize("first", [True, False])
def test_an_argument_whose_end_fails_leaves_the_others_in_order(cuda: Any, first: bool) -> None:
    own, one, two = (cuda.stream(name) for name in ("own", "one", "two"))
    arrays = [cuda.array([1.0] * 4, speaks="cai3", stream=stream) for stream in (one, two)]
    moving, kept = [Moving(array) for array in arrays], list[Any]()

    def function(*views: Any) -> None:
        kept.extend([*views, *(own.read(view) for view in views)])
        moving[not first].fails = True

    with pytest.raises(KeyboardInterrupt):
        adapt(function, "cai", stream=own)(*moving)
    other, stream = (arrays[1], two) if first else (arrays[0], one)
    stream.fill(other, 9.0, name="its producer's next write")
    cuda.synchronize()
    assert kept[3 if first else 2].value == [1.0] * 4


def test_what_the_function_raised_goes_before_an_end_that_fails(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    own, stream = cuda.stream("own"), cuda.stream("producer's")
    x, kept = cuda.array([1.0] * 4, speaks="cai3", stream=stream), list[Any]()

    def function(x: Any) -> None:
        kept.extend([x, own.read(x)])
        cuda.fail("cuEventRecord", 1, "CUDA_ERROR_OUT_OF_MEMORY")
        raise Fails

    with pytest.raises(Fails):
        adapt(function, "cai", stream=own)(x)
    assert ["cuEventRecord" in str(one) for one in unraisable] == [True]
    kept.clear()


@pytest.mark.parametrize("call", [to_cai, to_dlpack])
def test_a_view_of_the_callers_own_stays_whatever_the_function_raises(cuda: Any, call: Any) -> None:
    own, x = call(cuda.array([1.0] * 4)), cuda.array([2.0])
    seen: list[Any] = []

    def function(*views: Any) -> None:
        seen.extend(views)
        raise Fails

    with pytest.raises(Fails):
        adapt(function, "cai" if call is to_cai else "dlpack")(own, x)
    assert seen[0] is own
    assert convert(own, "cai").ptr == own.ptr
    with pytest.raises(BufferError, match="view: got a released view"):
        convert(seen[1], "cai")
