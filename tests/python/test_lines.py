"""Warnings name the line of the program, whatever files of the package its call goes through."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import OnlyCai, interface
from stand_in import StandIn, count, library, made_on, no_libraries

from cai_bridge import HostSyncWarning, adapt, convert, from_cai, to_cai

__all__ = ["library", "no_libraries"]

Call = Callable[[Any, Any], None]
"""What a program does with an array and a handle; its line ends with a comment, ``# here``."""


def a_convert(x: Any, stream: Any) -> None:
    convert(x, "stand_in", stream=stream)  # here


def a_tree(x: Any, stream: Any) -> None:
    convert({"a": [x]}, "stand_in", stream=stream)  # here


def an_adapted(x: Any, stream: Any) -> None:
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)
    adapted(x)  # here


def an_adapted_in_an_adapted(x: Any, stream: Any) -> None:
    def inner(a: Any) -> None:
        convert([x], "stand_in", stream=stream)  # here

    adapt(inner, to="stand_in", stream=-1)(x)


def a_generator(x: Any, stream: Any) -> None:
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)

    def generate() -> Iterator[None]:
        yield adapted([x])  # here

    list(generate())


def a_coroutine(x: Any, stream: Any) -> None:
    async def work(a: Any) -> None:
        await asyncio.sleep(0)

    adapted = adapt(work, to="stand_in", stream=stream)

    async def program() -> None:
        await adapted(x)  # here

    asyncio.run(program())


def a_task(x: Any, stream: Any) -> None:
    async def work(a: Any) -> None:
        await asyncio.sleep(0)

    asyncio.run(adapt(work, to="stand_in", stream=stream)(x))  # here


def a_function_of_autograds(x: Any, stream: Any) -> None:
    # With `backward=` PyTorch's own code is between the program and the package.
    torch: dict[str, Any] = {}
    code = "def apply(function, x):\n    return function(x)"
    exec(compile(code, "/lib/torch/autograd/function.py", "exec"), torch)
    adapted = adapt(lambda a: None, to="stand_in", stream=stream)
    torch["apply"](adapted, x)  # here


def a_context_manager(x: Any, stream: Any) -> None:
    @contextlib.contextmanager
    def block() -> Iterator[None]:
        convert([x], "stand_in", stream=stream)  # here
        yield

    with block():
        pass


CALLS: list[Call] = [
    a_convert,
    a_tree,
    an_adapted,
    an_adapted_in_an_adapted,
    a_generator,
    a_coroutine,
    a_task,
    a_function_of_autograds,
    a_context_manager,
]


def here(call: Call) -> int:
    """The number of the line that a call is made on."""
    first = call.__code__.co_firstlineno
    lines = linecache.getlines(__file__)
    return next(n for n in range(first, len(lines)) if lines[n - 1].endswith("# here\n"))


@pytest.mark.parametrize("call", CALLS)
def test_an_end_that_the_host_waits_for_is_warned_of_at_the_programs_line(
    call: Call, cuda: Any, library: StandIn, caplog: Any
) -> None:
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer of a bare handle")
    x = made_on(cuda, producer, speaks="cai3")
    cuda.clear_calls()
    call(x, consumer.handle)
    assert count(cuda, "cuModuleUnload") == 1
    found = [one.line for one in caplog.records if getattr(one, "order", "") == "impossible"]
    assert found == [f"{__file__}:{here(call)}"]
    call(x, consumer.handle)
    assert count(cuda, "cuModuleUnload") == 2
    again = [one.line for one in caplog.records if getattr(one, "order", "") == "impossible"]
    assert again == found, "once for each line"
    cuda.synchronize()


def test_an_end_that_nobodys_line_is_known_for_is_warned_of_where_it_is(
    cuda: Any, caplog: Any
) -> None:
    producer, between = cuda.stream("producer"), cuda.stream("between")
    x = made_on(cuda, producer, speaks="cai3")
    lines = []
    for _ in range(2):
        view = to_cai(from_cai(x), stream=between.handle)
        above = to_cai(view, stream=1)
        assert view.ptr == above.ptr
        del view
        caplog.clear()
        lines.append(here_now() + 1)
        above.release()
        told = [one.line for one in caplog.records if getattr(one, "order", "") == "impossible"]
        assert told == ([f"{__file__}:{lines[0]}"] if len(lines) == 1 else [])
    cuda.synchronize()


def here_now() -> int:
    import inspect

    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


@pytest.mark.parametrize("call", CALLS)
def test_a_dict_without_a_stream_is_warned_of_at_the_programs_line(
    call: Call, cuda: Any, library: StandIn
) -> None:
    x = cuda.array([1.0] * 4, speaks=())
    kind = type(f"Silent{call.__name__}", (OnlyCai,), {})
    made = kind(interface(x, version=2), keep=x)
    with pytest.warns(HostSyncWarning) as caught:
        call(made, -1 if call is not an_adapted_in_an_adapted else None)
    (warning,) = caught
    line = here(call) + (2 if call is an_adapted_in_an_adapted else 0)
    assert (warning.filename, warning.lineno) == (__file__, line)
    cuda.synchronize()


def test_a_program_silences_the_warning_for_its_own_module(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0] * 4, speaks=())
    made = type("SilentOfMine", (OnlyCai,), {})(interface(x, version=2), keep=x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=Path(__file__).stem)
        convert([made], "stand_in")
    assert not caught
