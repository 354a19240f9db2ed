"""Capsules that are converted: consumed when all is made, and as they were where it is refused."""

import inspect

import pytest
from stand_in import StandIn, no_libraries

from cai_bridge import adapt, convert, register, to_cai

__all__ = ["no_libraries"]


class Refuses(StandIn):
    """A library that refuses what is not of one dimension when it makes its array."""

    def make(self, view, stream):
        if view.ndim != 1:
            raise BufferError("ndim: got 2; allowed: 1")
        return super().make(view, stream)


@pytest.fixture
def own(cuda):
    return cuda.stream("own")


def capsule(cuda, shape=(4,), **how):
    x = cuda.array(fill=1.0, shape=shape, speaks="dlpack", stream=cuda.stream("producer"), **how)
    return x, x.__dlpack__(stream=1, max_version=(1, 3))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("how", ["make", "read-only", "a copy", "numpy", "adapt"])
def test_a_capsule_that_is_refused_at_last_is_as_it_was(cuda, no_libraries, own, how, tree):
    register(Refuses({0: own}))
    (x, good), (y, bad) = capsule(cuda), capsule(cuda, (2, 2), readonly=how == "read-only")
    given = [good, bad] if tree else bad
    if how in ("a copy", "numpy"):
        copy, to = (True, "cai") if how == "a copy" else (None, "numpy")
        with cuda.capture(own), pytest.raises(RuntimeError, match="graph capture: got a copy"):
            convert(given, to, stream=own, copy=copy)
    else:
        call = adapt(lambda _: None, "stand_in") if how == "adapt" else convert
        said = "readonly: got" if how == "read-only" else "ndim: got 2"
        with pytest.raises(BufferError, match=said):
            call(given, *(() if how == "adapt" else ("stand_in",)))
    made = convert([good, bad], "cai")
    assert [view.ptr for view in made] == [x.ptr, y.ptr]
    del good, bad, given
    assert (x.exports, y.exports) == (1, 1)
    cuda.synchronize()
    del made
    assert (x.exports, y.exports) == (0, 0)


@pytest.mark.parametrize("to", ["stand_in", "numpy", "tvm_ffi", "cai"])
@pytest.mark.parametrize("copy", [None, True])
def test_a_capsule_that_is_converted_is_consumed(cuda, no_libraries, own, to, copy):
    register(Refuses({0: own}))
    x, given = capsule(cuda)
    made = convert(given, to, copy=copy)
    assert "used_dltensor" in repr(given)
    cuda.synchronize()
    assert x.exports == (0 if copy or to == "numpy" else 1)
    with pytest.raises(ValueError, match="capsule: got a consumed one") as caught:
        convert(given, to, copy=copy)
    assert vars(caught.value) == {}
    del made
    cuda.synchronize()
    assert x.exports == 0


def test_a_view_of_a_capsule_that_was_refused_is_a_released_one(cuda, no_libraries, own):
    kept = []

    class Keeps(Refuses):
        def make(self, view, stream):
            kept.append(view)
            return super().make(view, stream)

    register(Keeps({0: own}))
    (x, good), (_, bad) = capsule(cuda), capsule(cuda, (2, 2))
    with pytest.raises(BufferError, match="ndim: got 2"):
        convert([good, bad], "stand_in")
    # The capsules have the memory again, for whoever is next.
    for view in kept:
        with pytest.raises(AttributeError, match="released"):
            view.__cuda_array_interface__  # noqa: B018 - it is read
        with pytest.raises(BufferError, match="released"):
            convert(view, "dlpack")
    assert convert(good, "cai").ptr == x.ptr


def test_a_capsule_that_is_consumed_meanwhile_costs_no_other(cuda, no_libraries, own):
    class Takes(Refuses):
        def make(self, view, stream):
            if "used" not in repr(second):
                to_cai(second)
            return super().make(view, stream)

    register(Takes({0: own}))
    (x, first), (_, second) = capsule(cuda), capsule(cuda)
    with pytest.raises(ValueError, match=r"x\[1\]: capsule: got "):
        convert([first, second], "stand_in")
    assert convert(first, "cai").ptr == x.ptr
    cuda.synchronize()


class Frozen(dict):
    def __setitem__(self, key, part):
        raise TypeError("may not be changed")


WAYS = {
    "a tree": lambda tree, own: convert(tree, "cai"),
    "numpy": lambda tree, own: convert(tree, "numpy"),
    "a copy": lambda tree, own: convert(tree, "cai", copy=True),
    "an argument": lambda tree, own: adapt(lambda tree: tree)(tree),
    "a result": lambda tree, own: adapt(lambda: tree, returns="cai")(),
    "a result of a stream": lambda tree, own: adapt(lambda: tree, returns="cai", stream=own)(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_container_that_cannot_be_made_again_costs_no_capsule(cuda, own, way):
    x, kept = capsule(cuda)
    y = cuda.array([1.0] * 4)
    with pytest.raises(TypeError, match=r"^may not be changed\nat .*\[1\]$"):
        way([kept, Frozen(a=y)], own)
    cuda.synchronize()
    assert (x.exports, y.exports) == (1, 0)
    assert convert(kept, "cai").ptr == x.ptr


def test_a_result_that_is_refused_costs_no_capsule_and_is_named(cuda, own):
    x, kept = capsule(cuda)
    other = cuda.stream("other", device=1)
    with pytest.raises(ValueError, match=r"^the result\[0\]: stream: got "):
        adapt(lambda: [kept], returns="cai", stream=other)()
    with pytest.raises(ValueError, match=r"^the result\[1\]: capsule: got one that is there twice"):
        adapt(lambda: [kept, kept], returns="cai", stream=own)()
    assert convert(kept, "cai").ptr == x.ptr
    cuda.synchronize()


@pytest.mark.parametrize("tree", [False, True])
def test_a_call_that_its_function_does_not_take_costs_no_capsule(cuda, tree):
    class Method:
        @adapt
        def method(self, a, b):
            return b

    @adapt
    async def awaited(a, b):
        return b

    def decorated(*args):
        return args[0]

    _, one = capsule(cuda)
    cuda.synchronize()
    given = {"k": [one]} if tree else one
    for call in (adapt(lambda a, b: b), Method().method, lambda a: awaited(a).send(None)):
        with pytest.raises(TypeError, match="missing a required argument: 'b'"):
            call(given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        adapt(lambda a: a)(given, c=1)
    # What a decorator says in another's place is not what it takes.
    decorated.__signature__ = inspect.signature(lambda: None)
    assert adapt(decorated)(given) is not None
    with pytest.raises(ValueError, match="capsule"):
        to_cai(one)
    assert Method().method(1, 2) == 2
