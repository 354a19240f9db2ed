"""A thread that loads batches with CuPy, and a loop that trains on them with PyTorch."""

import place


def on_gpu() -> None:
    # [start:gpu]
    import queue
    import threading

    import cupy
    import torch

    from cai_bridge import convert

    train = torch.cuda.Stream()
    batches = queue.Queue(maxsize=2)

    def load():
        with cupy.cuda.Stream(non_blocking=True):  # the current stream of this thread
            for number in range(1, 4):
                batch = cupy.full(1 << 20, number, dtype="float32")  # queued
                batches.put(convert(batch, torch, stream=train))  # ready on `train`
        batches.put(None)

    loader = threading.Thread(target=load)
    loader.start()
    total = torch.zeros((), device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(train):
        while (batch := batches.get()) is not None:
            total += batch.mean()
            del batch  # CuPy's stream waits for `train`, and takes the block for a later batch
    loader.join()
    train.synchronize()
    print(total.item())
    # [end:gpu]


def simulated() -> None:
    # [start:simulated]
    import queue
    import threading

    from cai_bridge import from_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        train = cuda.stream("train")
        trainer = cuda.consumer("dlpack", stream=train)
        batches = queue.Queue(maxsize=2)

        def load():
            own = cuda.stream("the loader's")
            for number in range(1, 4):
                batch = cuda.array([float(number)] * 4, speaks="cai", stream=own, memory="pool")
                batches.put(from_cai(batch))
            batches.put(None)

        loader = threading.Thread(target=load)
        loader.start()
        seen = []
        while (batch := batches.get()) is not None:
            seen.append(trainer.read(batch))  # its stream waits for the loader's
        loader.join()
        cuda.synchronize()
        print([one.value[0] for one in seen])
    # [end:simulated]


if __name__ == "__main__":
    place.run("torch", "cupy", gpu=on_gpu, simulated=simulated)
