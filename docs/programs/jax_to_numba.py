"""A kernel of Numba's on an array of JAX's, and its result back in JAX."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import jax.numpy as jnp
    import numpy as np
    from numba import cuda

    from cai_bridge import convert

    @cuda.jit
    def double(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = 2 * x[i]

    x = jnp.arange(6, dtype=jnp.float32) * 1.5  # JAX returns before the GPU is done
    source = convert(x, "numba", readonly=False)  # read-only memory: double() only reads it
    out = cuda.device_array(6, dtype=np.float32)
    double[1, 32](source, out)

    y = convert(out, "jax")  # JAX waits for the kernel, the host does not
    print((y + 1).tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        jaxs, numbas = cuda.stream("JAX's"), cuda.stream("Numba's")
        x = cuda.array(shape=4, speaks="dlpack", readonly=True, stream=jaxs, fill=3.0)  # pending
        view = to_cai(x, stream=numbas)
        seen = numbas.read(view)
        numbas.synchronize()
        print(seen.value, "read-only:", view.readonly)
        vouched = to_cai(x, stream=numbas, readonly=False)  # I do not write
        print("read-only:", vouched.readonly)
    # [end:simulated]


if __name__ == "__main__":
    place.run("jax", "numba", gpu=on_gpu, simulated=simulated)
