"""What DLPack and the array API standard require of how a consumer asks for an array."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab
from ..requirement import ARRAY_API, NotApplicableError, expect
from .arrays import attempt, expect_read, takes

_dlpack = takes("dlpack", ARRAY_API)


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
    "array.__dlpack__: stream",
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
    level="should",
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
    level="should",
)
def takes_dlpack_no_max_version(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, keywords=("stream",))
    expect_read(c, x)
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
