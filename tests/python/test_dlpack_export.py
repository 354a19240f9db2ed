"""What a `DLPackView` hands out: capsules by what was asked, and the exchange API of its type."""

import capsules
import numpy as np
import pytest
import tables
from capsules import READ_ONLY, DLTensor, HandMade

from cai_bridge import DLPackView, from_cai


@pytest.mark.parametrize(
    ("max_version", "name", "version"),
    [
        *((asked, "dltensor", None) for asked in (None, (0, 0), (0, 8), (0, 99))),
        *(
            (asked, "dltensor_versioned", (1, 3))
            for asked in ((1, 0), (1, 1), (1, 3), (1, 99), (2, 0), (2**70, 0), (np.int64(1), 0))
        ),
    ],
)
def test_the_capsule_is_versioned_from_1_0_on(max_version, name, version, cuda):
    view = from_cai(cuda.array([[1.0, 2.0, 3.0]] * 2, speaks="cai"))
    capsule = view.__dlpack__(max_version=max_version)
    assert capsules.name_of(capsule) == name
    said = capsules.read(capsule)
    assert said.version == version
    assert said.flags == (None if version is None else 0)
    assert (said.shape, said.strides, said.dtype) == ((2, 3), (3, 1), (2, 32, 1))
    assert (said.ptr, said.byte_offset, said.device) == (view.ptr, 0, (2, 0))


def test_the_cpu_has_no_work_stream_and_another_device_is_refused():
    assert tables.work_stream(DLPackView, (1, 0)) == 0
    with pytest.raises(BufferError, match=r"^device: got \(10, 0\); allowed: "):
        tables.work_stream(DLPackView, (10, 0))


def test_the_allocator_says_that_it_is_not_supported():
    code, made, ((context, kind, text),) = tables.allocate(DLPackView, DLTensor())
    assert (code, made, context, kind) == (-1, None, 42, b"RuntimeError")
    assert b"not supported" in text


@pytest.mark.parametrize("flags", [0, READ_ONLY])
def test_a_managed_tensor_becomes_a_view_that_owns_it(flags, cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0])
    tensor = HandMade(x.ptr - 8, flags=flags, byte_offset=8)
    view = tables.to_object(DLPackView, tensor)
    assert type(view) is DLPackView
    assert (view.ptr, view.shape, view.readonly) == (x.ptr, (4,), bool(flags))
    assert (view.stream, view.owner) == (1, None)
    assert cuda.read(view) == [1.0, 2.0, 3.0, 4.0]
    assert tensor.deleted == 0
    capsule = view.__dlpack__(max_version=(1, 0))
    del view
    assert tensor.deleted == 0
    del capsule
    assert tensor.deleted == 1
