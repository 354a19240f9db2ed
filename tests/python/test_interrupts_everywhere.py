"""An interrupt, an exit, a lack of memory or stack come out wherever the bridge runs Python code.

Each position is a way to have it run some: the same object comes out, nothing else is asked after
it, and whoever was handed over is let go of.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import warnings
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from fakes import OnlyCai, OnlyDLPack, StreamObject, interface, torch_like

from cai_bridge import from_cai, testing, to_cai, trace

if TYPE_CHECKING:
    from collections.abc import Callable


class Own(BaseException):
    """An exception that is no ``Exception``."""


INTERRUPTS = [KeyboardInterrupt, SystemExit, GeneratorExit, Own, MemoryError, RecursionError]
NUMBERS = itertools.count()


@dataclass
class Scene:
    """An array, and a hook that raises once the bridge is called."""

    cuda: Any
    error: BaseException
    path: Any
    patch: Any
    armed: bool = False
    runs: int = 0
    watched: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x = self.cuda.array([1.0] * 4, speaks=(), name="x")

    def hook(self, *_: Any, **__: Any) -> Any:
        if self.armed:
            self.runs += 1
            raise self.error

    def watch(self, one: Any) -> Any:
        self.watched.append(weakref.ref(one))
        return one

    def cai(self, **entries: Any) -> Any:
        return self.watch(OnlyCai(interface(self.x, **entries), keep=self.x))

    def typed(self, asked: str, base: type = object, **members: Any) -> type:
        """A type that runs the hook when it is asked for that attribute of its own."""
        hook = self.hook

        class Meta(type):
            def __getattribute__(cls, name: str) -> Any:
                if name == asked:
                    hook()
                return super().__getattribute__(name)

        return Meta(f"Typed{next(NUMBERS)}", (base,), members)

    def named(self, **members: Any) -> Any:
        """An object whose type is asked for its name, and the type runs the hook."""
        return self.typed("__qualname__", **members)()

    def has(self, name: str, base: type = object, **members: Any) -> Any:
        """An object of a type with a property that runs the hook."""
        prop = property(self.hook)
        return type(f"Has{next(NUMBERS)}", (base,), {name: prop, **members})()

    def does(self, name: str, base: type = object, **members: Any) -> Any:
        """An object of a type with a method that runs the hook."""
        return type(f"Does{next(NUMBERS)}", (base,), {name: self.hook, **members})()

    @property
    def index(self) -> Any:
        return self.does("__index__")

    @property
    def shown(self) -> Any:
        return self.does("__repr__")

    @property
    def big(self) -> Any:
        """An integer that no field has room for, to be shown."""
        return type("Big", (int,), {"__repr__": self.hook})(2**100)

    def key(self, name: str) -> Any:
        """A key that is asked whether it is `name`."""
        members = {"__eq__": self.hook, "__hash__": lambda _: hash(name)}
        return type("Key", (str,), members)("another")

    def dlpack(self, **members: Any) -> Any:
        """A producer by ``__dlpack__``, on a device that it names."""
        given = {"__dlpack_device__": lambda _: (2, 0), "__dlpack__": lambda _, **__: None}
        return self.watch(type(f"Given{next(NUMBERS)}", (), {**given, **members})())

    def tensor(self, speaks: str, name: str, value: Any) -> Any:
        """A tensor of torch's kind, with one of its properties or methods replaced."""
        like = torch_like(self.cuda.array([1.0 + 1.0j] * 4, dtype="complex64", speaks=speaks))
        self.x = like
        like.__class__ = type(f"Tensor{next(NUMBERS)}", (type(like),), {name: value})
        return like

    def view(self) -> Any:
        return from_cai(self.cai())


def numpys(at: Scene) -> Any:
    """A scalar that says that it is NumPy's ``bool``."""
    return type("bool_", (), {"__module__": "numpy", "__bool__": at.hook})()


def keyed(at: Scene) -> Any:
    """A dict that compares the key that is looked up with one of its own."""
    given = {at.key("shape"): 0, **interface(at.x)}
    return at.watch(OnlyCai(given, keep=at.x))


