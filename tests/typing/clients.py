"""Arrays of JAX and PyTorch, and a `Library` as the manual writes one, for a strict type checker.

`make test-clients` checks it with mypy, beside the real libraries. It never runs.
"""

from __future__ import annotations

from typing import assert_type

import jax
import torch

from cai_bridge import (
    CaiView,
    DLPackView,
    Library,
    adapt,
    convert,
    from_cai,
    register,
    to_cai,
    to_dlpack,
)


def arrays(a: jax.Array, t: torch.Tensor) -> None:
    assert_type(to_cai(a), CaiView)
    assert_type(to_cai(t), CaiView)
    assert_type(to_dlpack(a), DLPackView)
    assert_type(to_dlpack(t), DLPackView)
    assert_type(from_cai(t), DLPackView)
    assert_type(convert(a, "cai"), CaiView)
    assert_type(convert(t, "dlpack"), DLPackView)
    assert_type(convert(a, torch.Tensor), torch.Tensor)


@adapt(to="cupy", returns=None)
def total(x: CaiView) -> float:
    return float(x.shape[0])


def called(a: jax.Array, t: torch.Tensor) -> None:
    # The function's annotations say what its library takes. Callers pass any library's arrays.
    assert_type(total(a), float)
    assert_type(total(x=t), float)


class Buffer:
    def __init__(self, view: CaiView, stream: object) -> None:
        self.view, self.stream = view, stream


class MyLibrary(Library):
    name = "mylib"
    arrays = (f"{__name__}:Buffer",)
    view = CaiView
    writes = True

    def current_stream(self, device: int) -> int:
        return 1

    def make(self, view: CaiView, stream: object) -> Buffer:
        return Buffer(view, stream)


register(MyLibrary())
