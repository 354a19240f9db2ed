"""One way for a stream to be gone before the memory goes back, in a process of its own.

    python dead_stream_child.py FUNCTION

A touch of a destroyed stream is a SIGSEGV, so the exit code tells.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined]

# Nobody else is asked for streams in a context that Numba resets.
if "resets" not in sys.argv[1]:
    import cupy
    import torch

from tests.gpu import driver as cuda_driver
from tests.gpu.capsules import OnlyCai

from cai_bridge import _core, from_cai, to_cai

DICT = {"shape": (1024,), "typestr": "<i4", "strides": None, "version": 3}

DRIVER = cuda_driver.load()
DRIVER.use_primary()


class Raw:
    """A stream of the driver's own, which dies when it is told to."""

    def __init__(self) -> None:
        self.handle = DRIVER.stream()

    def die(self) -> None:
        DRIVER.synchronize()
        DRIVER("cuStreamDestroy_v2", self.handle)
        # Others take its place in the heap, so that what is left there names nothing any more.
        for stream in [DRIVER.stream() for _ in range(8)]:
            DRIVER("cuStreamDestroy_v2", stream)


def torch_array() -> Any:
    return torch.ones(1024, device="cuda")


def cupy_array() -> Any:
    return cupy.ones(1024, dtype=np.float32)


def bare_consumer_of_to_cai() -> None:
    stream = Raw()
    view = to_cai(torch_array(), stream=stream.handle)
    stream.die()
    del view


def bare_consumer_of_a_capsule() -> None:
    stream = Raw()
    view = from_cai(cupy_array())
    capsule = view.__dlpack__(stream=stream.handle, max_version=(1, 3))
    stream.die()
    del capsule, view


def bare_declared_producer() -> None:
    stream, side = Raw(), torch.cuda.Stream()
    array = cupy_array()
    view = from_cai(array, stream=stream.handle)
    with torch.cuda.stream(side):
        tensor = torch.from_dlpack(view)
    stream.die()
    del tensor, view


def torch_external_consumer() -> None:
    stream = Raw()
    external = torch.cuda.ExternalStream(stream.handle)
    views = [to_cai(torch_array(), stream=external)]
    with torch.cuda.stream(external):
        views.append(torch.from_dlpack(from_cai(cupy_array())))
    stream.die()
    views.clear()


def cupy_external_consumer() -> None:
    stream = Raw()
    external = cupy.cuda.ExternalStream(stream.handle)
    views = [to_cai(torch_array(), stream=external)]
    with external:
        views.append(cupy.from_dlpack(from_cai(cupy_array())))
    stream.die()
    views.clear()


def numba_external_consumer() -> None:
    from numba import cuda

    stream = Raw()
    view = to_cai(torch_array(), stream=cuda.external_stream(stream.handle))
    stream.die()
    del view


def cupy_producer_whose_stream_is_dropped() -> None:
    """CuPy's dict names the current stream, which its arrays do not keep: the view does."""
    stream, side = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    with stream:
        view = from_cai(cupy_array())
    del stream
    gc.collect()
    with torch.cuda.stream(side):
        tensor = torch.from_dlpack(view)
    del tensor, view


def cupy_consumer_whose_stream_is_dropped() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    view = to_cai(torch_array(), stream=stream)
    with stream:
        array = cupy.from_dlpack(from_cai(cupy_array()))
    del stream
    gc.collect()
    del view, array


def closed_object_of_cuda_core() -> None:
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    views: list[Any] = [to_cai(torch_array(), stream=stream)]
    views.append(from_cai(cupy_array()).__dlpack__(stream=stream))
    DRIVER.synchronize()
    stream.close()
    views.clear()


def thread_that_ended() -> None:
    """Another thread's per-thread default stream, once that thread is gone."""
    import threading

    views: list[Any] = []

    def convert() -> None:
        array = cupy_array()
        array = OnlyCai({**array.__cuda_array_interface__, "stream": 2}, keep=array)
        views.append(to_cai(torch_array(), stream=2))
        views.append(from_cai(array).__dlpack__(stream=1))

    thread = threading.Thread(target=convert)
    thread.start()
    thread.join()
    views.clear()


def come_back() -> None:
    """Make the primary context anew, which Numba does not do by itself once it has closed it."""
    DRIVER.forget(DRIVER.primary)
    DRIVER.primary = DRIVER.get("cuDevicePrimaryCtxRetain", DRIVER.device)
    DRIVER.use_primary()


def numba_resets_the_context() -> None:
    """Numba takes down the primary context: its streams, events and memory go with it."""
    from numba import cuda

    stream, mine = cuda.stream(), cuda.stream()
    array = cuda.device_array(1024, "float32", stream=stream)
    views: list[Any] = [from_cai(array), to_cai(array, stream=mine)]
    views.append(views[0].__dlpack__(stream=mine))
    # Legacy, so that an event of the bridge's has been made in the context.
    views.append(from_cai(array).__dlpack__(stream=1))
    DRIVER.synchronize()
    cuda.close()
    views.clear()
    gc.collect()
    come_back()  # at the same address
    producer, consumer = DRIVER.stream(), DRIVER.stream()
    again = DRIVER.allocate(4 * 1024)
    DRIVER.write(again, 7, 1024, producer)
    view = to_cai(OnlyCai({**DICT, "data": (again, False), "stream": producer}), stream=consumer)
    copied = DRIVER.allocate(4 * 1024)
    DRIVER.copy(copied, view.ptr, 4 * 1024, consumer)
    del view
    DRIVER.synchronize()
    assert DRIVER.words(copied, 1024) == [7] * 1024


def numba_resets_it_with_ends_pending() -> None:
    """The same while memory waits for a consumer's work: its mark is an event of the old life."""
    from numba import cuda

    array = cuda.device_array(1024, "float32")
    capsule = from_cai(array).__dlpack__(stream=1)
    side = cuda.stream()
    view = to_cai(capsule, stream=side)
    DRIVER.spin(int(side.handle), 50.0)
    del view, capsule
    cuda.close()
    for _ in range(3):
        _core._settle()
    assert _core._settle() == 0
    come_back()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    gc.collect()
    DRIVER.synchronize()
    print("alive")
