import jax
import jax.numpy as jnp
import numpy as np

from cai_bridge import adapt


def gradient(g, x, by):
    return g * by, None


@adapt(to="numpy", like=lambda x, by: x, into=True, backward=gradient)
def scale(x, by, y):  # x and y are numpy.ndarray, over JAX's memory
    np.multiply(x, by, out=y)


@jax.jit
def step(x):
    return scale(x + 1, 2.0).sum()


x = jnp.arange(5, dtype="float32")
print(step(x), jax.jit(jax.grad(step))(x))
