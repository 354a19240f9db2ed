"""A call that XLA makes, on the simulated device: its buffers are ordered on XLA's stream.

The stand-in buffers do as those of ``jax.experimental.buffer_callback`` (jaxlib 0.10: ``ffi.cc``):
a dict of version 2 without a stream, a ``__dlpack__`` that orders nothing, and no owner.
"""

from types import SimpleNamespace

import pytest
from stand_in import library, no_libraries

from cai_bridge import adapt
from cai_bridge._compiled import Wanted
from cai_bridge._compiled_buffers import Call

__all__ = ["library", "no_libraries"]


class Buffer:
    __module__ = "jax.experimental.buffer_callback"
    dtype = "float32"

    def __init__(self, memory, *, is_written):
        data = (memory.ptr, not is_written)
        dict_of = {"shape": (4,), "typestr": "<f4", "data": data, "version": 2}
        self.__cuda_array_interface__ = dict_of

    def __dlpack_device__(self):
        return 2, 0


class Xla:
    """XLA on its stream, with memory for one argument and one result."""

    def __init__(self, cuda):
        self.stream = cuda.stream("XLA's")
        self.memory = [cuda.array([0.0] * 4, speaks=(), stream=self.stream) for _ in range(2)]
        self.stream.fill(self.memory[0], 7.0, name="XLA's write")

    def call(self, function, stream=None):
        """Call it as XLA does, use the result, and the argument's memory for something else."""
        wanted = Wanted(
            function=function,
            to="stand_in",
            adapt=lambda work: adapt(work, "stand_in", stream=stream, readonly=False),
            wraps=lambda made: made,
            like=None,
            into=True,
            backward=None,
        )
        x, y = (Buffer(one, is_written=bool(n)) for n, one in enumerate(self.memory))
        context = SimpleNamespace(stream=self.stream.handle)
        Call(wanted, list, 1).run(context, (x,), [y])
        seen = self.stream.read(self.memory[1], name="XLA's read")
        self.stream.fill(self.memory[0], 9.0, name="XLA's next write")
        return seen


@pytest.fixture
def xla(cuda):
    yield Xla(cuda)
    cuda.synchronize()


@pytest.mark.parametrize("said", [False, True])
def test_a_call_begins_and_ends_in_xlas_order_and_the_host_waits_for_nothing(
    cuda, library, xla, said
):
    own, read = cuda.stream("own") if said else library.streams[0], []

    def function(x, y):
        read.append(own.read(x.view, name="the function's read"))
        own.fill(y.view, 14.0, name="the function's write")

    cuda.clear_calls()
    seen = xla.call(function, stream=own if said else None)
    waits = {"cuModuleUnload", "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
    assert not waits & {call.call for call in cuda.calls}
    cuda.synchronize()
    assert (read[0].value, seen.value) == ([7.0] * 4, [14.0] * 4)


@pytest.mark.parametrize("kept", [0, 1])
def test_who_keeps_an_array_is_refused(kept, library, xla):
    held = []

    def keeps(*arrays):
        held.append(arrays[kept])

    named = ("array 0", "result 0")[kept]
    with pytest.raises(BufferError, match=f"^keeps: got one that kept its {named}; allowed: a fun"):
        xla.call(keeps)
    held.clear()
