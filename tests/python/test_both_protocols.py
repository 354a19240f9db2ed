"""Classes of one's own that speak both protocols: the bridge asks `__dlpack__`, and at the end the
stream that the dict names waits, too. `test_give_back.py` has those that stay on one stream.
"""

from __future__ import annotations

from typing import Any

import pytest
from moving import host_waits
from scenes import converted, done

from cai_bridge import convert, to_cai, to_dlpack
from cai_bridge.testing import _current_streams

TAKEN = {
    "to_cai": to_cai,
    "to_cai, unsaid": lambda x, stream: to_cai(x),
    "convert": lambda x, stream: convert(x, "dlpack", stream=stream),
    "a tree": converted,
}


class Own:
    """A buffer that is used again and again, on a stream of its own or on another one."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.array = cuda.array([0.0] * 4, speaks=("dlpack", "cai3"), stream=stream, name="x")
        self.stream, self.reads = stream, 0

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        return dict(self.array.__cuda_array_interface__, stream=self.stream.handle)


class Around(Own):
    """Its dict names the stream that a library works on at the moment."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        now = _current_streams(0)
        named = now[-1][0].handle if now else 1
        return dict(self.array.__cuda_array_interface__, stream=named)


@pytest.mark.parametrize("way", TAKEN)
@pytest.mark.parametrize("kind", ["its own stream", "a library's"])
def test_the_next_write_comes_after_the_read_though_the_producer_moved(
    kind: str, way: str, cuda: Any
) -> None:
    home, then, consumer = (cuda.stream(name) for name in ("home", "then", "consumer"))
    own = (Own if kind == "its own stream" else Around)(cuda, home)
    with cuda.current_stream(home):
        home.fill(own.array, 7.0, name="the late write")
        taken = TAKEN[way](own, consumer)
    if way == "to_cai, unsaid":
        with cuda.current_stream(consumer):
            assert taken.__cuda_array_interface__["stream"] == 1
        consumer.wait(cuda.legacy.record())
    seen = consumer.read(taken, name="the consumer's read")
    with cuda.current_stream(then):
        if kind == "its own stream":
            own.stream = then
            then.wait(home.record())
        del taken
    (then if kind == "its own stream" else home).fill(own.array, 9.0, name="the next write")
    assert host_waits(cuda) == 0
    assert done(seen) == [7.0] * 4


def test_a_library_that_is_known_is_not_asked_for_its_dict(cuda: Any) -> None:
    """JAX's would make the host wait."""
    own = type("Jaxs", (Own,), {"__module__": "jaxlib._jax"})(cuda, cuda.stream("home"))
    to_cai(own, stream=cuda.stream("consumer")).release()
    assert own.reads == 0


@pytest.mark.parametrize("call", [to_cai, to_dlpack, lambda x: convert(x, "cai")])
def test_a_method_that_is_none_is_named(call: Any) -> None:
    array = type("Array", (), {"__dlpack__": 3, "__dlpack_device__": lambda _: (2, 0)})()
    with pytest.raises(TypeError, match=r"^object: got .*Array whose __dlpack__ is 3; allowed:"):
        call(array)
