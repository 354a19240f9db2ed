"""`convert` of what is of the wanted kind already: our views, and arrays of the library itself."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in import StandIn, library, made_on, no_libraries, producer

from cai_bridge import convert, to_cai, to_dlpack

__all__ = ["library", "no_libraries", "producer"]

KINDS = {"cai": to_cai, "dlpack": to_dlpack}
each_kind = pytest.mark.parametrize("to", KINDS)


@each_kind
@pytest.mark.parametrize("how", [{}, {"readonly": True}, {"copy": True}, {"stream": 1}])
def test_a_released_view_is_refused(to: str, how: dict[str, Any], cuda: Any) -> None:
    view = KINDS[to](cuda.array([1.0]))
    view.release()
    with pytest.raises(BufferError, match=r"^view: got a released view"):
        convert(view, to, **how)
    with pytest.raises(BufferError, match=r"^x\[1\]: view: got a released view"):
        convert([cuda.array([1.0]), view], to, **how)


def test_an_array_of_a_library_that_writes_is_not_made_read_only(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    own = convert(made_on(cuda, producer, 7.0), "stand_in")
    with pytest.raises(BufferError, match=r"^readonly: got True for one of the library's own"):
        convert(own, "stand_in", readonly=True)
    with pytest.raises(BufferError, match=r"^x\['b'\]: readonly: got True|^x\[\"b\"\]"):
        convert({"a": cuda.array([1.0]), "b": own}, "stand_in", readonly=True)
    assert convert(own, "stand_in", readonly=False) is own
