"""What is usual is done by a short way, over the driver of stubs: whatever is not usual is not."""

import textwrap

import pytest
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

pytestmark = needs_the_driver_of_stubs

LIBRARIES = """
    import fake_libraries
    from fake_libraries import CudaStreamBase, NdArray, Tensor, torch_works_on, work_on

    module("torch", Tensor=Tensor)
    module("cupy").cuda = module("cupy.cuda")
    # Both libraries keep their streams.
    sys.modules["cupy.cuda"].get_current_stream = lambda device: Stream(MINE)
    module("cupy_backends.cuda.stream", __pyx_capi__={
        "get_stream_ptr": fake_libraries.get_stream_ptr
    })

    t = Tensor(0x7000_0000, [2, 3])

    class Moves:
        def __init__(self, stream):
            self.stream = stream
        @property
        def __cuda_array_interface__(self):
            return Array(self.stream).__cuda_array_interface__

    def orders(what):
        before = calls("cuEventRecord"), calls("cuStreamWaitEvent")
        what()
        made = calls("cuEventRecord") - before[0], calls("cuStreamWaitEvent") - before[1]
        assert made[0] == made[1], made
        return made[0]
"""


TORCH_STREAM = """
    asked = []

    class TorchStream(CudaStreamBase):
        __module__ = "torch.cuda.streams"

        @staticmethod
        def priority_range():
            return (0, 0)

        def __new__(cls, device=0, priority=0):
            return super().__new__(cls, MINE, 1)

        def __cuda_stream__(self):
            asked.append(self)
            return (0, self.cuda_stream)

    sys.modules["torch"].cuda = module(
        "torch.cuda", Stream=TorchStream, is_initialized=lambda: True
    )
"""


CUPY = """
    def work_on(handle):
        fake_libraries.work_on(handle)
        sys.modules["cupy.cuda"].get_current_stream = lambda device: Stream(handle)

    asked = []

    class Counted(NdArray):
        __module__ = "cupy"

        @property
        def __cuda_array_interface__(self):
            asked.append(self)
            return super().__cuda_array_interface__

    def facts(view):
        return (view.shape, view.strides, view.typestr, view.ptr, view.readonly, view.stream)
"""


def libraries(body):
    """Run `body` beside stand-ins for torch and CuPy."""
    return run(textwrap.dedent(LIBRARIES) + textwrap.dedent(body))


