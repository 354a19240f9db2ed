"""Bring an array that speaks only the CUDA Array Interface to torch and to JAX.

`torch.as_tensor` ignores the dict's stream, and `jnp.asarray` does not keep the memory's owner
alive. So both get a `DLPackView`, through their `from_dlpack`.
"""

from __future__ import annotations

from typing import Any

from cai_bridge import from_cai


class Frame:
    """An in-house buffer: it owns device memory, and speaks only the CUDA Array Interface."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The dict of the memory, with the stream of its pending work."""
        return self._memory.__cuda_array_interface__


def on_gpu(cupy: Any) -> None:
    """Use CuPy's memory for the frame."""
    with cupy.cuda.Stream(non_blocking=True):
        frame = Frame(cupy.arange(4, dtype="float32"))
        view = from_cai(frame)
    try:
        import torch

        print("torch:", torch.from_dlpack(view))
    except ImportError:
        print("torch is not installed")
    try:
        import jax

        print("JAX:  ", jax.dlpack.from_dlpack(view))
    except ImportError:
        print("JAX is not installed")


def simulated() -> None:
    """Use the simulated device, with a consumer that names its stream as torch and JAX do."""
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        theirs, ours = cuda.stream("the frame's"), cuda.stream("torch's")
        memory = cuda.array([0.0] * 4, dtype="float32", speaks="cai", name="frame")
        source = cuda.array([0.0, 1.0, 2.0, 3.0], dtype="float32", name="source")
        theirs.copy(memory, source)
        view = from_cai(Frame(memory))
        seen = cuda.consumer("dlpack", stream=ours).read(view)
        ours.synchronize()
        print("a DLPack consumer:", seen.value)
        assert seen.value == [0.0, 1.0, 2.0, 3.0]


def main() -> None:
    """Run on a GPU with CuPy if there is one, else on the simulated device."""
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None and cupy.cuda.is_available():
        on_gpu(cupy)
    else:
        simulated()


if __name__ == "__main__":
    main()
