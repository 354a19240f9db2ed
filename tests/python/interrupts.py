"""Where an interrupt can come: objects that raise it, and calls that reach them."""

from __future__ import annotations

import itertools
import sys
import warnings
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fakes import OnlyCai, StreamObject, interface, torch_like

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
