"""Stream objects that keep no stream, or not any more."""

from __future__ import annotations

from typing import Any


class Closing:
    """A stream object that can be closed while it is held, as some libraries have them."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream.handle if self.stream else 0)

    def close(self) -> None:
        self.stream = None


class ExternalStream:
    """An object around somebody else's handle, by the name that two libraries give it."""

    def __init__(self, stream: Any, **said: Any) -> None:
        self.handle = stream.handle
        vars(self).update(said)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class _Fails(ExternalStream):
    def _fails(self) -> Any:
        raise ValueError


def around(name: str, module: str = "elsewhere", **said: Any) -> Any:
    """What a library makes of a handle: a class of its name, with what it says of the stream."""
    return lambda stream: type(name, (ExternalStream,), {"__module__": module})(stream, **said)


def _failing(name: str) -> Any:
    return type("Named", (_Fails,), {name: property(_Fails._fails)})


def _cupys(foreign: Any) -> Any:
    """What `cupy.cuda.Stream.from_external` makes of a stream object, or of a bare one."""
    return lambda stream: around("Stream", "cupy.cuda.stream", _foreign_stream_ref=foreign(stream))(
        stream
    )


_bare = around("CUstream", "cuda.bindings.driver")
KEEPING_NOTHING = {
    "by its name": ExternalStream,
    "by a flag": around("Flagged", external=True),
    "by an id": lambda stream: around("Torchs", stream_id=stream.handle)(stream),
    "without an owner": around("Unowned", owner=False),
    "cuda.bindings'": _bare,
    "CuPy's of an object": _cupys(lambda stream: stream),
    "CuPy's of a bare one": _cupys(_bare),
    "failing to say its id": _failing("stream_id"),
    "failing to say its flag": _failing("external"),
}
"""How objects are known that keep no stream alive."""
