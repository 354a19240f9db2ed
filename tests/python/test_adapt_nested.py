"""Random functions that `adapt` calls: they hand their array on while its producer moves.

Whoever is to see a write is ordered by the program, as DLPack and CAI ask; that the producer's next
write after the call comes after every read is the bridge's.
"""

import random

import capsules
import pytest

from cai_bridge import adapt, from_cai, to_cai


class Program:
    """An exporter of dicts, and a function that reads its array on other streams."""

    def __init__(self, cuda, seed):
        self.cuda, self.random = cuda, random.Random(seed)
        kinds = [self.random.random() < 0.25 for _ in range(self.random.randint(2, 4))]
        self.streams = [cuda.stream(f"s{at}", blocking=kind) for at, kind in enumerate(kinds)]
        self.streams += [cuda.legacy, *[cuda.per_thread] * (self.random.random() < 0.3)]
        self.now = self.random.choice([None, self.random.choice(self.streams)])
        self.array = cuda.array([1.0] * 4, speaks="cai3", stream=self.now, name="x")
        cuda.synchronize()
        self.value, self.seen, self.consumers, self.lent = 1.0, [], set(), []

    def wait(self, stream, *others):
        for other in others:
            if other not in {None, stream}:
                stream.wait(other.record())

    def move(self):
        """The producer goes on with another stream, and the consumers follow."""
        then = self.random.choice(self.streams)
        self.wait(then, self.now, *self.consumers)
        self.value, self.now = self.value + 1, then
        then.fill(self.array, self.value)
        for consumer in self.consumers:
            self.wait(consumer, then)

    def read(self, stream):
        self.seen.append((stream.read(self.array), self.value))

    def hand_on(self, view):
        stream = self.now if self.now and self.random.random() < 0.5 else None
        stream = stream or self.random.choice(self.streams)
        by = stream if self.random.random() < 0.5 else stream.handle
        views = [view, *(one for one, _ in self.lent if not isinstance(one, capsules.Taken))]
        source = self.random.choice(views)
        if self.random.random() < 0.5:
            made = to_cai(source, stream=by)
        else:
            exporter = source if hasattr(source, "__dlpack__") else from_cai(source)
            made = capsules.take(exporter.__dlpack__(stream=by))
        self.lent.append((made, stream))
        self.consumers.add(stream)
        self.read(stream)

    def read_again(self):
        if self.lent:
            stream = self.random.choice(self.lent)[1]
            self.wait(stream, self.now)
            self.read(stream)

    def end(self, at=None):
        if self.lent:
            made, _ = self.lent.pop(self.random.randrange(len(self.lent)) if at is None else at)
            made.delete() if isinstance(made, capsules.Taken) else made.release()

    def function(self, view):
        steps = (self.move, lambda: self.hand_on(view), self.read_again, self.end)
        for step in self.random.choices(steps, (30, 45, 15, 10), k=self.random.randint(2, 9)):
            step()
        while self.lent and self.random.random() < 0.2:
            self.end()

    def run(self):
        stream = self.random.choice([None, None, *self.streams])
        self.consumers |= {stream} - {None}
        to = self.random.choice(["cai", "dlpack"])
        adapt(self.function, to=to, stream=stream, returns=None)(self.array)
        # Who never named a stream writes on the legacy default stream.
        producer = self.now or self.cuda.legacy
        producer.fill(self.array, -1.0, name="the next write")
        while self.lent:
            self.end(0)
        producer.fill(self.array, -2.0, name="the last write")
        self.cuda.synchronize()
        assert [one.value for one, _ in self.seen] == [[value] * 4 for _, value in self.seen]


@pytest.mark.some(4)
@pytest.mark.parametrize("first", range(0, 5000, 250))
def test_the_next_write_comes_after_every_read_however_the_function_hands_its_array_on(first, cuda):
    for seed in range(first, first + 250):
        Program(cuda, seed).run()
        cuda.check()
