"""One step of a program, drawn at random, and the try whether the model takes it.

A step whose accesses nothing orders yet gets the program's own waits or syncs put in front; what is
refused for another reason is not added.
"""

from __future__ import annotations

import random

from . import steps as s
from .handover import Bridge
from .order import Refused, Unordered

SPEAKS: tuple[tuple[str, ...], ...] = (
    *(("exchange",),) * 4,
    *(("dlpack",),) * 2,
    ("dlpack-legacy",),
    ("dlpack-strict",),
    ("dlpack-bare",),
    *(("cai3",),) * 4,
    ("cai0",),
    ("cai1",),
    ("cai2",),
    ("exchange", "cai2"),
    ("exchange", "dlpack", "cai3"),
    ("dlpack", "cai3"),
)
MEMORY = ("device",) * 4 + ("pool",) * 5 + ("pinned", "managed")
CAI_CONSUMERS = ("cai-waits", "cai-waits", "cai-enqueues", "cai-blocks", "cai-trusting")
DLPACK_CONSUMERS = (
    *("dlpack",) * 3,
    *("dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"),
    *("dlpack-exchange", "dlpack-borrowed"),
)
CALLS = (
    *("cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuPointerGetAttributes"),
    *("cuCtxGetCurrent", "cuCtxPushCurrent", "cuDevicePrimaryCtxRetain", "cuCtxGetDevice"),
    *("cuStreamGetFlags", "cuStreamGetCtx", "cuStreamIsCapturing"),
)
ERRORS = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_ILLEGAL_ADDRESS")


