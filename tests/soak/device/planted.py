"""The faults that are planted for tests, each of which the soak has to find.

In the bridge: functions that do one thing wrong, and say nothing of it. In the model: promises that
are more than the bridge makes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cai_bridge
from cai_bridge import convert, from_cai, to_cai

from .handover import Bridge


@dataclass(frozen=True)
class Fault:
    """A fault, and how the first of the failures that it makes is to be named."""

    finds: str
    # What stands in for functions of the bridge.
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    # What the model promises too much.
    lies: frozenset[str] = frozenset()

    def model(self) -> Bridge:
        """Make the model to draw and judge by."""
        model = Bridge()
        model.lies = self.lies
        return model

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        before = {name: getattr(cai_bridge, name) for name in self.functions}
        for name, function in self.functions.items():
            setattr(cai_bridge, name, function)
        try:
            yield
        finally:
            for name, function in before.items():
                setattr(cai_bridge, name, function)


NOTHING = Fault("")


def never_waits(x: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`to_cai` that names the consumer's stream without having it wait."""
    silent = to_cai(x, stream=-1, readonly=readonly)
    return to_cai(silent, stream=stream, readonly=readonly)


class Vouches:
    """An object that says it owns a stream of which it has only the handle."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def trusts_handles(x: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`to_cai` that takes every handle for a stream that lives as long as the view."""
    is_handle = isinstance(stream, int) and stream > 2
    return to_cai(x, stream=Vouches(stream) if is_handle else stream, readonly=readonly)


def takes_writing_for_granted(x: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`to_cai` that forgets what is read-only."""
    return to_cai(x, stream=stream, readonly=bool(readonly))


def names_the_default_stream(x: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`to_cai` that tells everybody who names none the legacy default stream."""
    return to_cai(x, stream=1 if stream is None else stream, readonly=readonly)


def tells_nobody(x: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`to_cai` whose dict names no stream once one was asked for."""
    made = to_cai(x, stream=stream, readonly=readonly)
    return made if stream is None else to_cai(made, stream=-1)


def keeps_the_producer() -> Callable[..., Any]:
    """`from_cai` that holds the producer forever."""
    kept = []

    def keeps(x: Any, **arguments: Any) -> Any:
        kept.append(x)
        return from_cai(x, **arguments)

    return keeps


def loses_the_producer(x: Any, owner: Any = None, **arguments: Any) -> Any:
    """`from_cai` that holds nobody."""
    said = x
    if not isinstance(x, dict):
        said = x.__cuda_array_interface__
        arguments.setdefault("dtype", x.dtype.name)
    return from_cai(said, owner=Vouches(0), **arguments)


def declares_the_default_stream(x: Any, stream: Any = None, **arguments: Any) -> Any:
    """`from_cai` that takes all that nobody said anything of for ready on the legacy stream."""
    return from_cai(x, stream=1 if stream is None else stream, **arguments)


def converts_unordered(x: Any, to: Any, stream: Any = None, readonly: bool | None = None) -> Any:
    """`convert` that names the consumer's stream without having it wait."""
    made = convert(x, to, stream=-1, readonly=readonly)
    if isinstance(made, list):
        return [to_cai(one, stream=stream) for one in made]
    return to_cai(made, stream=stream)


def calls_and_lets_go(
    function: Any, *, stream: Any = None, readonly: bool | None = None, returns: Any = None
) -> Any:
    """`adapt` that gives the memory back when the function's view goes, and not when it returns."""
    return lambda x: function(to_cai(x, stream=stream, readonly=readonly))


def dies(x: Any, **arguments: Any) -> Any:
    """`from_cai` that dies of a dict with memory."""
    if isinstance(x, dict) and x["data"][0]:
        os.kill(os.getpid(), signal.SIGSEGV)
    return from_cai(x, **arguments)


RACE = "report: race"
FAULTS = {
    "never waits": Fault(RACE, {"to_cai": never_waits}),
    "trusts handles": Fault("report: dead stream", {"to_cai": trusts_handles}),
    "takes writing for granted": Fault("view", {"to_cai": takes_writing_for_granted}),
    "names the default stream": Fault("view", {"to_cai": names_the_default_stream}),
    "tells nobody": Fault("view", {"to_cai": tells_nobody}),
    "keeps the producer": Fault("an array is alive", {"from_cai": keeps_the_producer()}),
    "loses the producer": Fault("an array is gone", {"from_cai": loses_the_producer}),
    "declares the default stream": Fault("view", {"from_cai": declares_the_default_stream}),
    "converts unordered": Fault(RACE, {"convert": converts_unordered}),
    "calls and lets go": Fault(RACE, {"adapt": calls_and_lets_go}),
    "dies": Fault("died", {"from_cai": dies}),
    "promises waits": Fault(RACE, lies=frozenset({"-1 waits"})),
    "promises contexts": Fault("", lies=frozenset({"contexts last"})),
}
