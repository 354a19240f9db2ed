"""Libraries that the matrix judges: each has an outcome of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cai_bridge.conformance.lab.simulated import SimulatedLab
from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ROUTES, run_matrix
from cai_bridge.testing import SimulatedCuda, describe, simulated_cuda
from cai_bridge.testing._region import Region
from cai_bridge.testing._work import region_of_dict

CONVERT, BY_CAI, BY_DLPACK = "convert(x, library)", "x by CAI", "x by DLPack"


def judged(lab, producer, consumer, aspect, route=BY_CAI):
    """One aspect of one route."""
    (way,) = [one.way for one in ROUTES if one.name == route]
    matrix = run_matrix([producer], [consumer], lab=lab, aspects=[aspect], ways=[way])
    return matrix.cell(producer.name, consumer.name, route)[aspect]


@pytest.fixture
def device():
    """A simulated device, whose faults are the test's to look at."""
    with simulated_cuda(check=False) as device:
        yield device


@pytest.fixture
def lab(device):
    """A lab on the test's own device."""
    return SimulatedLab(device, own=False)


class Producer(simulated.Producer):
    """Arrays of a pool, which are handed out again at once."""

    speaks = ("dlpack", "cai")
    name = "pool"
    dtypes = ("float32", "bfloat16")

    def make(self, shape, dtype):
        cuda = SimulatedCuda.current()
        return cuda.array(
            shape=shape, dtype=dtype, speaks=self.speaks, stream=self.current, memory="pool"
        )

    def readonly(self, array):
        array = SimulatedCuda.current().array([1.0] * 12, speaks=self.speaks, readonly=True)
        self.kept = array
        return array


class Silent(Producer):
    """Has read-only arrays, and does not say so."""

    name = "silent"

    def readonly(self, array):
        return array


class OldDict(Producer):
    """Says nothing of streams in its dicts, as PyTorch and JAX."""

    speaks = ("dlpack", "cai2")
    name = "old dict"


class Converted(simulated.Converted):
    """What the consumer takes of a view."""

    arrays = ()

    def make(self, view, stream):
        return self._consumer.take(view)


class Heedless(simulated._Library, simulated.ConsumerAdapter):
    """Ignores the stream and the flag of a dict, and makes no return edge."""

    name = "heedless"
    dtypes = ("float32", "bfloat16")

    def __init__(self):
        super().__init__()
        self.library = Converted(self)

    def take(self, x):
        if hasattr(type(x), "__dlpack__"):
            capsule = x.__dlpack__(stream=self.current.handle, max_version=(1, 3))
            said = describe(capsule)["capsule"]
            region = Region(said.ptr, said.shape, said.strides, said.dtype, said.itemsize)
            return region, simulated.take(capsule)
        return region_of_dict(x.__cuda_array_interface__, x), x

    def copy(self, array):
        region, _ = array
        return self.current.read(region), self.current

    def values(self, copied):
        pending, stream = copied
        stream.synchronize()
        return pending.value

    def fill(self, array, value):
        region, _ = array
        # The flag is dropped.
        self.current.fill(replace(region, readonly=False), value)


class Blocks(Heedless):
    """Waits on the host for the dict's stream, as Numba and CuPy."""

    name = "blocks"
    doors = ("cai",)

    def take(self, x):
        stream = x.__cuda_array_interface__.get("stream")
        if stream:
            SimulatedCuda.current().stream_of(stream).synchronize()
        return super().take(x)


class Nameless(Heedless):
    """Has no streams that a caller can name, as JAX."""

    name = "nameless"

    def stream(self):
        return None


class Refuses(Heedless):
    """Takes nothing."""

    name = "refuses"

    def take(self, x):
        raise BufferError("not today")


class Copies(Heedless):
    """Reads other memory than the producer's."""

    name = "copies"

    def take(self, x):
        cuda = SimulatedCuda.current()
        copy = cuda.array(cuda.read(x), dtype="float32", speaks=("cai",))
        return super().take(copy)
