"""The routes of an array from a producer to a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cai_bridge import from_cai, to_cai

from ..adapter import ConsumerAdapter
from ..stand_in import CAI, DLPACK, EXCHANGE, speaks

Hand = Callable[[Any, Any], Any]


def _nothing(handed: Any, stream: Any) -> None:
    del handed, stream


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes
    ----------
    name : str
        The object that the consumer gets, and the protocol.
    door : str
        The protocol by which the consumer imports: ``"cai"`` or ``"dlpack"``; or ``"convert"`` if
        the bridge makes the consumer's array.
    needs : tuple of str
        The protocols; the producer must speak one of them.
    hand : callable
        Called with the array and the consumer's stream, while the producer's stream is current. Not
        called if the consumer's adapter converts.
    bridged : bool
        Whether the route uses `cai_bridge`.
    tells : bool
        Whether the route names the consumer's stream, which then must have a name.
    end : callable
        Called with the object that was handed over and the consumer's stream, after the consumer's
        work is queued.
    """

    name: str
    door: str
    needs: tuple[str, ...]
    hand: Hand
    bridged: bool = True
    tells: bool = False
    end: Hand = _nothing

    @property
    def way(self) -> str:
        """The group of `WAYS` that the route belongs to."""
        return "convert" if self.door == "convert" else "views" if self.bridged else "native"

    def missing(self, array: Any, consumer: ConsumerAdapter) -> str | None:
        """Return why an array cannot take this route to a consumer; None if it can."""
        if self.door == "convert":
            if consumer.library is None:
                return "convert() does not know the consumer"
        elif self.door not in consumer.doors:
            return f"the consumer does not speak {_CALLED[self.door]}"
        if not any(speaks(array, name) for name in self.needs):
            called = dict.fromkeys(_CALLED[one] for one in self.needs)
            return f"the producer does not speak {' or '.join(called)}"
        return None


_CALLED = {"cai": "CAI", "dlpack": "DLPack", CAI: "CAI", DLPACK: "DLPack", EXCHANGE: "DLPack"}


def _itself(x: Any, stream: Any) -> Any:
    del stream
    return x


def _release(view: Any, stream: Any) -> None:
    """Release the view on the consumer's stream, which `to_cai` was not told."""
    view.release(stream)


def _not_by_view(x: Any, stream: Any) -> Any:
    raise NotImplementedError("the consumer's adapter converts it")


WAYS = ("native", "views", "convert")
"""The libraries alone, the bridge's views, and arrays that the bridge makes."""

ROUTES = (
    Route("x by CAI", "cai", (CAI,), _itself, bridged=False),
    Route("x by DLPack", "dlpack", (DLPACK,), _itself, bridged=False),
    Route(
        "to_cai(x, stream=s)",
        "cai",
        (DLPACK, EXCHANGE, CAI),
        lambda x, stream: to_cai(x, stream=stream),
        tells=True,
    ),
    Route("to_cai(x)", "cai", (DLPACK, EXCHANGE, CAI), lambda x, _: to_cai(x), end=_release),
    Route("from_cai(x)", "dlpack", (CAI,), lambda x, _: from_cai(x)),
    Route("from_cai(to_cai(x))", "dlpack", (DLPACK, EXCHANGE), lambda x, _: from_cai(to_cai(x))),
    Route("convert(x, library)", "convert", (DLPACK, EXCHANGE, CAI), _not_by_view),
)
"""All routes: the protocols alone, and the bridge; ``s`` is the consumer's stream."""


def chosen(ways: Iterable[str] | None) -> tuple[Route, ...]:
    """List the routes of some ways; by default all.

    Raises
    ------
    ValueError
        There is no such way.
    """
    wanted = WAYS if ways is None else tuple(ways)
    for way in wanted:
        if way not in WAYS:
            raise ValueError(f"ways: got {way!r}; allowed: {', '.join(WAYS)}")
    return tuple(route for route in ROUTES if route.way in wanted)


_BY_DLPACK = ("from_cai(to_cai(x))", "from_cai(x)")
_TOLD = ("to_cai(x, stream=s)", "to_cai(x)")
_ADVISED = {
    # These libraries take DLPack, and the bridge can hold their stream or ask for it again.
    **dict.fromkeys(("torch", "jax", "cupy", "tvm-ffi"), _BY_DLPACK),
    # Numba has no current stream, so nothing keeps a bare handle of its stream alive.
    "numba": ("to_cai(x)",),
    # By DLPack cuda.core passes a bare handle, which nothing keeps alive. By CAI the view holds the
    # stream object.
    "cuda.core": _TOLD,
    # RMM takes CAI only, and ignores the dict's stream.
    "rmm": _TOLD,
}


def advised(consumer: str) -> tuple[str, ...]:
    """List the names of the view routes that suit a consumer, the best first."""
    return _ADVISED.get(consumer, (*_BY_DLPACK, *_TOLD))
