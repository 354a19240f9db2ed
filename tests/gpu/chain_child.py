"""A loop that takes an array from library to library and back, in a process of its own.

    python chain_child.py ROUNDS LIBRARY LIBRARY …

It is what anybody would write: nothing is said of streams, and names go as they are reassigned. The
memory of each round's first array goes back in the midst of the next round's conversions.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined]

from cai_bridge import from_cai, to_cai

COUNT = 1 << 12


def take(library: str, x: Any) -> Any:
    """Take an array as a library's, by the call that it documents."""
    match library:
        case "torch":
            import torch

            return torch.from_dlpack(x if hasattr(x, "__dlpack__") else from_cai(x))
        case "cupy":
            import cupy

            return cupy.asarray(to_cai(x))
        case "numba":
            from numba import cuda

            return cuda.as_cuda_array(to_cai(x))
    import jax

    return jax.dlpack.from_dlpack(from_cai(to_cai(x), readonly=False))


def main(rounds: int, libraries: list[str]) -> None:
    import cupy

    x: Any = cupy.zeros(COUNT, dtype=cupy.float32)
    for number in range(1, rounds + 1):
        for library in libraries:
            x = take(library, from_cai(x) if hasattr(x, "get") and library == "torch" else x)
        # JAX's arrays are read-only: the next round begins with an array of its own.
        x = cupy.asarray(to_cai(x)) + cupy.float32(1)
        if number % 10 == 0:
            assert (x.get() == number).all(), f"round {number}: {x}"
    print("right", flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    if os.environ.get("WITHOUT_EXCHANGE_API"):
        import torch

        del torch.Tensor.__dlpack_c_exchange_api__
    main(int(sys.argv[1]), sys.argv[2:])
