"""JAX: it keeps no owner of a CAI input and its arrays never change, so the bridge meets it by
DLPack, read-only.
"""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules, libraries, streams

COUNT = 1024


@pytest.fixture
def jax():
    return libraries.gpu_jax()


@pytest.fixture
def array(driver, jax):
    made = jax.block_until_ready(
        jax.device_put(np.arange(COUNT, dtype=np.float32), jax.devices("gpu")[0])
    )
    driver.synchronize()
    return made


@pytest.fixture
def owner(words):
    """Makes a CAI exporter of our own: a weak reference tells when its consumer let go of it."""
    return lambda: capsules.OnlyCai(capsules.interface(words(COUNT), (COUNT,)))


def test_jax_keeps_no_owner_of_a_cai_input(jax, owner):
    exporter = owner()
    gone = weakref.ref(exporter)
    taken = jax.numpy.asarray(exporter)
    del exporter
    gc.collect()
    assert gone() is None, "JAX keeps the owner now; the reason for a DLPackView is gone"
    assert taken.shape == (COUNT,)


def test_jax_keeps_the_owner_of_a_dlpack_view_for_as_long_as_its_array(jax, owner):
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


def test_jax_asks_for_a_legacy_capsule_so_read_only_memory_needs_the_callers_word(jax, owner):
    exporter = owner()
    with pytest.raises(BufferError, match=r"read-?only"):
        jax.dlpack.from_dlpack(from_cai(exporter, readonly=True))
    exporter.__cuda_array_interface__["data"] = (exporter.__cuda_array_interface__["data"][0], True)
    vouched = jax.dlpack.from_dlpack(from_cai(exporter, readonly=False))
    assert vouched.shape == (COUNT,)


def test_a_view_of_a_jax_array_is_read_only_because_jax_arrays_never_change(array):
    view = to_cai(array)
    assert view.readonly
    assert view.__cuda_array_interface__["data"] == (array.unsafe_buffer_pointer(), True)


def test_torch_refuses_a_read_only_view_of_a_jax_array_and_takes_a_vouched_one(array):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="read only"):
        torch.as_tensor(to_cai(array), device="cuda")
    vouched = to_cai(array, readonly=False)
    assert not vouched.readonly
    tensor = torch.as_tensor(vouched, device="cuda")
    assert tensor.data_ptr() == array.unsafe_buffer_pointer()
    assert tensor.sum().item() == COUNT * (COUNT - 1) / 2


def test_a_numba_kernel_cannot_write_a_jax_array_by_a_view(array):
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


@pytest.mark.usefixtures("driver", "jax")
@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per-thread"])
def test_a_late_array_is_ready_on_a_default_stream(stream):
    from cai_bridge.conformance.lab.gpu import GpuLab
    from cai_bridge.conformance.libraries.jax import Producer

    producer, lab = Producer(), GpuLab()
    for value in lab.values():
        late = producer.late(lab, value, COUNT)
        view = to_cai(late.array, stream=stream)
        lab.expect_read(stream, lab.words(view.ptr, COUNT), late, f"to_cai was asked for {stream}")
    lab.close()
