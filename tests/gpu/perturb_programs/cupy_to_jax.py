"""An array that CuPy writes on the default stream goes to JAX, which waits for nothing."""

import cupy
import jax.numpy as jnp
from common import WORDS, run

from cai_bridge import convert

c = cupy.zeros(WORDS, dtype="f4")
cupy.cuda.Device().synchronize()
float(jnp.max(jnp.array(c)))
cupy.cuda.Device().synchronize()


def racy(number: int) -> float:
    c.fill(number)  # the write
    x = jnp.array(c)  # the read
    return float(x.max())


def right(number: int) -> float:
    c.fill(number)  # the write
    x = convert(c, "jax")
    return float(x.max())  # the read


run(racy, right)