LEGACY = """
    def read_and_end():
        to_cai(t).__cuda_array_interface__
    read_and_end()
    assert orders(read_and_end) == 0
"""
AT_THE_READ = """
    view = to_cai(t)
    work_on(MINE)
    view.__cuda_array_interface__
    work_on(0)
    assert orders(view.release) == 1
"""
AT_THE_END = """
    view = to_cai(t)
    view.__cuda_array_interface__
    work_on(MINE)
    assert orders(view.release) == 1
    views = [to_cai(t)]
    views[0].__cuda_array_interface__
    assert orders(views.clear) == 1
"""
TORCH = (
    TORCH_STREAM
    + """
    view = to_cai(NdArray(0x8000_0000, (2, 3)))
    torch_works_on(MINE)
    # torch takes no notice of the stream in the dict.
    assert orders(lambda: view.__cuda_array_interface__) == 1
    torch_works_on(0)
    assert orders(view.release) == 1
    assert calls("cuModuleUnload") == 0
"""
)
NAMED = """
    view = to_cai(t, stream=Stream(MINE))
    view.__cuda_array_interface__
    assert orders(view.release) == 1
"""
BETWEEN = """
    between = to_cai(t, stream=Stream(MINE))
    capsule = [from_cai(between).__dlpack__(stream=Stream(OTHER))]
    # To the producer, and to the consumer of the view between.
    assert orders(capsule.clear) == 2
    assert orders(between.release) == 1
"""
MOVED = """
    x = Moves(1)
    view = from_cai(x)
    capsule = [view.__dlpack__(stream=Stream(MINE))]
    x.stream = OTHER
    # Back to both streams that the producer has named: neither is let out.
    assert orders(capsule.clear) >= 1
    assert calls("cuModuleUnload") == 0
"""
READ_AGAIN = """
    x = Moves(MINE)
    view = to_cai(x)
    first, second, third = (view.__cuda_array_interface__ for _ in range(3))
    assert first == second == third and first["stream"] == MINE
    assert len({id(first), id(second), id(third)}) == 3
    third["shape"] = "spoilt"
    del third["data"]
    assert view.__cuda_array_interface__ == first
    for now in (OTHER, MINE):
        x.stream = now
        assert [view.__cuda_array_interface__["stream"] for _ in range(3)] == [now] * 3
"""
OWN_STREAM = (
    TORCH_STREAM
    + """
    streams = [to_cai(t, stream=TorchStream()).stream for _ in range(3)]
    assert streams == [MINE] * 3, streams
    assert len(asked) <= 1
"""
)
ANOTHER_HANDLE = (
    TORCH_STREAM
    + """
    class Wrapped(TorchStream):
        def __cuda_stream__(self):
            return (0, OTHER)

    for _ in range(3):
        assert to_cai(t, stream=TorchStream()).stream == MINE
        assert to_cai(t, stream=Wrapped()).stream == OTHER
"""
)
NO_METHOD = """
    class Odd(Stream):
        asked = 0
        def __cuda_stream__(self):
            Odd.asked += 1
            if self.handle is None:
                raise AttributeError("no handle")
            return super().__cuda_stream__()

    # The type is known from here on.
    assert [to_cai(t, stream=Odd(MINE)).stream for _ in range(3)] == [MINE] * 3
    Odd.asked = 0
    assert refused(lambda: to_cai(t, stream=Odd(None))) == "AttributeError: no handle"
    assert Odd.asked == 1
    odd = Odd(MINE)
    odd.__cuda_stream__ = None
    said = refused(lambda: to_cai(t, stream=odd))
    assert said.startswith("ValueError: __cuda_stream__: got None, which is no method"), said
    odd.__cuda_stream__ = lambda: (0, OTHER)
    assert to_cai(t, stream=odd).stream == OTHER
"""
CHANGED = (
    TORCH_STREAM
    + """
    stream = Stream(MINE)
    assert [to_cai(t, stream=stream).stream for _ in range(3)] == [MINE] * 3
    stream.handle = OTHER
    assert to_cai(t, stream=stream).stream == OTHER
"""
)
SAME_FACTS = (
    CUPY
    + """
    made = [((2, 3), True), ((), True), ((1, 4), True), ((4, 1), True), ((2, 0, 3), True)]
    for shape, contiguous in [*made, ((2, 3), False), ((2, 3, 4), False)]:
        x = NdArray(0x8000_0000, shape, None, contiguous)
        by_parts = to_cai(x)
        by_dict = to_cai(from_cai(x.__cuda_array_interface__, owner=x, device=0))
        assert facts(by_parts) == facts(by_dict), (facts(by_parts), facts(by_dict))
        assert by_parts.shape == shape
"""
)
WORKS_ON = (
    CUPY
    + """
    for stream in (0, MINE):
        work_on(stream)
        assert from_cai(NdArray(0x8000_0000, (2, 3))).stream == (stream or 1)
"""
)
OTHER_DICT = (
    CUPY
    + """
    import io
    said = io.StringIO()
    logging.basicConfig(stream=said, level=logging.DEBUG)
    assert from_cai(NdArray(0x8000_0000, (2, 3), (3, 2))).shape == (3, 2)
    said = said.getvalue()
    assert said.startswith("DEBUG:cai_bridge:the bridge uses the public route"), said
"""
)
OWN_DICT = (
    CUPY
    + """
    views = [from_cai(Counted(0x8000_0000, (2, 3))) for _ in range(3)]
    assert (len(asked), views[0].shape) == (3, (2, 3))
"""
)
RULES = {
    "where all work on the legacy stream nobody waits": LEGACY,
    "a reader elsewhere at the read is waited for at the end": AT_THE_READ,
    "a reader elsewhere at the end is waited for": AT_THE_END,
    "torch elsewhere waits at the read and is waited for at the end": TORCH,
    "a reader that named its stream is waited for whatever libraries do": NAMED,
    "the consumers of views between are upstream of the usual end": BETWEEN,
    "a consumer of a moved producer is asked for": MOVED,
    "a dict that is read again is a new one and names the stream of now": READ_AGAIN,
    "torch's own stream object is read by its attribute": OWN_STREAM,
    "a class of streams that says another handle is believed": ANOTHER_HANDLE,
    "a stream whose method fails or is none is asked once and refused as ever": NO_METHOD,
    "a stream that has another handle is asked again": CHANGED,
    "what CuPy's attributes say is what its dict says": SAME_FACTS,
    "an array is ready on the stream that CuPy works on": WORKS_ON,
    "a dict that says something else than the attributes is believed": OTHER_DICT,
    "a class with a dict of its own is asked for it": OWN_DICT,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_short_way_keeps_the_rule_that(rule):
    libraries(RULES[rule])


def cupy(body):
    """Run `body` beside a stand-in for CuPy that says on which stream it works."""
    return libraries(textwrap.dedent(CUPY) + textwrap.dedent(body))
