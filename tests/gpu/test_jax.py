"""JAX: it keeps no owner of a CAI input and its arrays never change, so the bridge meets it by
DLPack, read-only.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules, libraries, streams

COUNT = 1024


@pytest.fixture
def jax() -> Any:
    return libraries.gpu_jax()


@pytest.fixture
def array(driver: Any, jax: Any) -> Any:
    made = jax.block_until_ready(
        jax.device_put(np.arange(COUNT, dtype=np.float32), jax.devices("gpu")[0])
    )
    driver.synchronize()
    return made


class Owner(capsules.OnlyCai):
    """A CAI exporter of our own, so that a weak reference tells when the consumer let go of it."""


@pytest.fixture
def owner(words: Callable[..., int]) -> Callable[[], Owner]:
    return lambda: Owner(capsules.interface(words(COUNT), (COUNT,)))


# JAX as the consumer


def test_jax_keeps_no_owner_of_a_cai_input(jax: Any, owner: Callable[[], Owner]) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    taken = jax.numpy.asarray(exporter)
    del exporter
    gc.collect()
    assert gone() is None, "JAX keeps the owner now; the reason for a DLPackView is gone"
    assert taken.shape == (COUNT,)


def test_jax_keeps_the_owner_of_a_dlpack_view_for_as_long_as_its_array(
    jax: Any, owner: Callable[[], Owner]
) -> None:
    exporter = owner()
    gone = weakref.ref(exporter)
    taken = jax.dlpack.from_dlpack(from_cai(exporter))
    del exporter
    gc.collect()
    assert gone() is not None
    assert not np.asarray(taken).any()
    del taken
    for _ in range(10):  # JAX drops foreign references when it next gets to it
        gc.collect()
        jax.block_until_ready(jax.numpy.zeros(1))
        time.sleep(0.01)
        if gone() is None:
            break
    assert gone() is None


def test_jax_takes_a_dlpack_view_without_a_copy(driver: Any, jax: Any) -> None:
    cupy = pytest.importorskip("cupy")
    source = cupy.arange(COUNT, dtype=np.float32)
    driver.synchronize()
    taken = jax.dlpack.from_dlpack(from_cai(source))
    assert taken.unsafe_buffer_pointer() == source.data.ptr
    assert (np.asarray(taken) == np.arange(COUNT)).all()


def test_jax_asks_for_a_legacy_capsule_so_read_only_memory_needs_the_callers_word(
    jax: Any, owner: Callable[[], Owner]
) -> None:
    exporter = owner()
    with pytest.raises(BufferError, match=r"read-?only"):
        jax.dlpack.from_dlpack(from_cai(exporter, readonly=True))
    exporter.__cuda_array_interface__["data"] = (exporter.__cuda_array_interface__["data"][0], True)
    vouched = jax.dlpack.from_dlpack(from_cai(exporter, readonly=False))
    assert vouched.shape == (COUNT,)


# JAX as the producer


def test_a_view_of_a_jax_array_is_read_only_because_jax_arrays_never_change(array: Any) -> None:
    view = to_cai(array)
    assert view.readonly
    assert view.__cuda_array_interface__["data"] == (array.unsafe_buffer_pointer(), True)


def test_torch_refuses_a_read_only_view_of_a_jax_array_and_takes_a_vouched_one(array: Any) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="read only"):
        torch.as_tensor(to_cai(array), device="cuda")
    vouched = to_cai(array, readonly=False)
    assert not vouched.readonly
    tensor = torch.as_tensor(vouched, device="cuda")
    assert tensor.data_ptr() == array.unsafe_buffer_pointer()
    assert tensor.sum().item() == COUNT * (COUNT - 1) / 2


def test_a_numba_kernel_cannot_write_a_jax_array_by_a_view(array: Any) -> None:
    pytest.importorskip("numba")
    fill, copy = streams.numba_kernels()
    from numba import cuda
    from numba.core.errors import NumbaError

    out = cuda.device_array(COUNT, dtype=np.float32)
    copy[streams.blocks_for(COUNT)](to_cai(array), out)
    assert (out.copy_to_host() == np.arange(COUNT)).all()
    with pytest.raises(NumbaError, match="readonly"):
        fill[streams.blocks_for(COUNT)](to_cai(array), 1.0)
    assert (np.asarray(array) == np.arange(COUNT)).all()


def test_from_cai_keeps_jaxs_read_only_flag_and_refuses_to_lose_it_in_a_legacy_capsule(
    array: Any,
) -> None:
    view = from_cai(array, stream=-1)
    assert view.readonly
    assert capsules.read_capsule(view.__dlpack__(max_version=(1, 3))).readonly
    with pytest.raises(BufferError, match=r"read-?only"):
        view.__dlpack__()
    assert not from_cai(array, stream=-1, readonly=False).readonly


@pytest.mark.usefixtures("driver", "jax")
@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per-thread"])
def test_a_late_array_is_ready_on_a_default_stream(stream: int) -> None:
    from cai_bridge.conformance.lab.gpu import GpuLab
    from cai_bridge.conformance.libraries.jax import Producer

    producer, lab = Producer(), GpuLab()
    for value in lab.values():
        late = producer.late(lab, value, COUNT)
        view = to_cai(late.array, stream=stream)
        lab.expect_read(stream, lab.words(view.ptr, COUNT), late, f"to_cai was asked for {stream}")
    lab.close()


def test_a_jax_array_comes_back_to_jax_through_both_views(jax: Any, array: Any) -> None:
    back = jax.dlpack.from_dlpack(from_cai(to_cai(array), readonly=False))
    assert back.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    assert (np.asarray(back) == np.asarray(array)).all()
