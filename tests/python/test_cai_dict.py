"""The dict of a `CaiView` is the array's own at each time, and is read as producers write it."""

import functools
import gc
import itertools
import weakref

import numpy as np
import pytest
from fakes import interface, only_cai

from cai_bridge import from_cai, to_cai


def test_dicts_of_arrays_of_one_kind_differ_by_their_pointers_alone(cuda):
    kinds = [*itertools.product(("float32", "int32"), "CF", (-1, 1), ((2, 3), (3, 2)))]
    # Of each kind three, in a row and in turns.
    for dtype, strides, stream, shape in [*kinds, *kinds, *(kind for kind in kinds for _ in "123")]:
        x = cuda.array(np.ones(shape, dtype), speaks=("dlpack", "cai"), strides=strides)
        made, told = to_cai(x, stream=stream).__cuda_array_interface__, x.__cuda_array_interface__
        assert made == {**told, "stream": None if stream == -1 else stream}
        made.update(shape=(9,), typestr="<f8", version=7, strides=(1,), stream=3, mask=1)


def test_a_collection_while_a_dict_is_made_may_make_others(cuda):
    arrays = [to_cai(cuda.array(np.ones((at % 5 + 1, 2)))) for at in range(20)]
    made = []

    def look(phase=None, info=None, arrays=arrays[:7]):
        made.extend((x.shape, x.__cuda_array_interface__["shape"]) for x in arrays)

    gc.callbacks.append(look)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        look(arrays=arrays * 3)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)
    assert len(made) > 60
    assert [said for said, _ in made] == [shape for _, shape in made]


POINTER = {
    "numpy pointer": lambda ptr: (np.uint64(ptr), False),
    "numpy bool": lambda ptr: (ptr, np.bool_(False)),
    "0 for read-only": lambda ptr: (ptr, 0),
}


@pytest.mark.parametrize("spelled", POINTER)
def test_the_data_entry_is_read_as_producers_in_the_field_write_it(spelled, cuda):
    x = cuda.array(shape=4, speaks=())
    view = from_cai(only_cai(x, data=POINTER[spelled](x.ptr)))
    assert (view.ptr, view.readonly) == (x.ptr, False)


@pytest.mark.parametrize("kind", [lambda key: "".join([*key]), type("Key", (str,), {})])
def test_keys_that_are_equal_but_not_the_same_string_are_found(kind, cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = {kind(key): value for key, value in interface(x, stream=1).items()}
    view = from_cai(made, owner=x)
    assert (cuda.read(view), view.stream) == ([1.0] * 4, 1)


def with_attribute(x):
    def function():
        pass

    function.array = x
    return function


HOLDERS = {
    "a list": lambda x: [0, x],
    "a dict's value": lambda x: {"x": x},
    "a dict's key": lambda x: {x: "x"},
    "a closure": lambda x: lambda: x,
    "a default": lambda x: lambda y=x: y,
    "a keyword's default": lambda x: lambda *, y=x: y,
    "a function's attribute": with_attribute,
    "a partial": lambda x: functools.partial(print, x),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_whatever_holds_the_array_is_an_owner(holder, cuda):
    x = cuda.array([1.0] * 4, speaks=())
    view, alive = from_cai(interface(x), owner=HOLDERS[holder](x)), weakref.ref(x)
    del x
    assert cuda.read(view) == [1.0] * 4
    view.release()
    del view
    gc.collect()
    assert alive() is None
