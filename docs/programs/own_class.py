"""A class of one's own that speaks only the CUDA Array Interface, taken to PyTorch."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import convert

    class Frame:
        """A picture in GPU memory, decoded on a stream of its own."""

        def __init__(self, height, width):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            with self.stream:
                self.pixels = cupy.zeros((height, width), dtype="float32")

        def decode(self, value):
            with self.stream:
                self.pixels.fill(value)  # queued

        @property
        def __cuda_array_interface__(self):
            return {
                "shape": self.pixels.shape,
                "typestr": "<f4",
                "data": (self.pixels.data.ptr, False),
                "strides": None,
                "version": 3,
                "stream": self.stream.ptr,  # where the work on the pixels is queued
            }

    frame = Frame(2, 3)
    frame.decode(7.0)
    tensor = convert(frame, torch)  # keeps the frame; torch's stream waits for the frame's
    print(tensor.tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import from_cai
    from cai_bridge.testing import simulated_cuda

    class Frame:
        """The same class, with memory of the simulated device."""

        def __init__(self, cuda):
            self.stream = cuda.stream("the frame's")
            self.pixels = cuda.array(shape=(2, 3), dtype="float32", speaks="cai", name="pixels")

        def decode(self, value):
            self.stream.fill(self.pixels, value)

        @property
        def __cuda_array_interface__(self):
            return {
                "shape": (2, 3),
                "typestr": "<f4",
                "data": (self.pixels.ptr, False),
                "strides": None,
                "version": 3,
                "stream": self.stream.handle,
            }

    with simulated_cuda() as cuda:
        frame = Frame(cuda)
        frame.decode(7.0)
        torchs = cuda.stream("torch's")
        seen = cuda.consumer("dlpack", stream=torchs).read(from_cai(frame))
        torchs.synchronize()
        print(seen.value)
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
