"""One step of a program over libraries, drawn at random, and tried by the discipline."""

from __future__ import annotations

from dataclasses import dataclass

from .. import steps as p
from ..making import Making
from ..step import HAVE_CURRENT, STREAMS
from .clocks import Unmet
from .discipline import SPEAK_CAI, Discipline
from .handles import Thing, library_of

WORDS = (1024, 1 << 18, 1 << 19)
SPINS = (0.0, 0.0, 0.0, 0.2, 0.5, 1.0, 1.5)
LATE = (0.3, 0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Setup:
    """What programs are drawn from.

    Attributes
    ----------
    libraries : tuple of str
        Those that are there.
    steps : tuple of int
        The least and the largest number of steps.
    threads : int
        The most.
    words : tuple of int
        The sizes of arrays, in float32 items: few, so that allocators hand the same blocks out.
    """

    manner: str = "told"
    libraries: tuple[str, ...] = p.LIBRARIES
    steps: tuple[int, int] = (100, 250)
    threads: int = 3
    words: tuple[int, ...] = WORDS


class Drawing(Making):
    """A program in the making."""

    def __init__(self, seed: int, setup: Setup) -> None:
        super().__init__(f"{seed} {setup.manner}")
        self.setup, self.manner = setup, setup.manner
        threads = min(self.pick((1, 1, 1, 2, 2, 3)), setup.threads)
        self.libraries = self._libraries()
        self.threads = 1 if "warp" in self.libraries else threads
        self.account = Discipline(self.manner, self.threads)
        self.words = self.random.sample(setup.words, self.pick((1, 1, 2)))
        self.tries = 2 * self.threads

    def _libraries(self) -> tuple[str, ...]:
        """Choose some, a producer that can be written among them. JAX takes long to start."""
        there = self.setup.libraries
        seldom = {"jax": 0.35, "numba": 0.7, "tvm_ffi": 0.5, "warp": 0.5}
        chosen = {one for one in there if self.chance(seldom.get(one, 0.85))}
        for one in ("torch", "cupy", "numba"):
            if len(chosen) < 2 or not chosen & set(STREAMS):
                chosen |= {one} & set(there)
        return tuple(one for one in there if one in chosen)

    # --- trying -----------------------------------------------------------------------------------

    def take(self, step: p.Step) -> None:
        self.account.take(step)

    def mend(self, lacking: Unmet, step: p.Step) -> bool:
        """A thread that uses what another has made meets it first."""
        meet = p.Meet(lacking.other, thread=step.thread)
        self.account.take(meet)
        self.steps.append(meet)
        return True

    # --- choosing ---------------------------------------------------------------------------------

    def thread(self, *things: Thing) -> int:
        """Choose who does it: mostly the thread that made the thing last."""
        if things and self.chance(0.8):
            clock = things[-1].used
            return max(range(self.threads), key=lambda thread: clock[thread])
        return self.random.randrange(self.threads)

    def things(self, *kinds: str) -> list[Thing]:
        named = self.account.things.values()
        return [one for one in named if one.kind in kinds and not one.released and not one.spent]

    def one(self, *kinds: str) -> Thing | None:
        """Choose one of these, the newest rather."""
        found = self.things(*kinds)
        if not found:
            return None
        return self.pick(found[-3:]) if self.chance(0.5) else self.pick(found)

    def stream(self, library: str) -> str | None:
        if library not in STREAMS:
            return None
        return self.pick([one for one in self.account.kinds if one[0] == library[0]])

    def said(self, stream: str | None) -> str | None:
        """Write an argument in the program's manner."""
        if stream is None or self.manner == "unsaid":
            return None
        return stream if self.manner == "told" else f"{stream}.handle"

    def exporting(self, array: Thing, thread: int) -> str | None:
        """Name the stream that has to be made current for an export, where it is not."""
        if array.library not in HAVE_CURRENT or array.stream is None:
            return None
        current = self.account.current(thread, array.stream[0])
        return None if current == array.stream and self.chance(0.7) else array.stream

    def current(self, stream: str | None, source: Thing | None = None) -> str | None:
        """Name a CuPy stream that is current for a hand-over by its handle; seldom it is not."""
        cupy = stream is not None and stream[0] == "c"
        if not cupy or self.manner == "unsaid" or (source and source.library == "cupy"):
            return None
        return stream if self.chance(0.95 if self.manner == "handles" else 0.3) else None

    # --- steps ------------------------------------------------------------------------------------

    def make(self) -> p.Step | None:
        library = self.pick([one for one in self.libraries if one != "tvm_ffi"])
        return p.Make(
            self.name("x"),
            library,
            self.stream(library),
            self.pick(self.words),
            self.value(),
            self.pick(LATE) if self.chance(0.7) else 0.0,
            thread=self.thread(),
        )

    def read(self, array: Thing | None = None, spin: float | None = None) -> p.Step | None:
        array = array or self.one("array")
        if array is None:
            return None
        spin = self.pick(SPINS) if spin is None else spin
        return p.Read(self.name("r"), array.name, spin=spin, thread=self.thread(array))

    def write(self, array: Thing | None = None) -> p.Step | None:
        array = array or self.one("array")
        if array is None:
            return None
        value, spin = self.value(), self.pick(SPINS)
        return p.Fill(array.name, value, spin=spin, thread=self.thread(array))

    def to_cai(self, source: Thing, stream: str | None) -> p.Step:
        """A view for a consumer's stream, or (None) for whoever minds the dict."""
        thread = self.thread(source)
        array = source.kind == "array"
        by = "capsule" if array and source.library in {"torch", "cupy"} else ""
        return p.ToCai(
            self.name("v"),
            source.name,
            self.said(stream),
            at=self.exporting(source, thread) if array else None,
            current=self.current(stream, source if array else None),
            by=self.pick((by, "versioned" if by else "")) if self.chance(0.15) else "",
            thread=thread,
        )

    def from_cai(self, source: Thing) -> p.Step:
        thread = self.thread(source)
        array = source.kind == "array"
        declared = self.said(source.stream) if array and self.chance(0.3) else None
        return p.FromCai(
            self.name("v"),
            source.name,
            declared,
            at=self.exporting(source, thread) if array else None,
            as_dict=array and source.library != "torch" and self.chance(0.2),
            readonly=False if source.readonly and self.chance(0.7) else None,
            thread=thread,
        )

    def door(self, source: Thing, stream: str | None, *, last: bool) -> p.Step | None:
        """The next view of a chain."""
        if source.kind == "cai":
            return self.from_cai(source)
        if source.kind == "array" and source.library in SPEAK_CAI and self.chance(0.5):
            return self.from_cai(source)
        return self.to_cai(source, stream if last or self.chance(0.3) else None)

    def to_host(self, view: Thing | None = None) -> p.Step | None:
        view = view or self.one("dlpack")
        return view and p.ToHost(self.name("r"), view.name, thread=self.thread(view))

    def release(self, view: Thing | None = None) -> p.Step | None:
        view = view or self.one("cai", "dlpack")
        if view is None:
            return None
        stream, how = None, "release"
        if view.kind == "cai" and view.lease is not None and self.manner != "unsaid":
            streams = {one for one in (view.told, *view.lease.streams) if one}
            needed = view.told is None and streams
            if needed or self.chance(0.5):
                stream = self.said(next(iter(sorted(streams)), None))
        if stream is None and self.chance(0.3):
            how = "with"
        elsewhere = self.chance(0.1)
        return p.Release(view.name, stream, how, elsewhere, thread=self.thread(view))

    def drop(self, thing: Thing | None = None) -> p.Step | None:
        if thing is None:
            named = list(self.account.things.values())
            if not named:
                return None
            thing = self.pick(named)
        thread = self.thread(thing)
        if self.chance(0.08):
            return p.Cycle(thing.name, thread=thread)
        return p.Drop(thing.name, "thread" if self.chance(0.1) else None, thread=thread)

    def collect(self) -> p.Step | None:
        if not any(one.lost for one in self.account.alive):
            return None
        return p.Collect(thread=self.thread())

    def enter(self) -> p.Step | None:
        thread = self.thread()
        streams = [one for one in self.account.kinds if library_of(one) in HAVE_CURRENT]
        if not streams or len(self.account.entered[thread]) > 3:
            return None
        return p.Enter(self.pick(streams), thread=thread)

    def leave(self) -> p.Step | None:
        return p.Leave(thread=self.thread())

    def sync(self) -> p.Step | None:
        return p.Sync(thread=self.thread())
