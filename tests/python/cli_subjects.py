"""What the command's tests ask it about: adapters of simulated arrays, functions, and mistakes."""

import os
import sys
from pathlib import Path

from cai_bridge.conformance import ConsumerAdapter, ProducerAdapter
from cai_bridge.testing import SimulatedCuda


def array(**wishes):
    return SimulatedCuda.current().array([1.0, 2.0], dtype="float32", **wishes)


def make(shape, dtype):
    return SimulatedCuda.current().array(shape=shape, dtype=dtype, speaks=("cai", "dlpack"))


def take(x):
    return x


def neither(a, b, c):
    return a, b, c


class Producer(ProducerAdapter):
    name = "<script>alert(1)</script>"

    def make(self, shape, dtype):
        return make(shape, dtype)


class Consumer(ConsumerAdapter):
    name = "taker"

    def take(self, x):
        return x


class Both(Producer, Consumer):
    name = "both"


class Poor(ProducerAdapter):
    """Hands out dicts that are no dicts of the protocol."""

    name = "poor"

    def make(self, shape, dtype):
        class Array:
            kept = make(shape, dtype)

            @property
            def __cuda_array_interface__(self):
                return {**self.kept.__cuda_array_interface__, "typestr": ">f4"}

        return Array()


class Failing(Producer):
    """Fails by itself."""

    name = "failing"

    def readonly(self, array):
        return self.locked(array)

    def locked(self, array):
        raise RuntimeError("out of luck")


class Leaving(Producer):
    """Ends the process when it is asked for an array."""

    name = "leaving"

    def make(self, shape, dtype):
        sys.exit(0)


class LeavingAtOnce(Producer):
    def __init__(self):
        sys.exit(0)


class DyingApart(Producer):
    """Ends only the child that judges it."""

    def __init__(self):
        if "isolated" in sys.argv[0]:
            os._exit(3)


class Aborting(Producer):
    name = "aborting"

    def readonly(self, array):
        os.abort()


class Unprintable(Producer):
    name = "two\nlines \x1b[31m \udcff"

    def make(self, shape, dtype):
        raise ValueError("a half \udcff, a colour \x1b[31m,\na line")


class WordlessError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Silent(Producer):
    name = "silent"

    def make(self, shape, dtype):
        raise WordlessError


class Counting(Producer):
    """Notes each array that it makes in a file of the working directory."""

    dtypes = ("float32", "float64", "int16", "uint8", "int64", "complex64", "int8", "uint16")

    def make(self, shape, dtype):
        with Path("made").open("a") as to:
            to.write(".")
        return super().make(shape, dtype)


class Contradicts:
    """Says one thing by CAI, and another by DLPack."""

    def __init__(self):
        self.array = make((3,), "float32")
        self.__dlpack__ = self.array.__dlpack__
        self.__dlpack_device__ = self.array.__dlpack_device__

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, "shape": (2,)}


class Malformed:
    """Has elements, and no address."""

    @property
    def __cuda_array_interface__(self):
        return {**make((3,), "float32").__cuda_array_interface__, "data": (0, False)}


class Unread:
    """Has a dict that cannot be read."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("no dict today")


poor = Poor()


def fails():
    raise RuntimeError("out of luck")


def interrupted():
    raise KeyboardInterrupt


def unordered():
    cuda = SimulatedCuda.current()
    made = cuda.array([1.0], stream=cuda.stream(), speaks="cai")
    made.assign(2.0)
    return made
