"""Give a torch tensor to a library that speaks only the CUDA Array Interface.

Such libraries are Warp, pylibcudf, ucxx, cuCIM, Numba and pyarrow.cuda. Torch's own dict names no
stream, so they read the tensor while torch still writes it. Without a GPU the program uses a
simulated array and a simulated consumer, which reads the dict as cuda.core does.
"""

from __future__ import annotations

from typing import Any

from cai_bridge import to_cai


def with_torch(torch: Any, cupy: Any) -> list[float]:
    """Give CuPy a tensor that a side stream is still writing, through the dict."""
    side = torch.cuda.Stream()
    x = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.fill_(7)
        view = to_cai(x)  # the dict names torch's current stream; no wait, no copy
    with cupy.cuda.Stream(non_blocking=True):
        return cupy.asarray(view).get().tolist()  # CuPy waits for the dict's stream


def with_simulated_device() -> list[float]:
    """Do the same on the simulated device."""
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        side, own = cuda.stream("side"), cuda.stream("the library's own")
        x = cuda.array([0.0] * 4, dtype="float32", speaks="exchange", name="tensor")
        side.fill(x, 7.0)
        with cuda.current_stream(side):
            view = to_cai(x)
        seen = cuda.consumer("cai-waits", stream=own).read(view)
        own.synchronize()
        return seen.value


def main() -> None:
    """Run on a GPU with torch and CuPy if there are both, else on the simulated device."""
    try:
        import cupy
        import torch

        values = with_torch(torch, cupy) if torch.cuda.is_available() else with_simulated_device()
    except ImportError:
        values = with_simulated_device()
    print(values)
    assert values == [7.0] * 4


if __name__ == "__main__":
    main()
