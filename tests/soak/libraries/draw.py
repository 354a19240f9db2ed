"""Draws programs over libraries at random, step by step, each tried by the discipline.

The same seed and setup make the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import steps as p
from ..program import Making, Program
from ..steps import DOES, HAVE_CURRENT, LIKE, STREAMS
from .discipline import OF_DICTS, OF_TENSORS, SPEAK_CAI, Discipline
from .ends import PRODUCERS
from .handles import Block, Thing, Unmet, library_of

WORDS = (1024, 1 << 18, 1 << 19)

SPINS = (0.0, 0.0, 0.0, 0.2, 0.5, 1.0, 1.5)

LATE = (0.3, 0.5, 1.0, 1.5)
MOST_BLOCKS, MOST_HANDLES, TRIES = 5, 12, 4


@dataclass(frozen=True)
class Setup:
    """What programs are drawn from."""

    manner: str = "told"
    # Those that are there.
    libraries: tuple[str, ...] = p.LIBRARIES
    # The least and the largest number of steps, and the most threads.
    steps: tuple[int, int] = (100, 250)
    threads: int = 3
    # The sizes of arrays, in float32 items: few, so that allocators hand the same blocks out.
    words: tuple[int, ...] = WORDS


class Draw(Making):
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

    def take(self, step: p.Step) -> None:
        self.account.take(step)

    def mend(self, lacking: Unmet, step: p.Step) -> bool:
        """A thread that uses what another has made meets it first."""
        meet = p.Meet(lacking.other, thread=step.thread)
        self.account.take(meet)
        self.steps.append(meet)
        return True

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

    def new_streams(self) -> None:
        for library in self.libraries:
            kinds = list(STREAMS.get(library, ()))
            plain = {"torch": "pool", "cupy": "non_blocking"}.get(library, "blocking")
            many = 1 if library == "warp" else self.pick((2, 3))
            for number in range(many if kinds else 0):
                kind = self.pick(kinds) if number and self.chance(0.4) else plain
                self.push(p.NewStream(self.name(library[0]), library, kind))

    def hand_on(self, source: Thing | None = None) -> Thing | None:
        """Views over views of an array, and a consumer, which reads most of the time."""
        source = source or self._source()
        if source is None or len(self._handles(source.block)) >= MOST_HANDLES:
            return None
        library = self.pick(self.libraries)
        stream = self.stream(library)
        doors = [kind for kind, of in (("cai", OF_DICTS), ("dlpack", OF_TENSORS)) if library in of]
        names = self._views(source, self.pick(doors), stream)
        if not names:
            return None
        if self.chance(0.1):
            self.push(self.to_host(self.account.things[names[-1]]))
        taken = self._taken(self.account.things[names[-1]], library, stream)
        if taken is not None and self.chance(0.75):
            self.push(self.read(taken))
        if taken is not None and self.chance(0.2):
            self.push(self.write(taken))
        if self.chance(0.6):
            self._let_go(names)
        return taken

    def _source(self) -> Thing | None:
        chosen = self.one("array", "array", "cai", "dlpack")
        if chosen is not None and not chosen.names_its_stream:
            return None
        return chosen

    def _views(self, source: Thing, door: str, stream: str | None) -> list[str]:
        """Make views until one of this kind, and sometimes go on."""
        names: list[str] = []
        for _ in range(6):
            kind = "dlpack" if source.kind == "cai" else "cai"
            goes_on = self.chance(0.25)
            made = self.pushed(self.door(source, stream, last=kind == door and not goes_on))
            if made is None:
                return names if source.kind == door else []
            names.append(made)
            source = self.account.things[made]
            if source.kind == door and not goes_on:
                break
        return names if source.kind == door else []

    def _taken(self, view: Thing, library: str, stream: str | None) -> Thing | None:
        thread = self.thread(view)
        ways = sorted((OF_DICTS if view.kind == "cai" else OF_TENSORS)[library])
        how = self.pick(ways)
        source = view.name
        if how == "capsule":
            argument = self.said(stream)
            if argument is None:
                how = "from_dlpack"
            else:
                current, versioned = self.current(stream), self.chance(0.7)
                name = self.name("k")
                capsule = p.Export(name, source, argument, versioned, current, thread=thread)
                if not self.push(capsule) or self.chance(0.15):
                    return None
                source = name
        for tried in (how, *ways):
            made = self.pushed(
                p.Take(self.name("y"), source, library, tried, stream, thread=thread)
            )
            if made is not None:
                return self.account.things[made]
        return None

    def take_again(self) -> None:
        """Somebody else takes a view over that is there already."""
        view = self.one("cai", "dlpack")
        if view is None:
            return
        of = OF_DICTS if view.kind == "cai" else OF_TENSORS
        library = self.pick([one for one in self.libraries if one in of] or [""])
        if not library:
            return
        stream = self.stream(library)
        if view.told is not None and view.told[0] == library[0]:
            stream = view.told
        taken = self._taken(view, library, stream)
        if taken is not None:
            self.push(self.read(taken))

    def call(self) -> None:
        """A function of another library's arrays is called; nobody names a stream."""
        for _ in range(TRIES):
            source = self.one("array")
            step = None if source is None else self._call_with(source)
            if source is None or step is None or not self.push(step):
                continue
            made = self.account.things[step.name] if step.name else None
            if made is not None:
                self.push(self.read(made))
            if self.chance(0.5):
                self.push(self.write(source))
            if made is not None and self.chance(0.5):
                self._let_go([made.name])
            return

    def _call_with(self, source: Thing) -> p.CallLibrary | None:
        others = [one for one in self.libraries if one != source.library]
        if not others or source.library is None:
            return None
        library, does = self.pick(others), self.pick(DOES)
        stream, returns = self.stream(library), self.pick([LIKE, LIKE, *others])
        to = source.library if returns == LIKE else returns
        back = stream if to == library else self.stream(to)
        back = source.stream if to == source.library and to in HAVE_CURRENT else back
        thread = self.thread(source)
        new, both = does != "write", does == "both"
        return p.CallLibrary(
            self.name("y" if to != library else "x") if new else None,
            source.name,
            library,
            stream,
            self.name("r"),
            does,
            returns,
            back if new else None,
            self.value() if does != "new" else 0,
            self.value() if new else 0,
            self.name("r") if both else "",
            self.exporting(source, thread),
            False if source.library == "jax" else None,
            self.pick(SPINS),
            thread=thread,
        )

    def _handles(self, block: Block) -> list[Thing]:
        return [one for one in self.account.things.values() if one.block is block]

    def _let_go(self, names: list[str]) -> None:
        """Let go of names in any order; what cannot be released or dropped just then stays."""
        self.random.shuffle(names)
        for name in names:
            thing = self.account.things.get(name)
            if thing is None:
                continue
            releases = thing.kind in {"cai", "dlpack"} and not thing.released and self.chance(0.3)
            # What is released and still named shows that the release is an end by itself.
            if releases and self.push(self.release(thing)) and self.chance(0.4):
                continue
            if not self.push(self.drop(thing)) and self.chance(0.5):
                self.push(self.sync())
                self.push(self.drop(thing))

    def give_back(self) -> None:
        """All handles but the root's go, late readers among them, and the root writes at once."""
        root = self._root()
        if root is None:
            return
        if self.chance(0.5):
            self.hand_on(root)
        others = [one for one in self._handles(root.block) if one is not root]
        self._read_late(others)
        self._let_go([one.name for one in others])
        if self.chance(0.3):
            self.push(self.collect())
        write = p.Fill(root.name, self.value(), thread=self.thread(root))
        if self.push(write):
            self.push(self.read(root, 0.0))

    def end(self) -> None:
        """All handles of a block go, late readers among them, and the memory is used again."""
        root = self._root()
        if root is None:
            return
        block = root.block
        if self.chance(0.5):
            self.hand_on(root)
        names = [one.name for one in self._handles(block)]
        self._read_late([one for one in self._handles(block) if one is not root])
        self._let_go(names)
        if self.chance(0.5):
            self.push(self.collect())
        thread = self.thread()
        again = p.Reuse(block.library, block.stream, block.words, self.value(), thread=thread)
        self.push(again)

    def _read_late(self, things: list[Thing]) -> None:
        for thing in things:
            if thing.kind == "array" and self.chance(0.7):
                self.push(self.read(thing, self.pick(LATE)))

    def _root(self) -> Thing | None:
        roots = [one for one in self.things("array") if one.block.root == one.name]
        return self.pick(roots) if roots else None

    def new_block(self) -> None:
        """An array, handed on most of the time; where there are many, one ends first."""
        if len({id(one.block) for one in self.account.things.values()}) >= MOST_BLOCKS:
            self.end()
        made = self.pushed(self.make())
        if made is not None and self.chance(0.8):
            self.hand_on(self.account.things[made])

    def capsule(self) -> None:
        """A capsule that may never be consumed, or by somebody else."""
        view = self.one("dlpack")
        libraries = [one for one in self.libraries if one in {"torch", "cupy"}]
        if view is not None and libraries:
            library = self.pick(libraries)
            stream = self.stream(library)
            argument = self.said(stream)
            if argument is not None:
                made = p.Export(self.name("k"), view.name, argument, True, self.current(stream))
                self.push(made)

    def write_on(self) -> None:
        """A chain of writers, each of which gives back before the one before it goes on."""
        source = self.one("array")
        if source is None or source.frozen or source.library not in SPEAK_CAI:
            return
        taken = self.hand_on(source)
        if taken is not None and self.push(self.write(taken)):
            further = self.hand_on(taken) if taken.names_its_stream else None
            if further is not None and self.chance(0.5):
                self.push(self.write(further))


