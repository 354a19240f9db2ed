"""A kernel on a stream of its own in a jitted program of JAX's, which reads what it wrote."""

import sys
from collections.abc import Callable
from typing import Any

import cupy
import jax
import jax.numpy as jnp
from common import WORDS, run

from cai_bridge import adapt

own = cupy.cuda.Stream(non_blocking=True)
copy = cupy.ElementwiseKernel("T x", "T y", "y = x", "copied")


def jitted(before: Callable[[], Any], **how: Any) -> Any:
    @adapt(to="cupy", like=lambda x: x, into=True, **how)
    def copied(x: Any, y: Any) -> None:
        before()
        with own:
            copy(x, y)  # the write

    return jax.jit(lambda number: copied(jnp.full((WORDS,), number, "float32")).max())


def wait_by_hand() -> None:
    # CuPy's stream waits for XLA's, and XLA's for it.
    own.wait_event(cupy.cuda.Stream.null.record())


PROGRAMS = {
    # What comes before is waited for, by hand; what comes behind does not wait.
    "racy": jitted(wait_by_hand),
    "right": jitted(lambda: None, stream=own),
}
# The other one is not run: it would be a race of the set-up.
float(PROGRAMS[sys.argv[1]](0.0))  # the read
cupy.cuda.Device().synchronize()


def play(number: int, which: str) -> float:
    return float(PROGRAMS[which](float(number)))  # the read


run(lambda number: play(number, "racy"), lambda number: play(number, "right"))
