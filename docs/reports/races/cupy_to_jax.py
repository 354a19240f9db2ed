"""CuPy writes on the default stream, and JAX reads on its own without waiting."""

import cupy
import jax.numpy as jnp

c = cupy.zeros(1 << 24, dtype="f4")
float(jnp.max(jnp.array(c)))
cupy.cuda.Device().synchronize()
for number in range(1, 9):
    c.fill(number)
    x = jnp.array(c)
    print(number, float(x.max()))
