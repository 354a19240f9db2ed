"""Device, pinned and managed memory through every door and back, with work pending on it."""

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, only_cai

from cai_bridge import DriverError, convert, from_cai, to_cai

CODES = {"device": 2, "pinned": 3, "managed": 13}
MEMORY = pytest.mark.parametrize("memory", CODES)


def tensor_of(x):
    kind, index = x.device
    return HandMade(x.ptr, shape=x.shape, device_type=kind, device_id=index)


# How DLPack's producers hand `x` out.
DLPACK = {
    "exchange table": lambda x: tables.speaker(
        tables.table(lambda _: tensor_of(x), work_on=x.stream.handle)
    )(),
    "method": lambda x: DLPackPair(lambda **_: tensor_of(x).capsule(), device=x.device),
    "versioned capsule": lambda x: tensor_of(x).capsule(),
    "view": lambda x: from_cai(only_cai(x, shape=x.shape, stream=x.stream.handle)),
}


@pytest.mark.parametrize("producer", DLPACK)
@MEMORY
def test_dlpack_memory_of_any_kind_goes_to_cai_and_back(memory, producer, cuda):
    # What a method or a capsule hands out is ready on the legacy stream by its own promise.
    p = cuda.stream("p") if producer in ("exchange table", "view") else cuda.legacy
    c = cuda.stream("c")
    x = cuda.array([0.0] * 4, memory=memory, speaks=())
    p.fill(x, 7.0)
    made = DLPACK[producer](x)
    if producer == "method":
        c.wait(p.record())
    view = to_cai(made, stream=c)
    assert (view.device, view.ptr, view.stream) == ((CODES[memory], 0), x.ptr, c.handle)
    back = from_cai(view)
    assert back.__dlpack_device__() == (CODES[memory], 0)
    seen = capsules.read(back.__dlpack__(stream=c, max_version=(1, 3)))
    assert (seen.device, seen.ptr, seen.flags) == ((CODES[memory], 0), x.ptr, 0)
    read = c.read(view)
    cuda.synchronize()
    assert read.value == [7.0] * 4


@pytest.mark.parametrize("version", ["cai0", "cai1", "cai2", "cai3"])
@MEMORY
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_cai_memory_of_any_kind_is_known_by_its_pointer(memory, version, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([0.0] * 4, memory=memory, speaks=version)
    p.fill(x, 7.0)
    view = from_cai(x)
    assert view.device == (CODES[memory], 0)
    read = cuda.consumer("dlpack", c).read(view)
    back = c.read(to_cai(view, stream=c))
    cuda.synchronize()
    assert (read.value, back.value) == ([7.0] * 4, [7.0] * 4)


@pytest.mark.parametrize("device", [None, 0, (2, 0), 1, (2, 1), "own"])
@pytest.mark.parametrize("owner", [0, 1])
@MEMORY
def test_device_names_memory_that_it_reaches(memory, owner, device, cuda):
    p = cuda.stream("p", device=owner)
    x = cuda.array([0.0] * 4, memory=memory, device=owner, speaks="cai")
    p.fill(x, 7.0)
    own = (CODES[memory], owner if memory == "device" else 0)
    asked = own if device == "own" else device
    told = own if asked is None else (2, asked) if isinstance(asked, int) else asked
    if memory == "device" and told != own:
        with pytest.raises(ValueError, match=r"^device: got "):
            from_cai(x, device=asked)
        cuda.synchronize()
        return
    view = from_cai(x, device=asked)
    assert (view.device, view.ptr) == (told, x.ptr)
    c = cuda.stream("c", device=told[1] if told[0] == 2 else owner)
    read = cuda.consumer("dlpack", c).read(view)
    back = to_cai(view, stream=c)
    assert (back.device, back.ptr) == (told, x.ptr)
    again = c.read(back)
    cuda.synchronize()
    assert (read.value, again.value) == ([7.0] * 4, [7.0] * 4)


@pytest.mark.parametrize("export", [tables.managed, tables.borrowed])
@MEMORY
def test_the_views_table_says_which_memory_it_is(memory, export, cuda):
    view = from_cai(cuda.array([1.0], memory=memory, speaks="cai"))
    made = export(view)
    seen = made.fields if export is tables.managed else made
    assert (seen.device, seen.ptr) == ((CODES[memory], 0), view.ptr)
    if export is tables.managed:
        made.delete()


class Frame:
    """A stranger's array of GPU 1, which has its `__dlpack_device__` from the bridge."""

    def __init__(self, ptr=0, items=0, stream=None):
        self.entries = {"shape": (items,), "typestr": "<f4", "data": (ptr, False), "version": 3}
        self.entries["stream"] = stream

    @property
    def __cuda_array_interface__(self):
        return self.entries

    def __dlpack_device__(self):
        return from_cai(self).__dlpack_device__()


@pytest.mark.parametrize("by", ["device=", "its pointer", "stream=", "nothing"])
def test_an_array_without_items_is_where_something_says_it_is(by, cuda):
    x, s = cuda.array([1.0], device=1), cuda.stream(device=1)
    ptr = x.ptr if by == "its pointer" else 0
    empty = Frame(ptr)
    wishes = {"device=": {"device": 1}, "stream=": {"stream": s}}.get(by, {})
    assert from_cai(empty, **wishes).device == (2, by != "nothing")
    cuda.set_device(1)
    assert from_cai(Frame()).device == (2, 1)


def test_a_tree_with_an_array_without_items_is_on_the_consumers_gpu(cuda):
    x, mine = cuda.array([1.0], device=1), cuda.stream(device=1)
    made = convert([Frame(x.ptr, 1, stream=1), Frame()], "dlpack", stream=mine)
    assert [view.device for view in made] == [(2, 1), (2, 1)]


@pytest.mark.unchecked
def test_a_stream_that_is_none_is_refused_for_an_array_without_items_too(cuda):
    for call in (from_cai, lambda x, stream: convert(x, "cai", stream=stream)):
        with pytest.raises(DriverError, match=r"^stream: got the stream 0x3039, which is no"):
            call(Frame(), stream=0x3039)
