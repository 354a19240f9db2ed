"""What is usual is done by a short way, over the driver of stubs: whatever is not usual is not."""

from __future__ import annotations

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


def libraries(body: str, more: str = "") -> str:
    """Run `body` beside stand-ins for torch and CuPy, and what is said of one of them."""
    return run("".join(map(textwrap.dedent, (LIBRARIES, more, body))))


def test_where_all_work_on_the_legacy_stream_nobody_waits() -> None:
    libraries(
        """
        def read_and_end():
            to_cai(t).__cuda_array_interface__
        read_and_end()
        assert orders(read_and_end) == 0
        """
    )


def test_a_reader_elsewhere_at_the_read_is_waited_for_at_the_end() -> None:
    libraries(
        """
        view = to_cai(t)
        work_on(MINE)
        view.__cuda_array_interface__
        work_on(0)
        assert orders(view.release) == 1
        """
    )


def test_a_reader_elsewhere_at_the_end_is_waited_for() -> None:
    libraries(
        """
        view = to_cai(t)
        view.__cuda_array_interface__
        work_on(MINE)
        assert orders(view.release) == 1
        view = to_cai(t)
        view.__cuda_array_interface__
        del_ = [view]
        del view
        assert orders(del_.clear) == 1
        """
    )


def test_torch_elsewhere_waits_at_the_read_and_is_waited_for_at_the_end() -> None:
    said = libraries(
        """
        view = to_cai(NdArray(0x8000_0000, (2, 3)))
        torch_works_on(MINE)
        # torch takes no notice of the stream in the dict.
        at_the_read = orders(lambda: view.__cuda_array_interface__)
        torch_works_on(0)
        print(at_the_read, orders(view.release), calls("cuModuleUnload"))
        """,
        TORCH_STREAM,
    )
    assert said.split() == ["1", "1", "0"]


def test_a_reader_that_named_its_stream_is_waited_for_whatever_libraries_do() -> None:
    libraries(
        """
        view = to_cai(t, stream=Stream(MINE))
        view.__cuda_array_interface__
        assert orders(view.release) == 1
        """
    )


def test_the_consumers_of_views_between_are_upstream_of_the_usual_end() -> None:
    libraries(
        """
        between = to_cai(t, stream=Stream(MINE))
        capsule = [from_cai(between).__dlpack__(stream=Stream(OTHER))]
        # To the producer, and to the consumer of the view between.
        assert orders(capsule.clear) == 2
        assert orders(between.release) == 1
        """
    )


def test_a_consumer_of_a_moved_producer_is_asked_for() -> None:
    libraries(
        """
        x = Moves(1)
        view = from_cai(x)
        capsule = [view.__dlpack__(stream=Stream(MINE))]
        x.stream = OTHER
        # Back to both streams that the producer has named: neither is let out.
        assert orders(capsule.clear) >= 1
        assert driver.fake_driver_calls(b"cuModuleUnload") == 0
        """
    )


def test_a_dict_that_is_read_again_is_a_new_one_and_names_the_stream_of_now() -> None:
    libraries(
        """
        x = Moves(MINE)
        view = to_cai(x)
        first, second, third = (view.__cuda_array_interface__ for _ in range(3))
        assert first == second == third and first["stream"] == MINE
        assert len({id(first), id(second), id(third)}) == 3
        third["shape"] = "spoilt"
        del third["data"]
        assert view.__cuda_array_interface__ == first
        x.stream = OTHER
        assert [view.__cuda_array_interface__["stream"] for _ in range(3)] == [OTHER] * 3
        x.stream = MINE
        assert [view.__cuda_array_interface__["stream"] for _ in range(3)] == [MINE] * 3
        """
    )


def test_torchs_own_stream_object_is_read_by_its_attribute() -> None:
    said = libraries(
        """
        streams = [to_cai(t, stream=TorchStream()).stream for _ in range(3)]
        assert streams == [MINE] * 3, streams
        print(len(asked))
        """,
        TORCH_STREAM,
    )
    assert int(said) <= 1


def test_a_class_of_streams_that_says_another_handle_is_believed() -> None:
    libraries(
        """
        class Wrapped(TorchStream):
            def __cuda_stream__(self):
                return (0, OTHER)

        for _ in range(3):
            assert to_cai(t, stream=TorchStream()).stream == MINE
            assert to_cai(t, stream=Wrapped()).stream == OTHER
        """,
        TORCH_STREAM,
    )


def test_a_stream_whose_method_fails_or_is_none_is_asked_once_and_refused_as_ever() -> None:
    libraries(
        """
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
    )


def test_a_class_of_streams_that_is_changed_is_asked_again() -> None:
    libraries(
        """
        class Plain:
            def __init__(self):
                self.handle = MINE
            def __cuda_stream__(self):
                return (0, self.handle)

        stream = Plain()
        assert [to_cai(t, stream=stream).stream for _ in range(3)] == [MINE] * 3
        stream.handle = OTHER
        assert to_cai(t, stream=stream).stream == OTHER
        """,
        TORCH_STREAM,
    )


# --- CuPy's arrays: read by their attributes, or by a dict that differs ---------------------------


def cupy(body: str) -> str:
    """Run `body` beside a stand-in for CuPy that says on which stream it works."""
    return libraries(body, CUPY)


def test_what_the_attributes_say_is_what_the_dict_says() -> None:
    said = cupy(
        """
        made = [((2, 3), True), ((), True), ((1, 4), True), ((4, 1), True), ((2, 0, 3), True)]
        for shape, contiguous in [*made, ((2, 3), False), ((2, 3, 4), False)]:
            x = NdArray(0x8000_0000, shape, None, contiguous)
            by_parts = to_cai(x)
            by_dict = to_cai(from_cai(x.__cuda_array_interface__, owner=x, device=0))
            assert facts(by_parts) == facts(by_dict), (facts(by_parts), facts(by_dict))
            print(by_parts.shape)
        """
    )
    assert said.split("\n")[:2] == ["(2, 3)", "()"]


@pytest.mark.parametrize("stream", [0, 0x5000_0000])
def test_the_array_is_ready_on_the_stream_that_cupy_works_on(stream: int) -> None:
    said = cupy(
        f"""
        work_on({stream})
        print(from_cai(NdArray(0x8000_0000, (2, 3))).stream)
        """
    )
    assert int(said) == (stream or 1)


def test_a_dict_that_says_something_else_than_the_attributes_is_believed() -> None:
    said = cupy(
        """
        logging.basicConfig(stream=sys.stdout, level=logging.DEBUG)
        odd = NdArray(0x8000_0000, (2, 3), (3, 2))
        print(from_cai(odd).shape)
        """
    )
    assert said.startswith("DEBUG:cai_bridge:the bridge uses the public route")
    assert "\n(3, 2)" in said


def test_a_class_with_a_dict_of_its_own_is_asked_for_it() -> None:
    said = cupy(
        """
        views = [from_cai(Counted(0x8000_0000, (2, 3))) for _ in range(3)]
        print(len(asked), views[0].shape)
        """
    )
    assert said == "3 (2, 3)\n"
