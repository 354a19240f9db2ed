"""A kernel on a stream of its own in a compiled program of PyTorch's, which reads what it wrote."""

import sys
from collections.abc import Callable
from typing import Any

import cupy
import torch
from common import WORDS, run

from cai_bridge import adapt

own = cupy.cuda.Stream(non_blocking=True)
copy = cupy.ElementwiseKernel("T x", "T y", "y = x", "copied")
# No kernel of inductor's is timed before the program runs.
QUIET = {"triton.autotune_pointwise": False, "compile_threads": 1}


def compiled(name: str, before: Callable[[], Any], **how: Any) -> Any:
    @adapt(to="cupy", op=f"perturbed::{name}(Tensor x) -> Tensor", into=True, **how)
    def copied(x: Any, y: Any) -> None:
        before()
        with own:
            copy(x, y)  # the write

    return torch.compile(lambda x: copied(x + 1.0) - 1.0, fullgraph=True, options=QUIET)


def wait_by_hand() -> None:
    own.wait_event(cupy.cuda.Stream.null.record())


PROGRAMS = {
    # What comes before is waited for, by hand; what comes behind does not wait.
    "racy": compiled("racy", wait_by_hand),
    "right": compiled("right", lambda: None, stream=own),
}
x = torch.zeros(WORDS, device="cuda")
torch.cuda.synchronize()
# The other one is not run: a race of its first call would be this program's.
PROGRAMS[sys.argv[1]](x).max().item()  # the read
torch.cuda.synchronize()


def play(number: int, which: str) -> float:
    x.fill_(number)
    return PROGRAMS[which](x).max().item()  # the read


run(lambda number: play(number, "racy"), lambda number: play(number, "right"))
