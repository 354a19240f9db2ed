"""CuPy's routes: memory, a pointer and an array, made of CuPy's own parts; and its dict's."""

import contextlib
import gc
import sys
import types

import numpy as np
import pytest
from children import assert_quiet
from contract import each
from fakes import only_cai
from test_strangers_types import by_dict

from cai_bridge import convert, to_cai
from cai_bridge._libraries import _cupy


class Base:
    """As CuPy's `_ndarray_base`: `_init` fills in what `__new__` made."""

    def _init(self, *said):
        self.said = said


class ByHalves(Base):
    """As CuPy's ndarray: `__new__` makes it whole, and `__init__` takes all and does nothing."""

    begun = 0

    def __new__(cls, *said):
        cls.begun += 1
        self = super().__new__(cls)
        self._init(*said)
        return self

    def __init__(self, *said):
        type(self).begun += 1


class ByInit:
    def __init__(self, *said):
        self.said = said


def test_cupys_arrays_are_made_by_halves_where_it_has_them():
    assert _cupy._halves(ByHalves) == (object.__new__, Base._init)
    assert _cupy._halves(ByInit) is None
    assert _cupy._halves(np.ndarray) is None


@pytest.mark.parametrize("kind", [ByHalves, ByInit])
def test_cupys_route_makes_memory_a_pointer_and_an_array(kind, cuda):
    view = to_cai(cuda.array([0.0] * 4), stream=-1)
    route = _cupy._Ndarrays(kind, _cupy._halves(kind), lambda *said: said, lambda *said: said)
    made = route(view, None)
    memory = (view.ptr, 4 * view.size, view, 0)
    assert type(made) is kind
    assert made.said == (view.shape, np.dtype("<f4"), (memory, 0), None)
    assert not ByHalves.begun


class NdarrayBase:
    """As CuPy's: an array is filled in with a type that CuPy computes with, or with none."""

    def _init(self, shape, dtype, data, strides=None):
        if np.dtype(dtype).kind not in "biufc" or not np.dtype(dtype).isnative:
            raise TypeError(f"Unsupported type {dtype}")
        self.shape, self.dtype, self.data, self.strides = shape, dtype, data, strides
        self.device = data.mem.device


class Ndarray(NdarrayBase):
    def __init__(self, *_): ...


def memory(ptr, size, owner, device):
    return types.SimpleNamespace(ptr=ptr, owner=owner, device=device)


def pointer(mem, offset):
    return types.SimpleNamespace(ptr=mem.ptr + offset, mem=mem)


def asarray(x):
    """As CuPy's: of a dict it takes any type."""
    said = x.__cuda_array_interface__
    assert said["stream"] is None
    made = Ndarray()
    made.shape, made.strides = said["shape"], said["strides"]
    made.dtype = np.dtype(said.get("descr", said["typestr"]))
    made.data, made.device = pointer(memory(said["data"][0], 0, x, 0), 0), 0
    return made


class InCupy(_cupy.Cupy):
    """CuPy's file, on a stream of the test's."""

    types = (Ndarray,)

    def __init__(self, stream):
        self.current_stream = lambda device: stream


def modules(stream):
    """CuPy's, which works on that stream."""
    module = types.ModuleType("cupy")
    module.ndarray, module.asarray = Ndarray, asarray
    module.cuda = types.ModuleType("cupy.cuda")
    vars(module.cuda).update(
        Device=contextlib.nullcontext,
        MemoryPointer=pointer,
        UnownedMemory=memory,
        get_current_stream=lambda device: types.SimpleNamespace(ptr=stream.handle),
    )
    return {"cupy": module, "cupy.cuda": module.cuda}


@pytest.fixture
def cupy(monkeypatch, cuda):
    """A stand-in for CuPy, which has made an array by its quick route."""
    for name, module in modules(cuda.legacy).items():
        monkeypatch.setitem(sys.modules, name, module)
    library = InCupy(cuda.stream("CuPy's"))
    assert convert(cuda.array([1.0]), library).dtype == np.float32
    assert type(library.make) is _cupy._Ndarrays
    return library


@each("strangers", "cais_alone")
def test_cupy_takes_what_its_dict_alone_has_a_word_for(row, cuda, cupy):
    x, same = by_dict(cuda, row)
    for made in (convert(x, cupy), convert([x, cuda.array([1.0])], cupy)[0]):
        assert (made.shape, made.dtype) == (same.shape, same.dtype)
        assert made.data.ptr == to_cai(x).ptr
    assert convert(cuda.array([1.0]), cupy).dtype == np.float32


def test_cupys_quick_route_is_left_for_them_once_the_core_goes_by_it():
    assert_quiet("""
        import numpy as np
        from libraries import test_cupy as stand_in
        from cai_bridge import convert
        with simulated_cuda() as cuda:
            sys.modules.update(stand_in.modules(cuda.stream("CuPy's")))
            made = [convert(cuda.array([1.0]), "cupy") for _ in range(2)]
            x = cuda.array([0.0] * 4, speaks=())
            made.append(convert(fakes.only_cai(x, **stand_in.DATES), "cupy"))
            assert [one.dtype for one in made] == ["f4", "f4", "M8[ns]"]
            del made
    """)


DATES = {"typestr": "<M8[ns]", "shape": (2,)}


@pytest.mark.unchecked
@pytest.mark.parametrize("without", ["nothing", "hand-over", "end"])
def test_dates_are_ordered_and_owned_as_others_are(without, cuda, cupy):
    producer, mine = cuda.stream("producer"), cupy.current_stream(0)
    x = cuda.array([0.0] * 4, speaks=())
    producer.fill(x, 7.0)
    if without == "hand-over":
        cuda.suppress("cuStreamWaitEvent")
    made = convert(only_cai(x, **DATES, stream=producer.handle), cupy)
    mine.read(x)
    gc.collect()
    if without == "end":
        cuda.suppress("cuStreamWaitEvent")
    del made
    gc.collect()
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert bool(cuda.reports) is (without != "nothing")
