"""What a call of `adapt(op=)` costs beside the same operator written by hand.

    python -m tests.gpu.compiled_cost [--rounds N] [--on cuda|cpu]

The hand-written one is a `torch.library.custom_op` that converts its tensors. Both run in turns, in
one process: each figure is the median of the rounds. With --on cpu NumPy stands for CuPy.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cai_bridge import adapt, convert

BY = 2.0
SCALE = "(Tensor x, float by) -> Tensor"
FORMS = ("into", "returned")
CALLS = 300


def kernel(on: str) -> tuple[str, Callable[..., Any], Callable[[Any], Any]]:
    """Give a library, its kernel, and how it makes an array like another."""
    if on == "cpu":
        import numpy as np

        return "numpy", lambda x, by, y: np.multiply(x, by, out=y), np.empty_like
    import cupy

    from .kernels import cupys_kernel

    return "cupy", cupys_kernel(), cupy.empty_like


def programs(
    on: str, name: str, *, is_compiled: bool
) -> dict[str, dict[str, Callable[[Any], Any]]]:
    """Give calls of the operators in each form, ours and by hand, alone or in a compiled program.

    `name` keeps the operators apart from others'.
    """
    import torch

    library, scale, empty_like = kernel(on)

    def into(x: Any, by: float, y: Any) -> None:
        scale(x, by, y)

    def returned(x: Any, by: float) -> Any:
        y = empty_like(x)
        scale(x, by, y)
        return y

    def by_hand_into(x: Any, by: float) -> Any:
        y = torch.empty_like(x)
        scale(convert(x, library), by, convert(y, library))
        return y

    def by_hand_returned(x: Any, by: float) -> Any:
        return convert(returned(convert(x, library), by), "torch")

    made: dict[str, dict[str, Callable[[Any], Any]]] = {}
    for form, function, hand in zip(
        FORMS, (into, returned), (by_hand_into, by_hand_returned), strict=True
    ):
        op = f"cai_cost::{name}_{on}_{form}"
        ours = adapt(function, library, op=f"{op}{SCALE}", into=form == "into")
        by_hand = torch.library.custom_op(f"{op}_by_hand", hand, mutates_args=(), schema=SCALE)
        by_hand.register_fake(lambda x, by: torch.empty_like(x))
        made[form] = {
            who: _program(f, is_compiled) for who, f in (("ours", ours), ("by hand", by_hand))
        }
    return made


def _program(f: Callable[..., Any], is_compiled: bool) -> Callable[[Any], Any]:
    import torch

    def call(x: Any) -> Any:
        return f(x, BY)

    return torch.compile(call, fullgraph=True) if is_compiled else call  # type: ignore[no-any-return]


def calls_in(call: Callable[[], Any]) -> float:
    """Count the functions that are called in one call, Python's and those in C."""
    for _ in range(20):
        call()
    profile = cProfile.Profile()
    with profile:
        for _ in range(100):
            call()
    return (pstats.Stats(profile).total_calls - 1) / 100  # type: ignore[attr-defined]


def per_call_us(call: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Time calls, in microseconds of this thread's own: others' work on the machine counts less."""
    synchronize()
    start = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    took = time.thread_time_ns() - start
    synchronize()
    return took / CALLS / 1e3


def medians(
    calls: dict[str, Callable[[], Any]], synchronize: Callable[[], Any], rounds: int
) -> dict[str, float]:
    """Time calls in turns, and give the median of each in microseconds."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        per_call_us(call, synchronize)
    for _ in range(rounds):
        for name, call in calls.items():
            took[name].append(per_call_us(call, synchronize))
    return {name: statistics.median(some) for name, some in took.items()}


def measured(on: str, name: str, rounds: int) -> dict[str, dict[str, float]]:
    """Give the microseconds of a call, and how many functions it calls, ours and by hand."""
    import torch

    # The programs share their code, and Dynamo compiles one code for so many programs only.
    torch._dynamo.reset()
    x = torch.ones(1024, device=on)
    synchronize = torch.cuda.synchronize if on == "cuda" else lambda: None
    found = {}
    for is_compiled in (False, True):
        for form, both in programs(on, f"{name}_{is_compiled}", is_compiled=is_compiled).items():
            calls = {who: lambda f=f: f(x) for who, f in both.items()}
            what = f"{form}, compiled" if is_compiled else form
            found[what] = medians(calls, synchronize, rounds)
            found[f"{what}: functions"] = {who: calls_in(call) for who, call in calls.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.compiled_cost")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    import torch

    where = torch.cuda.get_device_name() if asked.on == "cuda" else "CPU, NumPy for CuPy"
    print(f"{Path(__file__).stem}: PyTorch {torch.__version__}, {where}; us a call, medians")
    for what, took in measured(asked.on, "shown", asked.rounds).items():
        ours, by_hand = took["ours"], took["by hand"]
        print(f"{what:28} ours {ours:7.1f}  by hand {by_hand:7.1f}  more {ours - by_hand:+7.1f}")


if __name__ == "__main__":
    main()
