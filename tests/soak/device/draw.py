"""One step of a program, drawn at random.

A step whose accesses nothing orders yet gets the program's own waits or syncs put in front.
"""

from __future__ import annotations

import random

from .. import steps as s
from ..program import Making
from .handover import Bridge
from .order import Unordered
from .strangers import ALONE, STRANGE, TOLD, drawn

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
    ("dlpack", "cai2"),
)

MEMORY = ("device",) * 4 + ("pool",) * 5 + ("pinned", "managed") * 2

CAI_CONSUMERS = (
    *("cai-waits", "cai-waits", "cai-enqueues", "cai-blocks", "cai-trusting"),
    "address",
)

DLPACK_CONSUMERS = (
    *("dlpack",) * 3,
    *("dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"),
    *("dlpack-exchange", "dlpack-borrowed"),
    *("address", "address"),
)

CALLS = (
    *("cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuPointerGetAttributes"),
    *("cuCtxGetCurrent", "cuCtxPushCurrent", "cuDevicePrimaryCtxRetain", "cuCtxGetDevice"),
    *("cuStreamGetFlags", "cuStreamGetCtx", "cuStreamIsCapturing"),
    *("cuMemFreeAsync", "cuModuleUnload", "cuEventQuery"),
)

ERRORS = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_ILLEGAL_ADDRESS")


