"""Lines of docs/compiled.md: a stand-in for a compiler that is not here, and tvm-ffi."""

import pytest
import tvm_ffi
from capsules import take
from stand_in import made_on

from cai_bridge import adapt, to_dlpack
from cai_bridge.testing._region import Region


def cute(cuda, kernel, x):
    """As CuTe DSL's ``from_dlpack``: it asks for a capsule without an order, and keeps it.

    `python/CuTeDSL/cutlass/cute/runtime.py` of https://github.com/NVIDIA/cutlass, release 4.3. A
    kernel gets the pointer, on the stream that it is launched on.
    """
    own = cuda.stream("own")
    with to_dlpack(x, stream=own) as view:
        taken = take(view.__dlpack__(stream=-1))
        kernel(taken.struct.dl_tensor.data, own)
    taken.delete()


def tvm(cuda, kernel, x):
    """A function of tvm-ffi's, which works on the stream of its environment."""
    function = tvm_ffi.convert(lambda tensor: kernel(tensor.data_ptr(), cuda.default_stream(0)))
    adapt(function, "tvm_ffi")(x)


@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
@pytest.mark.parametrize("compiler", [cute, tvm])
def test_a_kernel_works_in_order(compiler, speaks, cuda):
    producer, seen = cuda.stream("producer"), []

    def kernel(ptr, stream):
        region = Region(ptr, (4,), (4,), "float32", 4)
        seen.append(stream.read(region, name="the kernel's read"))
        stream.fill(region, 14.0, name="the kernel's write")

    with cuda.current_stream(producer):
        x = made_on(cuda, producer, 7.0, speaks)
        compiler(cuda, kernel, x)
        after = producer.read(x)
        producer.fill(x, 9.0, name="the producer's next write")
        cuda.synchronize()
    assert (seen[0].value, after.value) == ([7.0] * 4, [14.0] * 4)
