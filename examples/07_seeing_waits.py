"""Write a trace of the bridge: each hand-over, each wait made, and each wait left out.

Runs on a GPU with torch if there is one, else on the simulated device. Prints which device it uses.
The trace is `trace.json` in a new folder, or the file named on the command line. Open it in
https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cai_bridge import from_cai, to_cai, trace

FILE = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp()) / "trace.json"


def hand_over(x: Any, producer: Any, consumer: Any, read: Callable[[Any], object]) -> None:
    """Hand over `x`, which `producer` writes, in several ways."""
    with to_cai(x, stream=consumer) as view:  # `consumer` waits for `producer` ...
        read(view)  # ... and `read` reads the dict
    # Here `producer` waits for `consumer`, so it may write to `x` again.

    to_cai(x, stream=producer).release()  # on one stream no wait is needed

    with from_cai(x) as view:
        # A consumer that names no stream, and drops the memory in another thread.
        capsules = [view.__dlpack__()]
        reader = threading.Thread(target=capsules.clear, name="reader")
        reader.start()
        reader.join()
        view.__dlpack__(dl_device=(1, 0))  # a copy in host memory; the host waits for it


def simulated() -> None:
    """Run on the simulated device, which needs no GPU and reports each race."""
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        producer, consumer = cuda.stream(), cuda.stream()
        x = cuda.array([0.0] * 1024, dtype="float32", speaks=("exchange", "cai2"))
        producer.fill(x, 7.0)
        names = {producer.handle: "producer", consumer.handle: "consumer"}
        read = cuda.consumer("cai-waits", consumer).read
        with cuda.current_stream(producer):
            hand_over(x, producer, consumer, read)  # once before the trace: first calls take longer
            with trace(FILE, streams=names):
                hand_over(x, producer, consumer, read)


def on_torch(torch: Any) -> None:
    """Run with torch on side streams."""
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.full((1 << 20,), 7.0, device="cuda")
    torch.cuda.synchronize()
    names = {producer.cuda_stream: "producer", consumer.cuda_stream: "consumer"}

    def read(view: Any) -> None:
        with torch.cuda.stream(consumer):
            torch.as_tensor(view, device="cuda").clone()

    with torch.cuda.stream(producer):
        hand_over(x, producer, consumer, read)  # once before the trace: first calls take longer
        with trace(FILE, streams=names):
            hand_over(x, producer, consumer, read)
    torch.cuda.synchronize()


def find() -> tuple[str, Callable[[], None]]:
    """Choose a GPU with torch, else the simulated device."""
    try:
        import torch

        if torch.cuda.is_available():
            name = torch.cuda.get_device_name()
            return f"{name}, torch {torch.__version__}", lambda: on_torch(torch)
    except ImportError:
        pass
    return "the simulated device", simulated


if __name__ == "__main__":
    where, demonstrate = find()
    print(f"cai_bridge on {where}")
    demonstrate()
    events = json.loads(FILE.read_text())["traceEvents"]
    print(f"{FILE}: {FILE.stat().st_size} bytes, for https://ui.perfetto.dev or chrome://tracing")
    lanes = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    starts = {event["id"]: event["tid"] for event in events if event["ph"] == "s"}
    for event in events:
        if event["ph"] == "f":
            print(f"  {lanes[event['tid']]} waits for {lanes[starts[event['id']]]}")
        elif event["ph"] == "i":
            print(f"  {lanes[event['tid']]}: {event['name']}")
    print("slices:", dict(Counter(event["name"] for event in events if event["ph"] == "X")))
    assert starts, "the trace has a wait"