class Drawing(Making):
    """A program in the making: its single steps."""

    def __init__(self, seed: int, model: Bridge) -> None:
        super().__init__(seed)
        # Of its own: what strangers do does not change what else is drawn.
        self.strange = random.Random(f"strangers {seed}")
        self.model = model

    def take(self, step: s.Step) -> None:
        tried = self.model.copy()
        tried.take(step)
        self.model = tried

    def mend(self, lacking: Unordered, step: s.Step) -> bool:
        """Order one of the accesses that a step has to come after."""
        if self.model.capture is not None:
            return False
        number = (lacking.missing & -lacking.missing).bit_length() - 1
        if number >= len(self.model.places):
            # An access of the step itself.
            return False
        first, then = self.model.places[number], lacking.place
        usable = {name for name in (first, then) if s.is_default(name) or name in self.model.named}
        if self.random.random() < 0.1 or first not in usable:
            return self.push(s.Sync(None))
        if then not in usable or self.random.random() < 0.3:
            return self.push(s.Sync(first))
        return self.push(s.Wait(then, first))

    def named(self, letters: str, device: int | None = None) -> list[str]:
        found = [name for name in self.model.named if name[0] in letters]
        if device is None:
            return found
        return [name for name in found if self.model.lanes[name].device == device]

    def stream(self, device: int) -> str:
        own = self.named("s", device)
        capture = self.model.capture
        if capture is not None and self.chance(0.8):
            return self.pick(list(capture.members))
        if own and self.chance(0.75):
            return self.pick(own)
        return f"{self.pick('LT')}{device}"

    def bare(self, stream: str, share: float = 0.35) -> str:
        """A stream's object, or often its handle, or an object that does not own it."""
        if not self.chance(share):
            return stream
        return f"{stream}.external" if self.chance(0.2) else f"{stream}.handle"

    def argument(self, device: int) -> s.Argument:
        chance = self.random.random()
        if chance < 0.3:
            return None
        return -1 if chance < 0.38 else self.bare(self.stream(device))

    def said(self, source: str, device: int) -> s.Argument:
        """A stream argument: where the memory is no GPU's own, often one of the other GPU."""
        far = self.named("s", 1 - device)
        if far and not self.gpus(source) and self.chance(0.4):
            return self.bare(self.pick(far))
        return self.argument(device)

    def gpus(self, source: str) -> bool:
        """Whether memory is handed out as one GPU's own."""
        view = self.model.views.get(source)
        return self.model.arrays[source].own if view is None else view.gpus

    def readonly(self) -> bool | None:
        return self.pick((None,) * 8 + (True, False))

    def one(self, letters: str) -> str | None:
        """One of these, the newest ones rather."""
        found = self.named(letters)
        if not found:
            return None
        return found[-1] if self.chance(0.5) else self.pick(found)

    def place(self, source: str) -> int:
        view = self.model.views.get(source)
        return self.model.arrays[source].device if view is None else view.place

    def at(self, source: str) -> int:
        view = self.model.views.get(source)
        return self.model.arrays[source].device if view is None else view.at

    def worker(self, array: str) -> str:
        """A stream that works on an array: on pinned and managed memory one of any GPU."""
        known = self.model.arrays[array]
        return self.stream(known.device if known.own or self.chance(0.6) else 1 - known.device)

    def gpu(self, source: str) -> int | None:
        """The GPU that a consumer asks for, where the memory is no GPU's own."""
        return None if self.gpus(source) or self.chance(0.4) else self.random.randint(0, 1)

    def current(self, device: int, stream: str | None = None, share: float = 0.25) -> str | None:
        """The stream that a library works on, if any: this one rather."""
        if not self.chance(share):
            return None
        if stream is None or self.chance(0.3):
            stream = self.stream(device)
        return f"{stream}.external" if not s.is_default(stream) and self.chance(0.1) else stream

    def works_on(self, source: str, device: int) -> str | None:
        if source[0] not in "xy":
            return self.current(device)
        array = self.model.arrays[source]
        pending = array.pending
        known = pending is not None and (s.is_default(pending) or pending in self.model.named)
        share = 0.9 if "exchange" in array.speaks else 0.25
        return self.current(device, pending if known else None, share)

    def new_stream(self) -> s.Step | None:
        if len(self.named("s")) >= 4:
            return None
        return self.new_stream_on(int(self.chance(0.3)))

    def new_stream_on(self, device: int) -> s.Step:
        free = sorted(self.model.free_handles) if self.chance(0.6) else []
        again = self.pick(free) if free else None
        name, kind = self.name("s"), self.pick(("blocking", "non_blocking"))
        return s.NewStream(name, "cuda", kind, device, again)

    def new_array(self, speaks: tuple[str, ...] | None = None) -> s.NewArray:
        device = int(self.chance(0.25))
        stream = self.stream(device) if self.chance(0.85) else None
        simple = self.chance(0.6)
        return s.NewArray(
            self.name("x"),
            self.made,
            speaks or drawn(self.strange, self.pick(SPEAKS)),
            stream=stream,
            device=device,
            memory="device" if stream is None else self.pick(MEMORY),
            layout="vector" if simple else self.pick(list(s.LAYOUTS)),
            dtype="float32" if simple else self.pick(list(s.ITEMSIZE)),
            readonly=self.chance(0.1),
        )

    def fill(self) -> s.Step | None:
        array = self.one("xxxy")
        if array is None:
            return None
        return s.Fill(array, self.value(), None if self.chance(0.1) else self.worker(array))

    def read(self) -> s.Step | None:
        array = self.one("xxxy")
        if array is None:
            return None
        return s.Read(self.name("p"), array, None if self.chance(0.3) else self.worker(array))

    def wait(self) -> s.Step:
        device = int(self.chance(0.2))
        return s.Wait(self.stream(device), self.stream(int(self.chance(0.2))))

    def sync(self) -> s.Step:
        return s.Sync(None if self.chance(0.3) else self.stream(0))

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

    def close(self) -> s.Step | None:
        stream = self.one("s")
        return stream and s.Close(stream)

    def reset(self) -> s.Step:
        self.push(s.Sync(None))
        return s.Reset(int(self.chance(0.3)))

    def unsettled(self) -> s.Step | None:
        """What strangers do between calls: a class changes, or a lie is told."""
        found = self.named("x")
        strange = [name for name in found if self.model.arrays[name].is_strange]
        if self.strange.random() >= (0.3 if strange else 0.03):
            return None
        if strange and self.strange.random() < 0.9:
            return s.Change(self.strange.choice(strange), (*self.strange.choice(ALONE), STRANGE))
        about = self.strange.choice([*TOLD])
        return s.Lie(self.strange.choice(found), about) if found else None

    def to_cai(self) -> s.Step | None:
        source = self.one("xxyvk")
        if source is None:
            return None
        at = self.at(source)
        argument, works_on = self.said(source, at), self.works_on(source, at)
        converts = self.chance(0.3)
        return s.ToCai(self.name("v"), source, argument, self.readonly(), works_on, converts)

    def from_cai(self) -> s.Step | None:
        source = self.one("xxyv")
        if source is None:
            return None
        as_dict = source[0] in "xv" and self.chance(0.2)
        return s.FromCai(
            self.name("v"),
            source,
            self.said(source, self.place(source)),
            self.readonly(),
            self.works_on(source, self.place(source)),
            as_dict,
            self.gpu(source),
        )

    def export(self) -> s.Step | None:
        source = self.one("xvvy")
        if source is None or source[0] == "y":
            return None
        gpu = self.gpu(source) if source[0] == "v" else None
        at = self.at(source) if gpu is None else gpu
        argument, versioned = self.said(source, at), self.chance(0.7)
        return s.Export(self.name("k"), source, argument, versioned, self.current(at), gpu)

    def copy(self) -> s.Step | None:
        views = [view for view in self.named("v") if self.model.views[view].kind == "dlpack"]
        if not views:
            return None
        source = self.pick(views)
        gpu = self.random.randint(0, 1) if self.chance(0.3) else self.gpu(source)
        at = self.at(source) if gpu is None else gpu
        argument, versioned = self.argument(at), self.chance(0.7)
        far = self.named("s", 1 - at)
        if far and self.chance(0.3) and not (self.gpus(source) and at == self.place(source)):
            argument = self.bare(self.pick(far))
        return s.Copy(self.name("k"), source, argument, versioned, self.current(at), gpu)

    def to_host(self) -> s.Step | None:
        views = [view for view in self.named("v") if self.model.views[view].kind == "dlpack"]
        return s.ToHost(self.name("p"), self.pick(views)) if views else None

    def consume(self, source: str | None = None) -> s.Step | None:
        source = source or self.one("vvk")
        if source is None or source not in self.model.views:
            return None
        view = self.model.views[source]
        kinds = CAI_CONSUMERS if view.kind == "cai" else DLPACK_CONSUMERS
        kind = "capsule" if source[0] == "k" else self.pick(kinds)
        gpu = self.gpu(source) if kind in {"dlpack", "dlpack-none"} else None
        at = view.at if gpu is None else gpu
        stream = self.stream(at)
        far = self.named("s", 1 - at)
        if far and not view.gpus and self.chance(0.4):
            stream = self.pick(far)
        usual = (view.user.kept and view.user.kept.stream) or view.user.stream
        usual = usual or self.model.arrays[view.array].copied_on
        if usual and self.chance(0.5):
            stream = usual
        said: str = stream
        if (kind.startswith("cai") or kind == "address") and self.chance(0.15):
            said = stream if s.is_default(stream) else f"{stream}.external"
        asks = kind in {"dlpack", "dlpack-legacy-capsule"} and self.chance(0.5)
        by_hand = kind == "capsule" and self.chance(0.5)
        value = None
        if self.chance(0.25):
            value = self.value()
        current = self.current(at, share=0.15)
        return s.Consume(self.name("p"), source, kind, said, value, asks, by_hand, current, gpu)

    def relay(self, source: str | None = None) -> s.Step | None:
        source = source or self.one("k")
        if source is None:
            return None
        speaks = self.pick(("cai3", "cai3", "dlpack"))
        return s.Relay(self.name("y"), source, self.stream(self.at(source)), speaks)

    def adopt(self) -> s.Step | None:
        source = self.one("k")
        return source and s.Adopt(self.name("v"), source)

    def release(self) -> s.Step | None:
        view = self.one("v")
        return view and self.releasing(view)

    def releasing(self, view: str, thread: float = 0.15) -> s.Step:
        how = "with" if self.chance(0.3) else "release"
        stream = None
        if how == "release" and self.chance(0.5):
            stream = self.said(view, self.at(view))
        return s.Release(view, stream, how, self.chance(thread), self.current(self.at(view)))

    def drop(self) -> s.Step | None:
        what = self.one("ppxxvvksyy")
        return what and self.dropping(what)

    def dropping(self, what: str, elsewhere: float = 0.15) -> s.Step:
        how = None
        if what in self.model.by_hand and self.chance(0.7):
            how = self.pick(("native", "native", "unlocked"))
        elif self.chance(elsewhere):
            how = "thread"
        device = self.at(what) if what in self.model.views else int(self.chance(0.2))
        return s.Drop(what, how, self.current(device))

    def cycle(self) -> s.Step | None:
        view = self.one("v")
        return view and s.Cycle(view, self.chance(0.5))

    def collect(self) -> s.Step | None:
        return s.Collect() if self.model.garbage else None

    def attempt(self) -> s.Step | None:
        tried = (self.to_cai, self.from_cai, self.export, self.release, self.drop, self.drop)
        step = self.pick(tried)()
        call, nth = self.pick(CALLS), self.pick((1, 1, 1, 2, 3))
        # Where no order can ever be made any more, memory is let go of while it is read.
        ends = isinstance(step, s.Release | s.Drop) or call == "cuEventQuery"
        return step and s.Attempt(step, call, nth, self.pick(ERRORS[:1] if ends else ERRORS))
