"""What the workers of test_dask.py run, and a simulated device in each but the last.

The module is preloaded by the workers. Nothing here imports `cai_bridge.dask`: in a worker, Dask
finds the serializers by itself.
"""

import gc
import os
import signal
import sys
import weakref
from pathlib import Path

import numpy as np
from distributed.utils import DequeHandler

from cai_bridge import convert, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

WITHOUT_A_GPU = 2
CUDA = None
# What a library would hold: arrays and streams by their names.
HELD = {}


def dask_setup(worker):
    """Put a device in place, as Dask calls it when a worker starts."""
    global CUDA  # noqa: PLW0603
    if worker.name != WITHOUT_A_GPU:
        CUDA = simulated_cuda(devices=2, check=False).__enter__()


def made(kind, values, dtype="float32", readonly=False):
    """Make an array that its stream will write, late, and hand out a view of it."""
    stream = CUDA.stream("late", blocking=False)
    how = {"dtype": dtype, "readonly": readonly, "speaks": "cai3", "name": "x"}
    HELD["x"], HELD["stream"] = CUDA.array(values, stream=stream, **how), stream
    return (to_cai if kind == "CaiView" else to_dlpack)(HELD["x"])


def late(value):
    """Make an array that is full of `value` once its stream has run, beside one that stays busy."""
    stream, busy = CUDA.stream("late"), CUDA.stream("busy")
    HELD["array"], HELD["other"] = (CUDA.array([0.0] * 4, speaks="cai3") for _ in range(2))
    stream.fill(HELD["array"], value)
    busy.fill(HELD["other"], 9.0)
    return to_dlpack(HELD["array"])


def strided(kind):
    """Make a view of every other item of each row, in the opposite order of rows."""
    array = CUDA.array(
        np.arange(12.0, dtype="float32").reshape(3, 4), speaks="cai3", stream=CUDA.stream()
    )
    said = {**array.__cuda_array_interface__, "shape": (3, 2), "strides": (-16, 8)}
    said["data"] = (array.ptr + 32, False)

    reversed_rows = type("Array", (), {"__cuda_array_interface__": said, "keep": array})()
    return (to_cai if kind == "CaiView" else to_dlpack)(reversed_rows)


def seen(view):
    """Tell what arrived, and its bytes."""
    host = np.ascontiguousarray(convert(view, "numpy"))
    kind, dtype = type(view).__name__, view._dtype_name
    return kind, tuple(view.shape), dtype, view.readonly, host.reshape(-1).view("u1").tobytes()


def released():
    view = late(1.0)
    view.release()
    return view


def two():
    """Make two views, the first of an array of the second GPU."""
    first = CUDA.array([1.0], device=1, speaks="cai3")
    return {"first": to_dlpack(first), "then": to_cai(CUDA.array([2.0]))}


def of_both(views):
    return [(views[name].device, values(views[name])) for name in ("first", "then")]


def no_memory():
    for call in ("cuMemAllocAsync", "cuMemAlloc"):
        CUDA.fail(call, error="CUDA_ERROR_OUT_OF_MEMORY")


def address(view):
    return view.ptr


def written(view, value):
    """Write to what arrived, and read it."""
    stream = CUDA.stream("writer")
    with to_cai(view, stream=stream) as mine:
        stream.fill(mine, value)
    return values(view)


def used(view):
    convert(view, "numpy")


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(value, flag):
    """Make a view whose first sender is killed while it is sent: the pending work does that."""
    view = late(value)
    if not Path(flag).exists():
        Path(flag).touch()
        HELD["stream"] = stream = CUDA.stream("deadly")
        array = CUDA.array([0.0] * 4, speaks="cai3")
        stream.launch(die, writes=[array], name="kills the process")
        view = to_dlpack(array)
    return view


def die_when_receiving():
    import cai_bridge.dask

    cai_bridge.dask.convert = die


def values(view):
    return convert(view, "numpy").tolist()


def pending():
    return CUDA.pending


def reports():
    """Let all work run, and tell what the happens-before check found."""
    if CUDA is None:
        return []
    CUDA.synchronize()
    return [str(report) for report in CUDA.reports]


def lent():
    """Make a view that alone keeps its array."""
    array = CUDA.array([1.0, 2.0], speaks="cai3")
    HELD["lent"] = weakref.ref(array)
    return to_dlpack(array)


def forget_logs():
    """Drop the records that Dask keeps: a failed transfer's has a traceback, and that the data."""
    DequeHandler.clear_all_instances()


def is_lent():
    gc.collect()
    return HELD["lent"]() is not None


def hide_ml_dtypes(hide):
    """Have `import ml_dtypes` fail, as where it is not installed."""
    if hide:
        HELD["ml_dtypes"] = sys.modules.get("ml_dtypes")
        sys.modules["ml_dtypes"] = None
    elif (module := HELD.pop("ml_dtypes", None)) is not None:
        sys.modules["ml_dtypes"] = module
    else:
        del sys.modules["ml_dtypes"]
