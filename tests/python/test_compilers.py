"""Lines of docs/compiled.md: a stand-in for a compiler that is not here, and tvm-ffi."""

from __future__ import annotations

from typing import Any

import pytest
import tvm_ffi
from capsules import take
from stand_in import made_on

from cai_bridge import adapt, convert, to_dlpack
from cai_bridge.testing._region import Region


class CuteTensor:
    """What CuTe DSL's ``from_dlpack`` makes: it asks for a capsule without an order, and keeps it.

    `python/CuTeDSL/cutlass/cute/runtime.py` of https://github.com/NVIDIA/cutlass, release 4.3. A
    kernel gets the pointer, on the stream that it is launched on.
    """

    def __init__(self, tensor: Any) -> None:
        self.capsule = tensor.__dlpack__(stream=-1)
        self.taken = take(self.capsule)
        self.region = Region(self.taken.struct.dl_tensor.data, (4,), (4,), "float32", 4)


@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
def test_cute_launches_on_the_stream_that_the_view_is_ready_on(speaks: str, cuda: Any) -> None:
    producer, own = cuda.stream("producer"), cuda.stream("own")
    with cuda.current_stream(producer):
        x = made_on(cuda, producer, 7.0, speaks)
        with to_dlpack(x, stream=own) as view:
            tensor = CuteTensor(view)
            seen = own.read(tensor.region, name="the kernel's read")
            own.fill(tensor.region, 14.0, name="the kernel's write")
        tensor.taken.delete()
        after = producer.read(x)
        producer.fill(x, 9.0, name="the producer's next write")
        cuda.synchronize()
    assert (seen.value, after.value) == ([7.0] * 4, [14.0] * 4)


@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
@pytest.mark.parametrize("adapted", [False, True])
def test_a_function_of_tvm_ffis_works_in_order(speaks: str, adapted: bool, cuda: Any) -> None:
    producer, legacy = cuda.stream("producer"), cuda.default_stream(0)
    seen: list[Any] = []

    def kernel(tensor: Any) -> None:
        region = Region(tensor.data_ptr(), (4,), (4,), "float32", 4)
        seen.append(legacy.read(region, name="the kernel's read"))
        legacy.fill(region, 14.0, name="the kernel's write")

    function = tvm_ffi.convert(kernel)
    with cuda.current_stream(producer):
        x = made_on(cuda, producer, 7.0, speaks)
        if adapted:
            adapt(function, "tvm_ffi")(x)
        else:
            function(convert(x, "tvm_ffi"))
        after = producer.read(x)
        producer.fill(x, 9.0, name="the producer's next write")
        cuda.synchronize()
    assert (seen[0].value, after.value) == ([7.0] * 4, [14.0] * 4)
