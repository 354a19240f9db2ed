"""Views of the bridge in the hands of a consumer: together they keep what is required of one.

A stand-in that takes CAI is a consumer of DLPack by `to_cai`, and the other way round by
`from_cai`. What the stand-ins do not keep by themselves is the bridge's to keep.
"""

from __future__ import annotations

import contextlib

import pytest

from cai_bridge import from_cai, to_cai
from cai_bridge.conformance import ConsumerAdapter, check_consumer, open_lab
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._values import DTYPES

# Dicts before version 3 name no stream: the host waits for them, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")

CAI = ["cai-waits", "cai-enqueues", "cai-blocks"]
DLPACK = ["dlpack", "dlpack-legacy-capsule", "dlpack-none", "dlpack-exchange", "dlpack-borrowed"]
WITHOUT_FLAG = ["dlpack-legacy-capsule", "dlpack-borrowed"]
"""Those that are handed tensors that cannot say that they are read-only."""


class Taken:
    """The view, and what the stand-in imported of it: all of it goes at once."""

    def __init__(self, view):
        self.view = view
        self.imported = []


class Bridged(ConsumerAdapter):
    """A stand-in consumer, which arrays reach through a view."""

    dtypes = tuple(DTYPES)

    def __init__(self, kind):
        self.kind = self.name = kind
        self.doors = ("dlpack",) if kind.startswith("cai") else ("cai",)
        self._current = []

    @property
    def cuda(self):
        return SimulatedCuda.current()

    @property
    def consumer(self):
        return self.cuda.consumer(self.kind, self._current[-1] if self._current else None)

    def stream(self):
        return self.cuda.stream("the consumer's")

    @contextlib.contextmanager
    def on(self, stream):
        self._current.append(stream)
        try:
            yield
        finally:
            self._current.pop()

    def take(self, x):
        view = (to_cai if "dlpack" in self.doors else from_cai)(x)
        if view.readonly and self.kind in WITHOUT_FLAG:
            self.consumer.read(view)  # refused as it is imported
        return Taken(view)

    def copy(self, array):
        pending = self.consumer.read(array.view)
        array.imported.append(pending)
        return pending._result

    def values(self, copied):
        self.cuda.synchronize()
        return copied.value

    def fill(self, array, value):
        array.imported.append(self.consumer.write(array.view, value))


@pytest.mark.parametrize("kind", [*CAI, *DLPACK])
def test_a_view_makes_a_consumer_of_one_protocol_one_of_the_other(kind):
    with open_lab("simulated") as lab:
        report = check_consumer(Bridged(kind), lab=lab)
    judged = {one.name: one.evidence for one in report.verdicts if one.outcome == "failed"}
    assert judged == {}, report
    skipped = {one.requirement.door for one in report.verdicts if one.outcome == "skipped"}
    assert skipped == {"cai" if kind in CAI else "dlpack"}


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        # It ignores the dict's stream, so the bridge makes its own wait as it reads the dict.
        ("cai-trusting", set()),
        (
            "dlpack-unordered",
            {
                "takes-cai-stream",
                "takes-cai-return",
                "takes-cai-return-write",
                "takes-cai-pending-read",
                "takes-cai-other-stream",
            },
        ),
    ],
)
def test_a_careless_consumer_stays_careless(kind, broken):
    with open_lab("simulated") as lab:
        report = check_consumer(Bridged(kind), lab=lab)
    assert {one.name for one in report.failed} == broken
