"""An interrupt, an exit, a lack of memory or stack come out wherever the bridge runs Python code.

Each position is a way to have it run some: the same object comes out, nothing else is asked after
it, and whoever was handed over is let go of.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from fakes import OnlyCai, OnlyDLPack, StreamObject, interface
from interrupts import (
    INTERRUPTS,
    Scene,
    after_a_refusal,
    argument,
    asked,
    bfloat16s,
    extended,
    fact,
    field_of,
    indexed,
    interrupted,
    keyed,
    left,
    no_capsule,
    not_callable,
    numpys,
    popped,
    produced,
    prop,
    released,
    tensor,
    told,
    torn,
    warned,
)

from cai_bridge import from_cai, to_cai

if TYPE_CHECKING:
    from collections.abc import Callable

V2 = {"typestr": lambda _: "<V2"}
POSITIONS: dict[str, Callable[[Scene], Any]] = {
    # the dict
    "the property": produced(from_cai, lambda at: at.has("__cuda_array_interface__")),
    "the property, to_cai": produced(to_cai, lambda at: at.has("__cuda_array_interface__")),
    "the property, by __getattr__": produced(from_cai, lambda at: at.does("__getattr__")),
    "no dict": produced(from_cai, lambda at: OnlyCai(at.named())),
    "a property that fails": produced(from_cai, torn),
    "a key": produced(from_cai, keyed),
    "shape": field_of(shape=lambda at: at.named()),
    "shape[0].__index__": field_of(shape=lambda at: (at.index,)),
    "shape[0].__index__ of a list": field_of(shape=lambda at: [at.index]),
    "shape[0], shown": field_of(shape=lambda at: (at.big,)),
    "shape[0], no integer": field_of(shape=lambda at: (at.named(),)),
    "strides": field_of(strides=lambda at: at.named()),
    "strides[0].__index__": field_of(strides=lambda at: (at.index,)),
    "typestr": field_of(typestr=lambda at: at.named()),
    "version": field_of(version=lambda at: at.named()),
    "version.__index__": field_of(version=lambda at: at.index),
    "version, shown": field_of(version=lambda at: at.big),
    "data": field_of(data=lambda at: at.shown),
    "data, shown": field_of(data=lambda at: (at.shown, False)),
    "data[0].__index__": field_of(data=lambda at: (at.index, False)),
    "data[1], shown": field_of(data=lambda at: (at.x.ptr, at.shown)),
    "data[1], its type's module": field_of(
        data=lambda at: (at.x.ptr, at.typed("__module__")()),
    ),
    "data[1].__bool__": field_of(data=lambda at: (at.x.ptr, numpys(at))),
    "stream": field_of(stream=lambda at: at.named()),
    "stream.__index__": field_of(stream=lambda at: at.index),
    "stream, shown": field_of(stream=lambda at: indexed(at.big)),
    "mask": field_of(mask=lambda at: at.named()),
    # what is asked beside it
    "dtype": produced(
        from_cai,
        lambda at: at.has("dtype", __cuda_array_interface__=interface(at.x, typestr="<V2")),
    ),
    "dtype.name": produced(from_cai, lambda at: bfloat16s(at, at.has("name"))),
    "dtype.__name__": produced(from_cai, lambda at: bfloat16s(at, at.has("__name__"))),
    "dtype, shown": produced(from_cai, lambda at: bfloat16s(at, at.shown)),
    "no dict, __dlpack_device__": produced(from_cai, lambda at: at.does("__dlpack_device__")),
    "no dict, __dlpack_device__'s __index__": produced(
        from_cai, lambda at: at.dlpack(__dlpack_device__=lambda _, i=at.index: (i, 0))
    ),
    "no dict, its type's name": produced(from_cai, lambda at: at.named()),
    "no protocol, its type's name": produced(to_cai, lambda at: at.named()),
    "a warning": warned,
    # arguments
    "dtype=, its name": argument(from_cai, "dtype", lambda at: at.has("name")),
    "dtype=, its __name__": argument(from_cai, "dtype", lambda at: at.has("__name__")),
    "dtype=, shown": argument(from_cai, "dtype", lambda at: at.shown),
    "device=, __index__": argument(from_cai, "device", lambda at: (2, at.index)),
    "device=, shown": argument(from_cai, "device", lambda at: at.shown),
    "device=, its item shown": argument(from_cai, "device", lambda at: (at.shown, 0)),
    "owner=": argument(from_cai, "owner", lambda at: at.named()),
    "readonly=, shown": argument(to_cai, "readonly", lambda at: at.shown),
    "readonly=, its type's module": argument(
        from_cai, "readonly", lambda at: at.typed("__module__")()
    ),
    "readonly=, its type's name": argument(from_cai, "readonly", lambda at: at.named()),
    "readonly=, __bool__": argument(from_cai, "readonly", numpys),
    "stream=, the property": argument(to_cai, "stream", lambda at: at.has("__cuda_stream__")),
    "stream=, __getattr__": argument(to_cai, "stream", lambda at: at.does("__getattr__")),
    "stream=, the method": argument(to_cai, "stream", lambda at: at.does("__cuda_stream__")),
    "stream=, no method": argument(to_cai, "stream", not_callable),
    "stream=, shown": argument(to_cai, "stream", lambda at: StreamObject(at.shown)),
    "stream=, its item shown": argument(to_cai, "stream", lambda at: StreamObject((at.shown, 0))),
    "stream=, its version": argument(to_cai, "stream", lambda at: StreamObject((at.index, 0))),
    "stream=, its handle": argument(to_cai, "stream", lambda at: StreamObject((0, at.index))),
    "stream=, __index__": argument(from_cai, "stream", lambda at: at.index),
    "stream=, an integer shown": argument(from_cai, "stream", lambda at: indexed(at.big)),
    "stream=, its type's name": argument(from_cai, "stream", lambda at: at.named()),
    # a view's __dlpack__
    "__dlpack__(stream=)": asked("stream", lambda at: StreamObject((0, at.index))),
    "__dlpack__(max_version=), __index__": asked("max_version", lambda at: (at.index, 0)),
    "__dlpack__(max_version=), shown": asked("max_version", lambda at: at.shown),
    "__dlpack__(max_version=), its item shown": asked("max_version", lambda at: (1, at.shown)),
    "__dlpack__(dl_device=), __index__": asked("dl_device", lambda at: (2, at.index)),
    "__dlpack__(dl_device=), shown": asked("dl_device", lambda at: at.shown),
    "__dlpack__(dl_device=), its item shown": asked("dl_device", lambda at: (2, at.shown)),
    "__dlpack__(copy=), shown": asked("copy", lambda at: at.shown),
    "__dlpack__(copy=), its type's name": asked("copy", lambda at: at.named()),
    "view.dtype": extended,
    "view.release(stream)": released,
    "the end of a with block": left,
    # DLPack's methods
    "__dlpack_device__, the property": produced(
        to_cai, lambda at: at.dlpack(__dlpack_device__=interrupted(at))
    ),
    "__dlpack_device__": produced(to_cai, lambda at: at.dlpack(__dlpack_device__=at.hook)),
    "__dlpack_device__, shown": produced(
        to_cai, lambda at: at.dlpack(__dlpack_device__=lambda _, got=at.shown: got)
    ),
    "__dlpack_device__, its item shown": produced(
        to_cai, lambda at: at.dlpack(__dlpack_device__=lambda _, got=at.shown: (2, got))
    ),
    "__dlpack_device__, __index__": produced(
        to_cai, lambda at: at.dlpack(__dlpack_device__=lambda _, got=at.index: (2, got))
    ),
    "__dlpack__, the property": produced(to_cai, lambda at: at.dlpack(__dlpack__=interrupted(at))),
    "__dlpack__": produced(to_cai, lambda at: at.dlpack(__dlpack__=at.hook)),
    "__dlpack__ of an object alone": produced(to_cai, lambda at: at.watch(OnlyDLPack(at.hook))),
    "__dlpack__(stream=-1)": produced(to_cai, lambda at: at.dlpack(__dlpack__=at.hook), stream=-1),
    "__dlpack__(stream=2)": produced(to_cai, lambda at: at.dlpack(__dlpack__=at.hook), stream=2),
    "__dlpack__ after a refusal": produced(to_cai, after_a_refusal),
    "__dlpack__, no capsule": produced(to_cai, no_capsule),
    "__dlpack__, and the context": popped,
    "__dlpack__, by __getattr__": produced(to_cai, lambda at: at.does("__getattr__")),
    "__dlpack__ of a silent dict": produced(
        from_cai,
        lambda at: at.dlpack(
            __dlpack__=at.hook, __cuda_array_interface__=interface(at.x, version=2)
        ),
    ),
    "a refusal that is told": told,
    # the type
    "the type's __module__": fact("__module__"),
    "the type's __module__, from_cai": fact("__module__", from_cai),
    "the type's table": fact("__dlpack_c_exchange_api__"),
    "the type's requires_grad": fact("requires_grad"),
    "the type's __dlpack__": fact("__dlpack__"),
    "the type's __cuda_array_interface__": fact("__cuda_array_interface__"),
    # torch's properties
    "requires_grad": tensor(to_cai, "exchange", "requires_grad", interrupted),
    "requires_grad.__bool__": tensor(
        to_cai, "exchange", "requires_grad", prop(lambda at: at.does("__bool__"))
    ),
    "is_neg": tensor(to_cai, "exchange", "is_neg", lambda at: at.hook),
    "is_conj": tensor(to_cai, "exchange", "is_conj", lambda at: at.hook),
    "layout": tensor(from_cai, "cai3", "layout", interrupted),
    "layout.__str__": tensor(from_cai, "cai3", "layout", prop(lambda at: at.does("__str__"))),
    "is_neg, from_cai": tensor(from_cai, "cai3", "is_neg", lambda at: at.hook),
}


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("position", POSITIONS)
def test_the_same_exception_comes_out_and_everything_is_let_go(
    position, error, cuda, tmp_path, monkeypatch
):
    raised = error("now")
    at = Scene(cuda, raised, tmp_path, monkeypatch)
    call = POSITIONS[position](at)
    at.armed = True
    with pytest.raises(error) as caught:
        call()
    at.armed = False
    assert caught.value is raised
    assert at.runs == 1, "nobody is asked anything after it"
    raised.with_traceback(None)
    raised.__context__ = raised.__cause__ = None
    del caught, call
    gc.collect()
    assert at.x.exports == 0
    assert [one for one in at.watched if one() is not None] == []
    assert cuda.current_device == 0


@pytest.mark.parametrize("error", INTERRUPTS)
def test_one_at_the_end_of_a_with_block_keeps_what_was_on_its_way(
    error, cuda, tmp_path, monkeypatch
):
    at = Scene(cuda, error("now"), tmp_path, monkeypatch)
    call = left(at)
    at.armed = True
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value.__context__, ZeroDivisionError)


@pytest.mark.parametrize("error", INTERRUPTS)
def test_one_in_a_handler_of_our_records_comes_once_the_call_is_made(error, cuda, monkeypatch):
    raised, said, done = error("now"), [], []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not done:
                done.append(record)
                raise raised

    logger, handler = logging.getLogger("cai_bridge"), Handler()
    monkeypatch.setattr(sys, "unraisablehook", lambda it: said.append(it.exc_value))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    x = cuda.array(shape=4, stream=cuda.stream())
    try:
        to_cai(x, stream=cuda.stream())
        time.sleep(0)
    except BaseException as caught:
        said.append(caught)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [id(one) for one in said] == [id(raised)]
    assert {"cuEventRecord", "cuStreamWaitEvent"} <= {call.call for call in cuda.calls}


def test_there_are_as_many_positions_as_the_bridge_is_known_to_have():
    assert len(POSITIONS) >= 90
