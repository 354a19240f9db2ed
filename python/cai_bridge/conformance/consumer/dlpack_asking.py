"""What DLPack and the array API standard require of how a consumer asks for an array."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab
from ..requirement import ARRAY_API, Check, Level, NotApplicableError, expect
from .arrays import asked_with, attempt, expect_copied, stream_of, takes

STREAM = "array.__dlpack__: stream"
_RACE = "it reads before the write is done"


def _dlpack(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    return takes("dlpack", name, ARRAY_API, section, rule=rule, why=why, level=level)


@_dlpack(
    "device",
    "array.__dlpack_device__",
    "the consumer calls __dlpack_device__ first, and names no stream if the device is the CPU",
    "stream numbers differ between device types, and the CPU has no streams",
)
def takes_dlpack_device(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, device=(1, 0))
    taken = attempt(c.take, x)
    named = [wishes.get("stream") for wishes in x.asked]
    expect(all(stream is None for stream in named), f"an array of the CPU is asked with {x.asked}")
    return f"{taken}"


@_dlpack(
    "stream-named",
    STREAM,
    "stream= is None, -1, 1, 2 or a handle; never 0",
    "0 may mean None, the legacy or the per-thread default stream, and producers refuse it",
)
def takes_dlpack_stream_named(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab)
    c.take(x)
    mine = c.stream()
    if mine is not None:
        with c.on(mine):
            c.take(x)
    lab.synchronize()  # it may look at what it takes, at once
    for wishes in x.asked:
        stream = wishes.get("stream")
        expect(stream is None or type(stream) is int, f"stream is {stream!r}")
        expect(stream != 0 and (stream or 1) >= -1, f"stream is {stream!r}")
    return " and ".join(f"{wishes.get('stream')}" for wishes in x.asked)


@_dlpack(
    "max-version",
    "array.__dlpack__: max_version",
    "the consumer passes max_version, to get versioned capsules",
    "it gets legacy capsules, which have no read-only flag",
    "should",
)
def takes_dlpack_max_version(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab)
    c.take(x)
    lab.synchronize()  # it may look at what it takes, at once
    newest = [wishes.get("max_version") for wishes in x.asked]
    expect(any(one is not None and one[0] >= 1 for one in newest), f"it asks with {x.asked}")
    return f"{newest}"


@_dlpack(
    "no-max-version",
    "array.__dlpack__: max_version",
    "if a producer does not take max_version, the consumer calls again without it",
    "the consumer refuses arrays of older libraries",
    "should",
)
def takes_dlpack_no_max_version(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, keywords=("stream",))
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"asked with {x.asked}"


@_dlpack(
    "buffer-error",
    "from_dlpack: Raises",
    "the consumer passes the producer's BufferError on",
    "programs cannot tell an array that cannot be exchanged from another failure",
)
def takes_dlpack_buffer_error(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, error=BufferError("this one cannot be exchanged"))
    try:
        c.take(x)
    except BufferError as error:
        return f"passed on: {error}"
    except NotApplicableError:
        raise
    except Exception as error:
        expect(False, f"it becomes {type(error).__name__}: {error}")
    expect(False, "it is swallowed")
    return ""


@_dlpack(
    "pending",
    STREAM,
    "the consumer names its stream, and its work runs after what is pending",
    _RACE,
)
def takes_dlpack_pending(c: ConsumerAdapter, lab: Lab) -> str:
    mine = stream_of(c)
    for value in lab.values():
        x, theirs = DLPackArray(lab, (1024,)), lab.stream()
        late = x.write_late(theirs, value)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, asked_with(lab, x.asked))
        del y
    return seen


@_dlpack(
    "default-stream",
    STREAM + ": None, 1 and 2",
    "the same for work on the consumer's default stream",
    _RACE,
)
def takes_dlpack_default_stream(c: ConsumerAdapter, lab: Lab) -> str:
    for value in lab.values():
        x, theirs = DLPackArray(lab, (1024,)), lab.stream()
        late = x.write_late(theirs, value)
        y = c.take(x)
        seen = expect_copied(c, lab, c.copy(y), late, asked_with(lab, x.asked))
        del y
    return seen
