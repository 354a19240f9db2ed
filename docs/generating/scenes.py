"""The pictures of a race and of an early end: the order of the work, with and without the bridge.

Two mistakes, each by itself and mended: a read that does not wait for the write before it, and a
block that is handed out again while it is read. The simulated device decides the order of the work,
and its reports say what is a race.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from ctypes import c_float
from pathlib import Path
from typing import Any

from cai_bridge import to_cai
from cai_bridge.testing import SimulatedCuda, simulated_cuda
from generating import PICTURES
from generating.drawing import bar, svg, text

CAPTIONS = {
    "race": ("hand_over", "The read does not wait for the write: it sees the old value"),
    "end": ("end", "The block is handed out again while it is read"),
}
CURES = {
    "race": "With the bridge the consumer's stream waits: no race, and the host goes on",
    "end": "With the bridge the producer's stream waits before it uses the block again",
}


class Recorder:
    """Queues work, and records the order in which the device runs it."""

    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda, self.ran, self.kept = cuda, [], []
        self.producer, self.consumer = cuda.stream("producer"), cuda.stream("consumer")

    def write(self, x: Any, value: float, name: str) -> None:
        """Queue a write of the producer's."""

        def run() -> None:
            x.assign(value)
            self.ran.append({"stream": "producer", "name": name, "value": value})

        self.producer.launch(run, writes=[x], name=name)

    def read(self, x: Any, view: Any, name: str = "read") -> None:
        """Queue a read of the consumer's, through the view that it got."""

        def run() -> None:
            self.ran.append({"stream": "consumer", "name": name, "value": peek()})

        peek = reader(x)
        self.consumer.launch(run, reads=[view], name=name)


def reader(x: Any) -> Callable[[], float]:
    """Read the first value of the memory, even after it was reused."""
    at = x.ptr
    return lambda: c_float.from_address(at).value


def hand_over(recorder: Recorder, bridge: bool) -> None:
    """Write by the producer, read by the consumer."""
    x = recorder.cuda.array([0.0], speaks="exchange", name="x")
    recorder.write(x, 7.0, "write 7")
    with recorder.cuda.current_stream(recorder.producer):
        view = to_cai(x, stream=recorder.consumer) if bridge else x
    recorder.read(x, view)
    recorder.consumer.synchronize()


def end(recorder: Recorder, bridge: bool) -> None:
    """Read by the consumer; the producer frees the block, gets it again and writes."""
    cuda, producer = recorder.cuda, recorder.producer
    x = cuda.array([7.0], memory="pool", stream=producer, speaks="exchange", name="x")
    producer.synchronize()
    with cuda.current_stream(producer):
        view = to_cai(x, stream=recorder.consumer) if bridge else x
        recorder.read(x, view)
        del x, view
        tenant = cuda.array(shape=1, memory="pool", stream=producer, speaks=(), name="next")
    recorder.write(tenant, -1.0, "write -1")
    recorder.kept.append(tenant)
    producer.synchronize()


def recorded(scene: Callable[[Recorder, bool], None], bridge: bool) -> dict[str, Any]:
    """Run a scene. Return the work as it ran, the waits between streams, and the reports."""
    with simulated_cuda(check=False) as cuda:
        recorder = Recorder(cuda)
        cuda.clear_calls()
        scene(recorder, bridge)
        cuda.synchronize()
        waits = [
            next(s.name for s in (recorder.producer, recorder.consumer) if s.handle == one.stream)
            for one in cuda.calls
            if one.call == "cuStreamWaitEvent" and one.stream is not None
        ]
        found = [report.kind for report in cuda.reports]
        return {"ran": recorder.ran, "waits": waits, "reports": found}


def run() -> dict[str, Any]:
    """Run every scene."""
    return {
        scene.__name__: {
            "alone": recorded(scene, bridge=False),
            "bridged": recorded(scene, bridge=True),
        }
        for scene in (hand_over, end)
    }


def panel(top: int, head: str, found: dict[str, Any]) -> list[str]:
    """Draw the streams of one recording: time runs to the right."""
    lanes = {"producer": top + 42, "consumer": top + 96}
    out = [text(20, top + 12, head, "head")]
    for name, y in lanes.items():
        out.append(f'<path class="lane" d="M150 {y}H700"/>')
        out.append(text(20, y + 5, f"{name}'s stream", "small"))
    at = {}
    for place, one in enumerate(found["ran"]):
        x = 190 + 230 * place
        reads = one["name"] == "read"
        wrong = reads and bool(found["reports"])
        words = f"read: {one['value']:g}" if reads else one["name"]
        kind = "bad" if wrong else "read" if reads else "write"
        out.append(bar(x, lanes[one["stream"]], 120, words, kind))
        at[one["stream"]] = x
    first, then = (one["stream"] for one in found["ran"])
    if then in found["waits"]:
        (x, y), (u, v) = (at[first] + 120, lanes[first]), (at[then], lanes[then])
        middle = (x + u) / 2
        path = f"M{x} {y}C{middle} {y} {middle} {v} {u - 2} {v}"
        out.append(f'<path class="wait" marker-end="url(#tip)" d="{path}"/>')
        out.append(text(middle, min(y, v) - 10, "waits", "small soft", text_anchor="middle"))
    races = "a race" if found["reports"] else "in order"
    out.append(
        text(690, top + 12, races, "badly" if found["reports"] else "good", text_anchor="end")
    )
    return out


def picture(name: str, seen: dict[str, Any]) -> str:
    """Draw a mistake, and below it the same with the bridge."""
    scene, alone = CAPTIONS[name]
    found = seen[scene]
    parts = panel(24, f"{alone}", found["alone"]) + panel(164, CURES[name], found["bridged"])
    return svg(720, 300, f"{alone}. {CURES[name]}", parts)


def files() -> dict[Path, str]:
    """List the recording, and the pictures of it."""
    seen = run()
    return {
        PICTURES / "races.json": json.dumps(seen, indent=1) + "\n",
        **{PICTURES / f"{name}.svg": picture(name, seen) for name in CAPTIONS},
    }
