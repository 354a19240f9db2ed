"""Warnings name the line of the program, whatever files of the package its call goes through."""

import asyncio
import contextlib
import inspect
import linecache
import warnings
from pathlib import Path

import pytest
from fakes import OnlyCai, interface
from stand_in import count, library, made_on, no_libraries

from cai_bridge import HostSyncWarning, adapt, convert, from_cai, to_cai

__all__ = ["library", "no_libraries"]

# What a program does with an array and a handle; its line ends with a comment.


def a_convert(x, stream):
    convert(x, "stand_in", stream=stream)  # here


def an_adapted(x, stream):
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)
    adapted(x)  # here


def a_tree(x, stream):
    convert({"a": [x]}, "stand_in", stream=stream)  # here


def an_adapted_in_an_adapted(x, stream):
    def inner(a):
        convert([x], "stand_in", stream=stream)  # here

    adapt(inner, to="stand_in", stream=-1)(x)


def a_generator(x, stream):
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)

    def generate():
        yield adapted([x])  # here

    list(generate())


def a_coroutine(x, stream):
    async def work(a):
        await asyncio.sleep(0)

    adapted = adapt(work, to="stand_in", stream=stream)

    async def program():
        await adapted(x)  # here

    asyncio.run(program())


def a_task(x, stream):
    async def work(a):
        await asyncio.sleep(0)

    asyncio.run(adapt(work, to="stand_in", stream=stream)(x))  # here


def a_function_of_autograds(x, stream):
    # With `backward=` PyTorch's own code is between the program and the package.
    torch = {}
    code = "def apply(function, x):\n    return function(x)"
    exec(compile(code, "/lib/torch/autograd/function.py", "exec"), torch)
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)
    torch["apply"](adapted, x)  # here


def a_context_manager(x, stream):
    @contextlib.contextmanager
    def block():
        convert([x], "stand_in", stream=stream)  # here
        yield

    with block():
        pass


CALLS = [
    *(a_convert, an_adapted, a_tree, an_adapted_in_an_adapted, a_generator, a_coroutine, a_task),
    *(a_function_of_autograds, a_context_manager),
]


def here(call):
    """The number of the line that a call is made on."""
    first = call.__code__.co_firstlineno
    lines = linecache.getlines(__file__)
    return next(n for n in range(first, len(lines)) if lines[n - 1].endswith("# here\n"))


def lines_of_ends(caplog):
    """The lines whose ends were warned of."""
    return [one.line for one in caplog.records if getattr(one, "order", "") == "impossible"]


@pytest.mark.parametrize("call", CALLS)
def test_an_end_that_the_host_waits_for_is_warned_of_at_the_programs_line(
    call, cuda, library, caplog
):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer of a bare handle")
    x = made_on(cuda, producer, speaks="cai3")
    cuda.clear_calls()
    for times in (1, 2):
        call(x, consumer.handle)
        assert count(cuda, "cuModuleUnload") == times
        assert lines_of_ends(caplog) == [f"{__file__}:{here(call)}"], "once for each line"
    cuda.synchronize()


def test_an_end_that_nobodys_line_is_known_for_is_warned_of_where_it_is(cuda, caplog):
    producer, between = cuda.stream("producer"), cuda.stream("between")
    x = made_on(cuda, producer, speaks="cai3")
    for told in ([f"{__file__}:{inspect.currentframe().f_lineno + 7}"], []):
        view = to_cai(from_cai(x), stream=between.handle)
        above = to_cai(view, stream=1)
        assert view.ptr == above.ptr
        del view
        caplog.clear()
        # Here.
        above.release()
        assert lines_of_ends(caplog) == told
    cuda.synchronize()


@pytest.mark.parametrize("call", CALLS)
def test_a_dict_without_a_stream_is_warned_of_at_the_programs_line(call, cuda, library):
    x = cuda.array([1.0] * 4, speaks=())
    kind = type(f"Silent{call.__name__}", (OnlyCai,), {})
    made = kind(interface(x, version=2), keep=x)
    with pytest.warns(HostSyncWarning) as caught:
        call(made, -1 if call is not an_adapted_in_an_adapted else None)
    (warning,) = caught
    line = here(call) + (2 if call is an_adapted_in_an_adapted else 0)
    assert (warning.filename, warning.lineno) == (__file__, line)
    cuda.synchronize()


def test_a_program_silences_the_warning_for_its_own_module(cuda, library):
    x = cuda.array([1.0] * 4, speaks=())
    made = type("SilentOfMine", (OnlyCai,), {})(interface(x, version=2), keep=x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=Path(__file__).stem)
        convert([made], "stand_in")
    assert not caught
