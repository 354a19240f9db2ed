"""A class of one's own that has `__dlpack__` alone, taken to a library that reads CAI alone."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    from numba import cuda

    from cai_bridge import convert

    class Frame:
        """A picture in GPU memory, decoded on a stream of its own."""

        def __init__(self, size):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            with self.stream:
                self.pixels = cupy.zeros(size, dtype="float32")

        def decode(self, value):
            with self.stream:
                self.pixels.fill(value)  # queued

        def __dlpack_device__(self):
            return self.pixels.__dlpack_device__()

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            with self.stream:  # CuPy makes `stream` wait for it
                return self.pixels.__dlpack__(stream=stream, max_version=max_version)

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    frame = Frame(4)
    frame.decode(7.0)
    y = convert(frame, "numba")  # keeps the frame; Numba's stream waits for the frame's
    double[1, 32](y)
    print(y.copy_to_host().tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai
    from cai_bridge.testing import simulated_cuda

    class Frame:
        """The same class, with memory of the simulated device."""

        def __init__(self, cuda):
            self.stream = cuda.stream("the frame's")
            self.pixels = cuda.array([0.0] * 4, speaks="dlpack", stream=self.stream, name="pixels")

        def decode(self, value):
            self.stream.fill(self.pixels, value)

        def __dlpack_device__(self):
            return self.pixels.__dlpack_device__()

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            return self.pixels.__dlpack__(stream=stream, max_version=max_version)

    with simulated_cuda() as cuda:
        frame = Frame(cuda)
        frame.decode(7.0)
        mine = cuda.stream("mine")
        with to_cai(frame, stream=mine) as view:  # it has the dict; my stream waits
            seen = mine.read(view)
        mine.synchronize()
        print(seen.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("cupy", "numba", gpu=on_gpu, simulated=simulated)
