"""JAX: it keeps no owner of a CAI input and its arrays never change, so the bridge meets it by
DLPack, read-only.
"""

from __future__ import annotations

import gc
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import convert, from_cai, to_cai
from cai_bridge._libraries import _jax

from . import capsules, libraries
from .converting import WORKERS

COUNT = 1024
LARGE, SIDE, RUNS = 1 << 18, 1 << 25, 50


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


def test_torch_refuses_a_read_only_view_of_a_jax_array_and_takes_a_vouched_one(array, torch):
    with pytest.raises(TypeError, match="read only"):
        torch.as_tensor(to_cai(array), device="cuda")
    vouched = to_cai(array, readonly=False)
    assert not vouched.readonly
    tensor = torch.as_tensor(vouched, device="cuda")
    assert tensor.data_ptr() == array.unsafe_buffer_pointer()
    assert tensor.sum().item() == COUNT * (COUNT - 1) / 2


# JAX 0.11.2 calls a deleter once its work is done, and not where the array is deleted. For versions
# that call it earlier the producer waits for the stream that JAX works on.


def test_the_stream_that_it_computes_on_is_none_of_those_that_it_names(jax):
    device = jax.devices("gpu")[0]
    stream = _jax.work_stream(device.local_hardware_id)
    assert stream
    assert stream == _jax.work_stream(device.local_hardware_id)
    assert stream not in {device.get_stream_for_external_ready_events() for _ in range(8)}


def late_zero(jax: Any) -> Callable[[], Any]:
    """Give what queues some milliseconds of work, whose result is 0.0."""
    jnp = jax.numpy

    @jax.jit
    def late(seed: Any) -> Any:
        step = lambda _, total: jnp.sum(jnp.sin(seed + total)) * jnp.float32(1e-9)  # noqa: E731
        total = jax.lax.fori_loop(0, 32, step, jnp.float32(0))
        return jnp.where(total > 1e30, 1.0, 0.0).astype(jnp.float32)

    seed = jnp.zeros((SIDE,), jnp.float32).block_until_ready()
    late(seed).block_until_ready()
    return lambda: late(seed)


def until_it_ends(caplog: Any) -> None:
    """Wait for the deleter of JAX's array. To wait is all that may happen: to collect garbage takes
    so long that JAX's work would be over.
    """
    until = time.monotonic() + 30
    while not any(getattr(one, "door", "") == "release" for one in caplog.records):
        assert time.monotonic() < until, "JAX has not called the deleter"
        time.sleep(0)


@pytest.mark.parametrize("how", ["convert", "from_dlpack"])
@pytest.mark.parametrize("producer", ["cupy", "torch"])
def test_the_producers_next_write_after_the_end_comes_after_jaxs_read(
    place, jax, note, caplog, producer, how
):
    source = WORKERS[producer](place, LARGE)
    late, copied = late_zero(jax), jax.jit(lambda a, zero: a + zero)
    wrong = pending = pending_at_the_end = 0
    caplog.set_level(logging.DEBUG, "cai_bridge")
    for run in range(RUNS + 1):
        x = source.fresh(float(run))
        source.stream.synchronize()
        with source.working():
            view = from_cai(x)
            y = convert(x, "jax") if how == "convert" else jax.dlpack.from_dlpack(view)
        del view
        seen = copied(y, late())
        caplog.clear()
        del y
        # The first run compiles.
        pending += run > 0 and not seen.is_ready()
        until_it_ends(caplog)
        pending_at_the_end += not seen.is_ready()
        source.write(-1, x)
        wrong += not bool((np.asarray(seen) == run).all())
    note(
        f"{how} to jax, at the end: wrong {wrong}/{RUNS + 1}, its work pending at del "
        f"{pending}/{RUNS}, at the end {pending_at_the_end}/{RUNS + 1}"
    )
    assert wrong == 0
    assert pending, "JAX's work was never pending: the case shows nothing"
