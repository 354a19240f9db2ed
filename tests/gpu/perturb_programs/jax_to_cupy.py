"""An array whose computation JAX has queued goes to CuPy: JAX's dict names no stream."""

import cupy
import jax
import jax.numpy as jnp
from common import WORDS, run

from cai_bridge import convert

make = jax.jit(lambda number: jnp.full((WORDS,), number, "float32") * 1.0)
make(0.0).block_until_ready()
reader = cupy.cuda.Stream(non_blocking=True)
with reader:
    cupy.zeros(WORDS, dtype="f4").max().get()
kept = []


def read(number: int, *, bridged: bool) -> float:
    x = make(float(number))  # the write
    kept.append(x)  # or the next round finds this one's value in the same memory
    with reader:
        y = convert(x, cupy, readonly=False) if bridged else cupy.asarray(x)
        return y.max().get()  # the read


run(lambda number: read(number, bridged=False), lambda number: read(number, bridged=True))
