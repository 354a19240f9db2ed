"""Random programs with captures: what is queued outside a graph is ordered whatever is inside it.

No graph is ever launched. Each reader is handed the array for its stream before it reads, and all
views have ended before the producer writes, as the manual asks.
"""

import random

import pytest

from cai_bridge import DriverError, convert, from_cai, to_cai, to_dlpack

DOORS = {
    "to_cai": lambda x, s: to_cai(x, stream=s),
    "of a view": lambda x, s: to_cai(to_cai(x), stream=s),
    "to_dlpack": lambda x, s: to_dlpack(x, stream=s),
    "of a view's tensor": lambda x, s: to_dlpack(to_cai(x, stream=s), stream=s),
    "for -1": lambda x, s: to_cai(to_dlpack(x, stream=s).__dlpack__(stream=-1), stream=s),
    "a capsule": lambda x, s: to_cai(to_dlpack(x).__dlpack__(stream=s.handle), stream=s),
    "a handle": lambda x, s: to_cai(x, stream=s.handle),
    "a capsule for a handle": lambda x, s: to_cai(
        to_dlpack(x).__dlpack__(stream=s.handle), stream=s.handle
    ),
    "a tree": lambda x, s: convert({"a": [x, (x, 3)]}, "cai", stream=s)["a"][1][0],
    "declared": lambda x, s: to_cai(from_cai(x, stream=s), stream=s),
    "declared again": lambda x, s: to_cai(from_cai(to_cai(x, stream=s), stream=s), stream=s),
}
OF_CAI = {"declared", "declared again"}
ENDS = {
    "release": lambda view, _: view.release(),
    "release(stream)": lambda view, stream: view.release(stream),
    "del": lambda *_: None,
}


class Program:
    def __init__(self, cuda, seed):
        self.cuda, self.random, self.said = cuda, random.Random(seed), [f"seed {seed}"]
        self.streams = [cuda.stream(name) for name in ("producer", "one", "other")]
        self.producer, *self.readers = self.streams
        self.array = cuda.array([0.0] * 4, speaks="cai3", stream=self.producer, name="x")
        self.value, self.views = 0.0, []
        # The capture, the handles of the streams in it, and the events that were recorded in it.
        self.graph, self.origin, self.inside, self.events = None, None, set(), set()

    def look(self):
        """Follow the driver's calls: a wait for an event of the capture joins it."""
        for call in self.cuda.calls if self.graph else ():
            if (call.call, call.outcome) == ("cuEventRecord", "done"):
                change = self.events.add if call.stream in self.inside else self.events.discard
                change(call.event)
            elif (call.call, call.outcome) == ("cuStreamWaitEvent", "done"):
                self.inside |= {call.stream} if call.event in self.events else set()
        self.cuda.clear_calls()

    def hand_over(self):
        stream, door = self.random.choice(self.readers), self.random.choice(list(DOORS))
        source, ready = self.array, self.producer
        if self.views and self.random.random() < 0.4:
            source, ready, _ = self.random.choice(self.views)
        if door in OF_CAI and not hasattr(source, "__cuda_array_interface__"):
            door = "to_cai"
        self.said.append(f"{stream.name} reads {door}, of one for {ready.name}")
        try:
            view = DOORS[door](source, stream)
        except DriverError as refused:
            assert self.graph is not None, self.said
            self.said.append(str(refused))
            return
        stream.read(view)
        self.views.append((view, stream, door))

    def write(self):
        while self.views:
            self.end(0)
        self.value += 1
        self.said.append("the producer writes")
        self.producer.fill(self.array, self.value)

    def end(self, at=None):
        if self.views:
            place = self.random.randrange(len(self.views)) if at is None else at
            view, stream, door = self.views.pop(place)
            how = self.random.choice(list(ENDS))
            if self.graph is not None and "handle" in door:
                # Else it may be refused, and nobody says so to whoever drops it.
                how = "release(stream)"
            self.said.append(f"{stream.name} ends by {how}")
            ENDS[how](view, stream)

    def begin(self):
        if self.graph is None:
            self.origin = self.random.choice(self.streams)
            self.said.append(f"a capture of {self.origin.name} begins")
            mode = self.random.choice(["global", "thread_local", "relaxed"])
            self.graph = self.cuda.capture(self.origin, mode)
            self.graph.__enter__()
            self.inside, self.events = {self.origin.handle}, set()

    def fork(self):
        stream = self.random.choice(self.streams)
        if self.graph is not None and stream.handle not in self.inside:
            self.said.append(f"{stream.name} joins")
            stream.wait(self.origin.record())

    def finish(self):
        if self.graph is None:
            return
        self.look()
        for stream in self.streams:
            if stream.handle in self.inside - {self.origin.handle}:
                self.origin.wait(stream.record())
        self.said.append("the capture ends")
        self.graph.__exit__(None, None, None)
        self.graph = None

    def on_host(self):
        if self.views and self.graph is None:
            self.said.append("the host reads")
            convert(self.random.choice(self.views)[0], "numpy")

    def run(self):
        steps = (self.hand_over, self.write, self.begin, self.fork, self.finish, self.end)
        chances = (35, 10, 20, 5, 10, 10, 10)
        for step in self.random.choices((*steps, self.on_host), chances, k=12):
            self.look()
            step()
        self.finish()
        self.write()
        self.cuda.synchronize()
        assert [str(report) for report in self.cuda.reports] == [], "\n".join(self.said)


@pytest.mark.unchecked
@pytest.mark.some(4)
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_what_is_outside_a_graph_is_in_order_whatever_is_inside_it(first, cuda):
    for seed in range(first, first + 100):
        Program(cuda, seed).run()
