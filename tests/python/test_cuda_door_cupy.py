"""CuPy's arrays over a driver of stubs: read by their attributes, or by a dict that differs."""

from __future__ import annotations

import textwrap

import pytest
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

pytestmark = needs_the_driver_of_stubs

CUPY = """
    import types
    import fake_libraries
    from fake_libraries import NdArray

    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        sys.modules[name] = made
        return made

    module("cupy").cuda = module("cupy.cuda")
    stream_ptr = {"get_stream_ptr": fake_libraries.get_stream_ptr}
    module("cupy_backends.cuda.stream", __pyx_capi__=stream_ptr)

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


def cupy(body: str) -> str:
    """Run `body` beside a stand-in for CuPy."""
    return run(textwrap.dedent(CUPY) + textwrap.dedent(body))


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
