"""Runs a case whole, and once for each call of the driver that it makes, with that call failing."""

import gc
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cai_bridge
from cai_bridge import DriverError, from_cai
from cai_bridge.testing import simulated_cuda

STREAMS = ("legacy", "per-thread", "blocking", "non-blocking")
# After the first the bridge tries again; after the second, CUDA's context is broken for good.
ERRORS = {"CUDA_ERROR_NOT_PERMITTED": 800, "CUDA_ERROR_LAUNCH_TIMEOUT": 702}
ERROR, FINAL = ERRORS
# Which calls failed and were raised, or failed and were borne; read by the last test.
HIT = Counter()


@dataclass
class Scene:
    """A device that is not the current one, and an array there that its stream is writing."""

    cuda: Any
    produced_on: str
    streams: dict[str, Any] = field(default_factory=dict)
    arrays: list[Any] = field(default_factory=list)

    def stream(self, kind, name="consumer"):
        made = self.streams.get(name + kind)
        if made is None and kind in {"legacy", "per-thread"}:
            made = self.cuda.default_stream(1, per_thread=kind == "per-thread")
        elif made is None:
            made = self.cuda.stream(name, device=1, blocking=kind == "blocking")
        return self.streams.setdefault(name + kind, made)

    @property
    def producer(self):
        return self.stream(self.produced_on, "producer")

    def array(self, speaks, memory="device"):
        made = self.cuda.array(
            [1.0] * 4, speaks=speaks, memory=memory, stream=self.producer, name="x"
        )
        self.arrays.append(made)
        return made


# What is prepared, and what is then called: it may be called again, and returns what it made.
Act = Callable[[], Any]
Case = Callable[[Scene], Act]


@dataclass
class Outcome:
    """How one run went: the calls of the act, and the call, code and text of what it raised."""

    calls: list[str]
    raised: tuple[str | None, int | None, str] | None


def run(produced_on, case, fault=None):
    """Run a case, with a call of its act failing; whatever comes of it, nothing may be lost."""
    with warnings.catch_warnings(), simulated_cuda(devices=2) as cuda:
        warnings.simplefilter("ignore", cai_bridge.HostSyncWarning)
        scene = Scene(cuda, produced_on)
        act = case(scene)
        before = [array.exports for array in scene.arrays]
        cuda.clear_calls()
        if fault is not None:
            cuda.fail(*fault)
        made, raised = attempt(act)
        calls = [call.call for call in cuda.calls]
        assert cuda.clear_faults() == 0, "the call was made in the run before"
        assert cuda.current_device == 0
        assert cuda.reports == []
        if raised is not None:
            assert [array.exports for array in scene.arrays] == before
            made, once_more = attempt(act)
            assert once_more is None, f"after {raised}: {once_more}"
        assert cuda.current_device == 0
        del made, act
        end(scene, is_broken=fault is not None and FINAL in fault)
    return Outcome(calls, raised)


def attempt(act):
    """What came of it. An error is not kept: its traceback holds what was refused."""
    try:
        return act(), None
    except DriverError as error:
        return None, (error.call, error.code, str(error))


def end(scene, is_broken):
    """All work runs and everything is let go: each producer is gone, with its exports.

    In a context that is not broken, who has its memory back writes: whoever read it is done, or is
    waited for.
    """
    gone = [weakref.ref(array) for array in scene.arrays]
    gc.collect()
    back = [array for array in scene.arrays if array.exports == 0 and not is_broken]
    while back:
        scene.producer.fill(back.pop(), 2.0, name="the producer's next write")
    for _ in range(2):
        scene.cuda.synchronize()
        look()
    assert [array.exports for array in scene.arrays] == [0] * len(scene.arrays)
    scene.arrays.clear()
    assert [array() for array in gone] == [None] * len(gone)


def look():
    """A later call of the bridge, which ends what had to wait. It asks no driver itself."""
    nothing = {"shape": (0,), "typestr": "|u1", "data": (0, False), "version": 3}
    from_cai(nothing, owner=Scene, device=(3, 0)).release()


def prove(produced_on, case, *, borne=frozenset()):
    """The case works, and each of its calls that fails is raised, or borne where that is said.

    `borne` names the calls that may fail without a word, or True for all of them.
    """
    whole = run(produced_on, case)
    assert whole.raised is None, whole.raised
    seen = Counter()
    for place, call in enumerate(whole.calls):
        seen[call] += 1
        error = (ERROR, FINAL)[place % 2]
        outcome = run(produced_on, case, fault=(call, seen[call], error))
        HIT[call] += 1
        if borne is True or (outcome.raised is None and call in borne):
            assert outcome.raised is None, f"{call} #{seen[call]}: {outcome.raised}"
            continue
        assert outcome.raised is not None, f"{call} #{seen[call]} failed, and nothing was raised"
        text = f"{call}: got {error} ({ERRORS[error]}); allowed: CUDA_SUCCESS"
        assert outcome.raised == (call, ERRORS[error], text)