KINDS: dict[Callable[[Draw], object], int] = {
    Draw.new_block: 14,
    Draw.hand_on: 16,
    Draw.take_again: 6,
    Draw.call: 10,
    Draw.read: 12,
    Draw.write: 6,
    Draw.to_host: 4,
    Draw.write_on: 6,
    Draw.give_back: 8,
    Draw.end: 9,
    Draw.drop: 8,
    Draw.release: 4,
    Draw.collect: 4,
    Draw.capsule: 2,
    Draw.enter: 4,
    Draw.leave: 4,
    Draw.sync: 2,
}

CHOICES, WEIGHTS = tuple(KINDS), tuple(KINDS.values())


def program(seed: int, setup: Setup) -> Program:
    draw = Draw(seed, setup)
    wanted = draw.random.randint(*setup.steps)
    draw.new_streams()
    while len(draw.steps) < wanted:
        kind = draw.random.choices(CHOICES, WEIGHTS)[0]
        made = kind(draw)
        if isinstance(made, p.Step):
            draw.push(made)
    collects = draw.threads == 1 and draw.chance(0.5)
    listens = draw.chance(0.25)
    return Program(setup.manner, draw.libraries, draw.threads, tuple(draw.steps), collects, listens)


def first(setup: Setup) -> Program:
    """Make a program in which every library does something once, in every size."""
    steps: list[p.Step] = []
    for library in setup.libraries:
        kinds = list(STREAMS.get(library, ()))
        stream = f"{library[0]}1" if kinds else None
        if stream is not None:
            steps.insert(0, p.NewStream(stream, library, kinds[0]))
        for words in setup.words if library in PRODUCERS else ():
            steps.append(p.Make(f"x{len(steps)}", library, stream, words, len(steps), 0.2))
            steps.append(p.Read(f"r{len(steps)}", steps[-1].makes() or ""))
    return Program(setup.manner, setup.libraries, 1, tuple(steps))
