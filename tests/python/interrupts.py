"""Where an interrupt can come: objects that raise it, and calls that reach them."""

import itertools
import sys
import warnings
import weakref
from dataclasses import dataclass, field
from typing import Any

from fakes import OnlyCai, OnlyDLPack, StreamObject, interface, torch_like

from cai_bridge import from_cai, testing, to_cai, trace


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

    def __post_init__(self):
        self.x = self.cuda.array([1.0] * 4, speaks=(), name="x")

    def hook(self, *_, **__):
        if self.armed:
            self.runs += 1
            raise self.error

    def watch(self, one):
        self.watched.append(weakref.ref(one))
        return one

    def cai(self, **entries):
        return self.watch(OnlyCai(interface(self.x, **entries), keep=self.x))

    def typed(self, asked, base=object, **members):
        """A type that runs the hook when it is asked for that attribute of its own."""
        hook = self.hook

        class Meta(type):
            def __getattribute__(cls, name):
                if name == asked:
                    hook()
                return super().__getattribute__(name)

        return Meta(f"Typed{next(NUMBERS)}", (base,), members)

    def named(self, **members):
        """An object whose type is asked for its name, and the type runs the hook."""
        return self.typed("__qualname__", **members)()

    def has(self, name, base=object, **members):
        """An object of a type with a property that runs the hook."""
        prop = property(self.hook)
        return type(f"Has{next(NUMBERS)}", (base,), {name: prop, **members})()

    def does(self, name, base=object, **members):
        """An object of a type with a method that runs the hook."""
        return type(f"Does{next(NUMBERS)}", (base,), {name: self.hook, **members})()

    @property
    def index(self):
        return self.does("__index__")

    @property
    def shown(self):
        return self.does("__repr__")

    @property
    def big(self):
        """An integer that no field has room for, to be shown."""
        return type("Big", (int,), {"__repr__": self.hook})(2**100)

    def key(self, name):
        """A key that is asked whether it is `name`."""
        members = {"__eq__": self.hook, "__hash__": lambda _: hash(name)}
        return type("Key", (str,), members)("another")

    def dlpack(self, **members):
        """A producer by ``__dlpack__``, on a device that it names."""
        given = {"__dlpack_device__": lambda _: (2, 0), "__dlpack__": lambda _, **__: None}
        return self.watch(type(f"Given{next(NUMBERS)}", (), {**given, **members})())

    def tensor(self, speaks, name, value):
        """A tensor of torch's kind, with one of its properties or methods replaced."""
        like = torch_like(self.cuda.array([1.0 + 1.0j] * 4, dtype="complex64", speaks=speaks))
        self.x = like
        like.__class__ = type(f"Tensor{next(NUMBERS)}", (type(like),), {name: value})
        return like

    def view(self):
        return from_cai(self.cai())


def numpys(at):
    """A scalar that says that it is NumPy's ``bool``."""
    return type("bool_", (), {"__module__": "numpy", "__bool__": at.hook})()


def keyed(at):
    """A dict that compares the key that is looked up with one of its own."""
    given = {at.key("shape"): 0, **interface(at.x)}
    return at.watch(OnlyCai(given, keep=at.x))


def field_of(**entries):
    """`from_cai` of a dict with these entries."""

    def made(at):
        given = at.cai(**{name: entry(at) for name, entry in entries.items()})
        return lambda: from_cai(given)

    return made


def argument(door, name, value):
    """A call of a door with that argument."""

    def made(at):
        given, x = value(at), at.cai()
        return lambda: door(x, **{name: given})

    return made


def asked(name, value):
    """A call of a view's ``__dlpack__`` with that argument."""

    def made(at):
        given, view = value(at), at.view()
        return lambda: view.__dlpack__(**{name: given})

    return made


def produced(door, make, **arguments):
    """A call of a door with an object."""

    def made(at):
        x = make(at)
        return lambda: door(x, **arguments)

    return made


def raises(kind):
    def method(*_, **__):
        raise kind

    return method


def after_a_refusal(at):
    """A producer that refuses what it is asked for at first."""
    asked = []

    def answer(*_, **wishes):
        asked.append(wishes)
        if len(asked) == 1:
            raise TypeError("max_version")
        at.hook()

    return at.dlpack(__dlpack__=answer)


def no_capsule(at):
    given = at.named()
    return at.dlpack(__dlpack__=lambda _, **__: given)


def torn(at):
    """A property that fails, by an error that prints as it is asked to."""
    error = type("Torn", (AttributeError,), {"__str__": at.hook})
    return at.watch(type("Torn", (), {"__cuda_array_interface__": property(raises(error))})())


def told(at):
    error = type("Torn", (ValueError,), {"__str__": at.hook})
    x = at.dlpack(__dlpack__=raises(error))

    def call():
        with trace(at.path / "trace.json"):
            to_cai(x)

    return call


def popped(at):
    """The context of a GPU that is not the current one cannot be left, once."""
    x = at.dlpack(__dlpack_device__=lambda _: (2, 1), __dlpack__=at.hook)

    def call():
        at.cuda.fail("cuCtxPopCurrent", 1)
        to_cai(x)

    return call


