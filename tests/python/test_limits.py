"""What the arrays of a library may be: the rows of `limit` in `tests/data/hosts.toml`.

Each library's file says what its arrays may be; a stand-in makes them, so that none is installed.
"""

import sys
import types

import pytest
from capsules import HandMade, read
from contract import ALLOWED, assert_refused, each
from fakes import DLPackPair, only_cai

from cai_bridge import CaiView, DLPackView, Library, convert
from cai_bridge._libraries._cupy import Cupy
from cai_bridge._libraries._jax import Jax
from cai_bridge._libraries._numba import Numba
from cai_bridge._libraries._torch import Torch
from cai_bridge._libraries._tvm_ffi import TvmFfi
from cai_bridge._libraries._warp import Warp

LIBRARIES = {
    "torch": (Torch, DLPackView),
    "jax": (Jax, DLPackView),
    "cupy": (Cupy, CaiView),
    "numba": (Numba, CaiView),
    "warp": (Warp, CaiView),
    "tvm_ffi": (TvmFfi, DLPackView),
    "registered": (type("Registered", (Library,), {"name": "registered"}), DLPackView),
}
FLOAT8_E3M4 = 7, 8, 1


class Array:
    """An array of a stand-in: the view that it is made of, and the stream that it is ready on."""

    def __init__(self, view, stream):
        self.view, self.stream = view, stream


def stand_in(to, streams):
    """The library `to`, with arrays of a stand-in on those streams."""
    library, view_of = LIBRARIES[to]

    class StandIn(library):
        types = (Array,)
        view = view_of
        asked: list[int]

        def current_stream(self, device):
            return streams[device]

        def make(self, view, stream):
            return Array(view, stream)

    return StandIn()


@pytest.fixture
def streams(cuda):
    return {device: cuda.stream("consumer", device=device) for device in range(2)}


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    """A PyTorch that lacks what PyTorch lacks, whatever is installed."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))


def given(row, cuda, producer):
    """The array of a row, which work on the producer's stream writes."""
    owner, memory = row.get("owner", 0), row.get("memory", "device")
    x = cuda.array([0.0] * 8, memory=memory, device=owner, speaks=())
    producer.fill(x, 7.0)
    if row.get("dtype"):
        tensor = {"dtype": FLOAT8_E3M4, "device": (2, owner), "owner": x}
        return DLPackPair(lambda **_: HandMade(x.ptr, **tensor).capsule())
    shape = tuple(row.get("shape", (4,)))
    entries = {"shape": shape, "stream": producer.handle}
    if "strides" in row:
        entries["strides"] = tuple(4 * step for step in row["strides"])
    readonly = row.get("readonly", False)
    return only_cai(x, **entries, data=(x.ptr + 16 * ("strides" in row), readonly))


REMEDIES = {
    "StrideNegative": [{"copy": True}],
    "StridesNotCompact": [{"copy": True}],
    "ReadOnlyConverted": [{"copy": True}, {"readonly": False}],
    "DtypeConverted": [],
}


@each("hosts", "limit")
def test_an_array_is_given_to_a_library_as_it_can_have_it_or_is_refused(row, cuda, streams):
    producer = cuda.stream("producer", device=row.get("owner", 0))
    x, library = given(row, cuda, producer), stand_in(row["to"], streams)
    wishes = {"stream": streams[row["stream"]]} if "stream" in row else {}
    for go in (lambda **w: convert(x, library, **w), lambda **w: convert([x, x], library, **w)[1]):
        if "refused" in row:
            with pytest.raises(BufferError) as refused:
                go()
            assert str(refused.value).endswith(f"; allowed: {ALLOWED[row['refused']]}")
            for remedy in REMEDIES[row["refused"]]:
                assert isinstance(go(**remedy), Array)
            continue
        view = go(**wishes).view
        if "device" in row:
            assert view.device == tuple(row["device"])
        if "made" in row:
            assert view.strides == tuple(4 * step for step in row["made"])
    cuda.synchronize()


@each("refusals", "object", kind="DtypeConverted")
def test_a_type_that_the_library_lacks_is_refused_and_its_bits_are_taken(row, cuda, streams):
    library = stand_in("torch", streams)
    x = given({"dtype": row["got"]}, cuda, cuda.legacy)
    assert_refused(row, convert, x, library)
    bits = cuda.array([1] * 4, dtype="uint8")
    assert convert(bits, library).view.typestr == "|u1"
    cuda.synchronize()


def handed_over(cuda, streams, to, owner, works_on):
    """Managed memory that a producer writes late, and the library's array of it."""
    producer = cuda.stream("producer", device=owner)
    x = cuda.array([0.0] * 4, memory="managed", device=owner, speaks=())
    producer.fill(x, 7.0)
    x = only_cai(x, stream=producer.handle)
    wishes = {} if works_on == owner else {"stream": streams[works_on]}
    return producer, convert(x, stand_in(to, streams), **wishes)


def reads(made, stream):
    """The library's read, on its stream."""
    if isinstance(made.view, DLPackView):
        seen = read(made.view.__dlpack__(stream=stream, max_version=(1, 3)))
        assert seen.device == made.view.device
    return stream.read(made.view)


@pytest.mark.unchecked
@pytest.mark.parametrize("without", [None, "hand-over", "end"])
@pytest.mark.parametrize(
    ("to", "owner", "works_on"),
    [("torch", 0, 0), ("torch", 1, 1), ("torch", 0, 1), ("jax", 1, 1), ("cupy", 1, 1)],
)
def test_managed_memory_is_ordered_both_ways(to, owner, works_on, without, cuda, streams):
    if without == "hand-over":
        cuda.suppress("cuStreamWaitEvent")
    producer, made = handed_over(cuda, streams, to, owner, works_on)
    keep, seen = made.view.owner, reads(made, streams[works_on])
    if without == "end":
        cuda.suppress("cuStreamWaitEvent")
    del made
    producer.fill(keep.keep, 9.0)
    cuda.synchronize()
    assert {report.kind for report in cuda.reports} == ({"race"} if without else set())
    assert without or seen.value == [7.0] * 4
