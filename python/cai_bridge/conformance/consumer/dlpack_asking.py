"""How a consumer must ask for an array, by DLPack and the array API standard."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab
from ..producer.arrays import is_int
from ..refusals import attempt
from ..requirement import NotApplicableError, expect
from .arrays import expect_read, prepared, taken, takes
from .layouts import handed

_dlpack = takes("dlpack", forms=False)


@_dlpack("device")
def takes_dlpack_device(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, device=(1, 0))
    with prepared(c, lab, x, case.but(moment="first")):
        told = attempt(c.take, x)
    named = [wishes.get("stream") for wishes in x.asked]
    expect(all(stream is None for stream in named), f"an array of the CPU is asked with {x.asked}")
    return f"{told}"


@_dlpack("stream-named")
def takes_dlpack_stream_named(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case)
    with prepared(c, lab, x, case):
        taken(c, x, case)
    lab.synchronize()  # the consumer may read the array at once
    for wishes in x.asked:
        stream = wishes.get("stream")
        expect(stream is None or is_int(stream), f"stream is {stream!r}")
        expect(stream != 0 and (stream or 1) >= -1, f"stream is {stream!r}")
    return " and ".join(f"{wishes.get('stream')}" for wishes in x.asked)


@_dlpack("max-version")
def takes_dlpack_max_version(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case)
    with prepared(c, lab, x, case):
        attempt(c.take, x)
    lab.synchronize()  # the consumer may read the array at once
    newest = [wishes.get("max_version") for wishes in x.asked]
    expect(any(one is not None and one[0] >= 1 for one in newest), f"it asks with {x.asked}")
    return f"{newest}"


@_dlpack("no-max-version")
def takes_dlpack_no_max_version(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, keywords=("stream",))
    expect_read(c, lab, x, case)
    return f"asked with {x.asked}"


@_dlpack("buffer-error")
def takes_dlpack_buffer_error(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, error=BufferError("this one cannot be exchanged"))
    with prepared(c, lab, x, case.but(moment="first")):
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