class Drawing:
    """A program in the making."""

    def __init__(self, seed: int, model: Bridge) -> None:
        self.random = random.Random(seed)
        self.model = model
        self.program: list[s.Step] = []
        self.made = 0
        self.pick = self.random.choice

    # --- trying -----------------------------------------------------------------------------------

    def push(self, step: s.Step | None) -> bool:
        """Add a step, with what it needs before it; False where the model refuses it."""
        if step is None:
            return False
        for _ in range(4):
            tried = self.model.copy()
            try:
                tried.take(step)
            except Unordered as unordered:
                if not self._order(unordered):
                    return False
            except Refused:
                return False
            else:
                self.model = tried
                self.program.append(step)
                return True
        return False

    def _order(self, unordered: Unordered) -> bool:
        """Order one of the accesses that a step has to come after."""
        if self.model.capture is not None:
            return False
        bit = unordered.missing & -unordered.missing
        first, then = self.model.places[bit.bit_length() - 1], unordered.place
        usable = {name for name in (first, then) if s.is_default(name) or name in self.model.named}
        if self.random.random() < 0.1 or first not in usable:
            return self.push(s.Sync(None))
        if then not in usable or self.random.random() < 0.3:
            return self.push(s.Sync(first))
        return self.push(s.Wait(then, first))

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    # --- choosing ---------------------------------------------------------------------------------

    def named(self, letters: str, device: int | None = None) -> list[str]:
        found = [name for name in self.model.named if name[0] in letters]
        if device is None:
            return found
        return [name for name in found if self.model.lanes[name].device == device]

    def stream(self, device: int) -> str:
        own = self.named("s", device)
        capture = self.model.capture
        if capture is not None and self.random.random() < 0.8:
            return self.pick(list(capture.members))
        if own and self.random.random() < 0.75:
            return self.pick(own)
        return f"{self.pick('LT')}{device}"

    def argument(self, device: int) -> s.Argument:
        chance = self.random.random()
        if chance < 0.3:
            return None
        if chance < 0.4:
            return -1
        stream = self.stream(device)
        return stream if self.random.random() < 0.7 else f"{stream}.handle"

    def readonly(self) -> bool | None:
        return self.pick((None,) * 8 + (True, False))

    def one(self, letters: str) -> str | None:
        """One of these, the newest ones rather."""
        found = self.named(letters)
        if not found:
            return None
        return found[-1] if self.random.random() < 0.5 else self.pick(found)

    # --- steps ------------------------------------------------------------------------------------

    def new_stream(self) -> s.Step | None:
        if len(self.named("s")) >= 4:
            return None
        return s.NewStream(
            self.name("s"), int(self.random.random() < 0.2), self.pick((True, False))
        )

    def new_array(self) -> s.Step:
        device = int(self.random.random() < 0.2)
        stream = self.stream(device) if self.random.random() < 0.85 else None
        simple = self.random.random() < 0.6
        return s.NewArray(
            self.name("x"),
            self.made,
            self.pick(SPEAKS),
            stream=stream,
            device=device,
            memory="device" if stream is None else self.pick(MEMORY),
            layout="vector" if simple else self.pick(list(s.LAYOUTS)),
            dtype="float32" if simple else self.pick(list(s.ITEMSIZE)),
            readonly=self.random.random() < 0.1,
        )

    def fill(self) -> s.Step | None:
        array = self.one("x")
        if array is None:
            return None
        stream = self.stream(self.model.arrays[array].device)
        self.made += 1
        return s.Fill(array, self.made, None if self.random.random() < 0.1 else stream)

    def read(self) -> s.Step | None:
        array = self.one("x")
        if array is None:
            return None
        stream = self.stream(self.model.arrays[array].device)
        return s.Read(self.name("p"), array, None if self.random.random() < 0.3 else stream)

    def to_cai(self) -> s.Step | None:
        source = self.one("xxvk")
        if source is None:
            return None
        device = self._device(source)
        current = self._current(source, device)
        return s.ToCai(self.name("v"), source, self.argument(device), self.readonly(), current)

    def from_cai(self) -> s.Step | None:
        source = self.one("xxv")
        if source is None:
            return None
        device = self._device(source)
        current = self._current(source, device)
        as_dict = source[0] == "x" and self.random.random() < 0.2
        argument = self.argument(device)
        return s.FromCai(self.name("v"), source, argument, self.readonly(), current, as_dict)

    def _device(self, source: str) -> int:
        array = source if source[0] == "x" else self.model.views[source].array
        return self.model.arrays[array].device

    def _current(self, source: str, device: int) -> str | None:
        if source[0] != "x" or "exchange" not in self.model.arrays[source].speaks:
            return None
        pending = self.model.arrays[source].pending
        if pending is not None and (s.is_default(pending) or pending in self.model.named):
            return pending if self.random.random() < 0.7 else self.stream(device)
        return self.stream(device)

    def export(self) -> s.Step | None:
        source = self.one("xvv")
        if source is None:
            return None
        versioned = self.random.random() < 0.7
        return s.Export(self.name("k"), source, self.argument(self._device(source)), versioned)

    def copy(self) -> s.Step | None:
        views = [view for view in self.named("v") if self.model.views[view].kind == "dlpack"]
        if not views:
            return None
        source, versioned = self.pick(views), self.random.random() < 0.7
        return s.Copy(self.name("k"), source, self.argument(self._device(source)), versioned)

    def consume(self) -> s.Step | None:
        source = self.one("vvk")
        if source is None or source not in self.model.views:
            return None
        view = self.model.views[source]
        stream = self.stream(self._device(source))
        usual = view.consumer or self.model.arrays[view.array].copied_on
        if usual is not None and self.random.random() < 0.5:
            stream = usual
        kinds = CAI_CONSUMERS if view.kind == "cai" else DLPACK_CONSUMERS
        kind = "capsule" if source[0] == "k" else self.pick(kinds)
        asks = kind in {"dlpack", "dlpack-legacy-capsule"} and self.random.random() < 0.5
        value = None
        if self.random.random() < 0.25:
            self.made += 1
            value = self.made
        return s.Consume(self.name("p"), source, kind, stream, value, asks)

    def release(self) -> s.Step | None:
        view = self.one("v")
        if view is None:
            return None
        return self._releasing(view, self.random.random() < 0.15)

    def drop(self) -> s.Step | None:
        what = self.one("ppxxvvks")
        return what and s.Drop(what, self.random.random() < 0.15)

    def cycle(self) -> s.Step | None:
        view = self.one("v")
        return view and s.Cycle(view, self.random.random() < 0.5)

    def collect(self) -> s.Step | None:
        return s.Collect() if self.model.garbage else None

    def wait(self) -> s.Step:
        device = int(self.random.random() < 0.2)
        return s.Wait(self.stream(device), self.stream(device))

    def sync(self) -> s.Step:
        return s.Sync(None if self.random.random() < 0.3 else self.stream(0))

    def look(self) -> s.Step | None:
        if not self.model.maybe:
            return None
        if not self.model.quiet:
            self.push(self.pick((s.Run(), s.Sync(None))))
        return s.Look()

    def run(self) -> s.Step:
        return s.Run()

    def set_device(self) -> s.Step:
        return s.SetDevice(1 - self.model.device)

    def attempt(self) -> s.Step | None:
        step = self.pick((self.to_cai, self.from_cai, self.export, self.release))()
        # Where no order can ever be made any more, memory is let go of while it is read.
        errors = ERRORS[:1] if isinstance(step, s.Release) else ERRORS
        nth = self.pick((1, 1, 1, 2, 3))
        return step and s.Attempt(step, self.pick(CALLS), nth, self.pick(errors))
