"""The dict of a `CaiView`: its keys and exact types, what is read, and what `stream` says."""

import gc

import numpy as np
import pytest
from fakes import interface, only_cai

from cai_bridge import from_cai, to_cai


def test_dicts_of_arrays_of_one_kind_differ_by_their_pointers_alone(cuda):
    kinds = [
        {"dtype": dtype, "strides": strides, "stream": stream, "shape": shape}
        for dtype in ("float32", "int32")
        for strides in ("C", "F")
        for stream in (-1, 1)
        for shape in ((2, 3), (3, 2))
    ]

    def described(dtype, strides, stream, shape):
        x = cuda.array(np.ones(shape, dtype), speaks=("dlpack", "cai"), strides=strides)
        return to_cai(x, stream=stream).__cuda_array_interface__, x.__cuda_array_interface__, stream

    # Of each kind three, in a row and in turns.
    for kind in [*kinds, *kinds, *(kind for kind in kinds for _ in range(3))]:
        made, told, stream = described(**kind)
        assert made == {**told, "stream": None if stream == -1 else stream}
        made.update(shape=(9,), typestr="<f8", version=7, strides=(1,), stream=3, mask=1)


def test_a_collection_while_a_dict_is_made_may_make_others(cuda):
    arrays = [to_cai(cuda.array(np.ones((at % 5 + 1, 2)))) for at in range(20)]
    made = []

    def collected(phase, info):
        made.extend((x.shape, x.__cuda_array_interface__["shape"]) for x in arrays[:7])

    gc.callbacks.append(collected)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for x in arrays * 3:
            made.append((x.shape, x.__cuda_array_interface__["shape"]))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
    assert len(made) > 60
    assert [said for said, _ in made] == [shape for _, shape in made]


# --- what is read ---------------------------------------------------------------------------------


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


def test_keys_that_are_equal_but_not_the_same_string_are_found(cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = {"".join(list(key)): value for key, value in interface(x, stream=1).items()}
    made = {type("Key", (str,), {})(key): value for key, value in made.items()}
    assert cuda.read(from_cai(made, owner=x)) == [1.0] * 4
    assert from_cai(made, owner=x).stream == 1
