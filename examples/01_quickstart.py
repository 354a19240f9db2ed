"""Cross the bridge both ways, and log each wait that it makes or leaves out.

Runs on a GPU with torch or CuPy if there is one, else on the simulated device.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from cai_bridge import from_cai, to_cai

logging.basicConfig(format="      %(message)s", stream=sys.stdout)
logging.getLogger("cai_bridge").setLevel(logging.DEBUG)


def both_ways(array: Any, pointer: int, producer: Any, consumer: Any) -> Any:
    """Convert `array` there and back, from the stream `producer` to the stream `consumer`."""
    print("\nDLPack -> CUDA Array Interface, usable on the consumer's stream")
    cai = to_cai(array, stream=consumer)
    print(f"  {cai!r}")
    print(f"  dict: {cai.__cuda_array_interface__}")
    assert cai.__cuda_array_interface__["data"] == (pointer, False), "nothing was copied"

    print("\nand back: CUDA Array Interface -> DLPack")
    dlpack = from_cai(cai)
    print(f"  {dlpack!r}")
    for label, stream in (("the consumer's stream", consumer), ("the producer's stream", producer)):
        print(f"  __dlpack__ for {label}")
        capsule = dlpack.__dlpack__(stream=stream, max_version=(1, 3))
        print(f"      {capsule!r}")
        back = to_cai(capsule, stream=-1)
        assert (back.ptr, back.shape) == (pointer, cai.shape), "the round trip is the same array"
        print(f"      {capsule!r}, consumed by to_cai: {back!r}")
    return cai


def simulated() -> None:
    """Run on the simulated device, which needs no GPU and reports each race."""
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
        x = cuda.array([[0.0] * 4] * 2, dtype="float32", speaks="exchange", name="x")
        producer.fill(x, 7.0)  # queued: it runs late
        with cuda.current_stream(producer):
            cai = both_ways(x, x.ptr, producer, consumer)
        seen = consumer.read(cai)
        consumer.synchronize()
        print(f"\nthe consumer reads {seen.value}")
        assert seen.value == [[7.0] * 4] * 2
        cuda.check()
        print("no race, no use after free, no dead stream")


def on_torch(torch: Any) -> None:
    """Run with torch on side streams. The write waits behind 50 ms of spinning."""
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(2, 4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(producer):
        torch.cuda._sleep(100_000_000)
        x.fill_(7)
        cai = both_ways(x, x.data_ptr(), producer, consumer)
    with torch.cuda.stream(consumer):
        # as_tensor ignores the dict's stream, so to_cai was given the consumer's stream.
        seen = torch.as_tensor(cai, device="cuda").clone()
    consumer.synchronize()
    print(f"\nthe consumer reads {seen.tolist()}")
    assert seen.tolist() == [[7.0] * 4] * 2


def on_cupy(cupy: Any) -> None:
    """Run with CuPy alone."""
    producer = cupy.cuda.Stream(non_blocking=True)
    consumer = cupy.cuda.Stream(non_blocking=True)
    with producer:
        x = cupy.full((2, 4), 7, dtype="float32")
        cai = both_ways(x, x.data.ptr, producer, consumer)
    with consumer:
        seen = cupy.asarray(cai).copy()
    consumer.synchronize()
    print(f"\nthe consumer reads {seen.tolist()}")
    assert seen.tolist() == [[7.0] * 4] * 2


def find() -> tuple[str, Callable[[], None]]:
    """Choose a GPU with torch or CuPy, else the simulated device."""
    try:
        import torch

        if torch.cuda.is_available():
            name = torch.cuda.get_device_name()
            return f"{name}, torch {torch.__version__}", lambda: on_torch(torch)
    except ImportError:
        pass
    try:
        import cupy

        if cupy.cuda.is_available():
            return f"a GPU, CuPy {cupy.__version__}", lambda: on_cupy(cupy)
    except ImportError:
        pass
    return "the simulated device", simulated


if __name__ == "__main__":
    where, demonstrate = find()
    print(f"cai_bridge on {where}")
    demonstrate()
