"""Arrays of two GPUs."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import cupy
    import torch

    from cai_bridge import convert, to_dlpack

    with cupy.cuda.Device(0):
        x = cupy.full(4, 7.0, dtype="float32")

    here = convert(x, torch)  # the same memory, whichever GPU is current
    print(here.device, here.data_ptr() == x.data.ptr)

    there = torch.from_dlpack(to_dlpack(x), device="cuda:1")  # a copy, made between the GPUs
    print(there.device, there.tolist())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    from cai_bridge import to_cai, to_dlpack
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda(devices=2) as cuda:
        near, far = cuda.stream("near"), cuda.stream("far", device=1)
        x = cuda.array(shape=4, dtype="float32", speaks="cai", stream=near, name="x")
        near.fill(x, 7.0)

        capsule = to_dlpack(x).__dlpack__(stream=far, dl_device=(2, 1), max_version=(1, 3))
        copy = to_cai(capsule, stream=-1)  # a copy on GPU 1, ready on `far`
        seen = far.read(copy)
        far.synchronize()
        print(copy.device, seen.value)

        try:
            to_cai(x, stream=far)  # x is on GPU 0, the stream on GPU 1
        except ValueError as refusal:
            print(str(refusal).replace(hex(far.handle), "far"))
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