def warned(at):
    kind = type(f"Silent{next(NUMBERS)}", (OnlyCai,), {})
    x = at.watch(kind(interface(at.x, version=2), keep=at.x))

    def call():
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = at.hook
            from_cai(x)

    return call


def left(at):
    """The end of a `with` block that another exception ends."""
    at.x = at.cuda.array([1.0] * 4, speaks="exchange", stream=at.cuda.stream("producer"))
    view = to_cai(at.x)
    assert view.__cuda_array_interface__
    at.patch.setattr(testing, "_current_streams", at.hook)

    def call():
        try:
            with view:
                raise ZeroDivisionError
        finally:
            at.armed = False
            view.release()
            at.cuda.synchronize()

    return call


def released(at):
    view, stream = at.view(), StreamObject((0, at.index))
    return lambda: view.release(stream)


def extended(at):
    at.patch.setitem(sys.modules, "ml_dtypes", at.has("bfloat16"))
    view = from_cai(at.cai(typestr="<V2"), dtype="bfloat16")
    return lambda: view.dtype


def tensor(door, speaks, name, make):
    return produced(door, lambda at: at.tensor(speaks, name, make(at)))


def prop(make):
    def made(at):
        value = make(at)
        return property(lambda _: value)

    return made


def interrupted(at):
    return property(at.hook)


def fact(name, door=to_cai):
    """An object of a type that runs the hook when it is asked for that attribute."""
    return produced(door, lambda at: at.watch(at.typed(name)()))


def not_callable(at):
    """A stream object whose method is none."""
    return type("Given", (), {"__cuda_stream__": at.shown})()


def indexed(number):
    """An object that is that integer for Python."""
    return type("Index", (), {"__index__": lambda _: number})()


def bfloat16s(at, dtype):
    """A producer whose typestr leaves the element type to its `dtype`."""
    given = at.cai(typestr="<V2")
    given.dtype = dtype
    return given


def answer(value):
    """A method that answers so."""
    return lambda _: value


def device(door, make):
    """A call of a door with a producer whose `__dlpack_device__` is that."""
    return produced(door, lambda at: at.dlpack(__dlpack_device__=make(at)))


def method(make, **arguments):
    """A call of `to_cai` with a producer whose `__dlpack__` is that."""
    return produced(to_cai, lambda at: at.dlpack(__dlpack__=make(at)), **arguments)


def without_type(at):
    """A producer whose typestr leaves the element type to its `dtype`, which runs the hook."""
    return at.has("dtype", __cuda_array_interface__=interface(at.x, typestr="<V2"))


def silent(at):
    """A producer whose dict says nothing of streams."""
    said = interface(at.x, version=2)
    return at.dlpack(__dlpack__=at.hook, __cuda_array_interface__=said)


POSITIONS = {
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
    "data[1], its type's module": field_of(data=lambda at: (at.x.ptr, at.typed("__module__")())),
    "data[1].__bool__": field_of(data=lambda at: (at.x.ptr, numpys(at))),
    "stream": field_of(stream=lambda at: at.named()),
    "stream.__index__": field_of(stream=lambda at: at.index),
    "stream, shown": field_of(stream=lambda at: indexed(at.big)),
    "mask": field_of(mask=lambda at: at.named()),
    # what is asked beside it
    "dtype": produced(from_cai, without_type),
    "dtype.name": produced(from_cai, lambda at: bfloat16s(at, at.has("name"))),
    "dtype.__name__": produced(from_cai, lambda at: bfloat16s(at, at.has("__name__"))),
    "dtype, shown": produced(from_cai, lambda at: bfloat16s(at, at.shown)),
    "no dict, __dlpack_device__": produced(from_cai, lambda at: at.does("__dlpack_device__")),
    "no dict, __dlpack_device__'s __index__": device(from_cai, lambda at: answer((at.index, 0))),
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
    "__dlpack_device__, the property": device(to_cai, interrupted),
    "__dlpack_device__": device(to_cai, lambda at: at.hook),
    "__dlpack_device__, shown": device(to_cai, lambda at: answer(at.shown)),
    "__dlpack_device__, its item shown": device(to_cai, lambda at: answer((2, at.shown))),
    "__dlpack_device__, __index__": device(to_cai, lambda at: answer((2, at.index))),
    "__dlpack__, the property": method(interrupted),
    "__dlpack__": method(lambda at: at.hook),
    "__dlpack__ of an object alone": produced(to_cai, lambda at: at.watch(OnlyDLPack(at.hook))),
    "__dlpack__(stream=-1)": method(lambda at: at.hook, stream=-1),
    "__dlpack__(stream=2)": method(lambda at: at.hook, stream=2),
    "__dlpack__ after a refusal": produced(to_cai, after_a_refusal),
    "__dlpack__, no capsule": produced(to_cai, no_capsule),
    "__dlpack__, and the context": popped,
    "__dlpack__, by __getattr__": produced(to_cai, lambda at: at.does("__getattr__")),
    "__dlpack__ of a silent dict": produced(from_cai, silent),
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