def field_of(**entries: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
    """`from_cai` of a dict with these entries."""

    def made(at: Scene) -> Any:
        given = at.cai(**{name: entry(at) for name, entry in entries.items()})
        return lambda: from_cai(given)

    return made


def argument(door: Any, name: str, value: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
    """A call of a door with that argument."""

    def made(at: Scene) -> Any:
        given, x = value(at), at.cai()
        return lambda: door(x, **{name: given})

    return made


def asked(name: str, value: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
    """A call of a view's ``__dlpack__`` with that argument."""

    def made(at: Scene) -> Any:
        given, view = value(at), at.view()
        return lambda: view.__dlpack__(**{name: given})

    return made


def produced(door: Any, make: Callable[[Scene], Any], **arguments: Any) -> Callable[[Scene], Any]:
    """A call of a door with an object."""

    def made(at: Scene) -> Any:
        x = make(at)
        return lambda: door(x, **arguments)

    return made


def raises(kind: type[BaseException]) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise kind

    return method


def after_a_refusal(at: Scene) -> Any:
    """A producer that refuses what it is asked for at first."""
    asked = []

    def answer(*_: Any, **wishes: Any) -> Any:
        asked.append(wishes)
        if len(asked) == 1:
            raise TypeError("max_version")
        at.hook()

    return at.dlpack(__dlpack__=answer)


def no_capsule(at: Scene) -> Any:
    given = at.named()
    return at.dlpack(__dlpack__=lambda _, **__: given)


def torn(at: Scene) -> Any:
    """A property that fails, by an error that prints as it is asked to."""
    error = type("Torn", (AttributeError,), {"__str__": at.hook})
    return at.watch(type("Torn", (), {"__cuda_array_interface__": property(raises(error))})())


def told(at: Scene) -> Any:
    error = type("Torn", (ValueError,), {"__str__": at.hook})
    x = at.dlpack(__dlpack__=raises(error))

    def call() -> None:
        with trace(at.path / "trace.json"):
            to_cai(x)

    return call


def popped(at: Scene) -> Any:
    """The context of a GPU that is not the current one cannot be left, once."""
    x = at.dlpack(__dlpack_device__=lambda _: (2, 1), __dlpack__=at.hook)

    def call() -> None:
        at.cuda.fail("cuCtxPopCurrent", 1)
        to_cai(x)

    return call


def warned(at: Scene) -> Any:
    kind = type(f"Silent{next(NUMBERS)}", (OnlyCai,), {})
    x = at.watch(kind(interface(at.x, version=2), keep=at.x))

    def call() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = at.hook
            from_cai(x)

    return call


def left(at: Scene) -> Any:
    """The end of a `with` block that another exception ends."""
    at.x = at.cuda.array([1.0] * 4, speaks="exchange", stream=at.cuda.stream("producer"))
    view = to_cai(at.x)
    assert view.__cuda_array_interface__
    at.patch.setattr(testing, "_current_streams", at.hook)

    def call() -> None:
        try:
            with view:
                raise ZeroDivisionError
        finally:
            at.armed = False
            view.release()
            at.cuda.synchronize()

    return call


def copied(at: Scene) -> Any:
    view = at.view()
    at.patch.setattr(testing, "_current_streams", at.hook)
    return lambda: view.__dlpack__(dl_device=(1, 0))


def released(at: Scene) -> Any:
    view, stream = at.view(), StreamObject((0, at.index))
    return lambda: view.release(stream)


def extended(at: Scene) -> Any:
    at.patch.setitem(sys.modules, "ml_dtypes", at.has("bfloat16"))
    view = from_cai(at.cai(typestr="<V2"), dtype="bfloat16")
    return lambda: view.dtype


def tensor(door: Any, speaks: str, name: str, make: Callable[[Scene], Any]) -> Any:
    return produced(door, lambda at: at.tensor(speaks, name, make(at)))


def prop(make: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
    def made(at: Scene) -> Any:
        value = make(at)
        return property(lambda _: value)

    return made


def interrupted(at: Scene) -> Any:
    return property(at.hook)


def fact(name: str, door: Any = to_cai) -> Callable[[Scene], Any]:
    """An object of a type that runs the hook when it is asked for that attribute."""
    return produced(door, lambda at: at.watch(at.typed(name)()))


def not_callable(at: Scene) -> Any:
    """A stream object whose method is none."""
    return type("Given", (), {"__cuda_stream__": at.shown})()


def indexed(number: int) -> Any:
    """An object that is that integer for Python."""
    return type("Index", (), {"__index__": lambda _: number})()


def bfloat16s(at: Scene, dtype: Any) -> Any:
    """A producer whose typestr leaves the element type to its `dtype`."""
    given = at.cai(typestr="<V2")
    given.dtype = dtype
    return given


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
    "descr[0].__getitem__": field_of(**V2, descr=lambda at: [at.does("__getitem__")]),
    "descr[0][0].__bool__": field_of(**V2, descr=lambda at: [(at.does("__bool__"), "<u2")]),
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
    "a copy for the CPU, the libraries' streams": copied,
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
def test_one_in_a_handler_of_our_records_is_said_and_the_call_goes_on(error, cuda, monkeypatch):
    raised, said = error("now"), []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise raised

    logger, handler = logging.getLogger("cai_bridge"), Handler()
    monkeypatch.setattr(sys, "unraisablehook", lambda it: said.append(it.exc_value))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        assert to_cai(cuda.array(shape=4)) is not None
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert said
    assert {id(one) for one in said} == {id(raised)}


def test_there_are_as_many_positions_as_the_bridge_is_known_to_have():
    assert len(POSITIONS) >= 90
