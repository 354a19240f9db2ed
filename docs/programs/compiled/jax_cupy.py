import cupy
import jax
import jax.numpy as jnp

from cai_bridge import adapt

kernel = cupy.RawKernel(
    r"""
    extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = by * x[i];
    }
    """,
    "scale",
)


def gradient(g, x, by):  # a gradient for each argument, in CuPy
    return g * by, None


@adapt(
    to="cupy",
    like=lambda x, by: x,  # the result's shape and dtype
    into=True,  # JAX allocates the result: y, the last parameter
    backward=gradient,
)
def scale(x, by, y):  # x and y are cupy.ndarray here
    blocks = (x.size + 255) // 256
    kernel((blocks,), (256,), (x, y, cupy.float32(by), cupy.int32(x.size)))


@jax.jit
def step(x):
    return scale(x + 1, 2.0).sum()


x = jnp.arange(5, dtype="float32")
print(step(x), jax.jit(jax.grad(step))(x))
