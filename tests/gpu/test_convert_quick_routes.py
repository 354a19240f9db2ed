"""The quick routes to CuPy's, Numba's and JAX's arrays make what the public ones make."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai, to_dlpack
from cai_bridge._libraries import _cupy, _jax, _numba

from .converting import SEEN, make, needs
from .libraries import STANDARD, host_values, same_bits
from .test_values import LAYOUTS, check_layout, layouts

QUICK = {"cupy": _cupy, "numba": _numba}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("library", QUICK)
def test_the_quick_route_makes_what_the_public_one_makes(driver, library, layout):
    array, _ = layouts("cupy")[layout]
    needs(library)
    routes, view = QUICK[library]._routes(), to_cai(array, stream=-1)
    if not view.size:
        pytest.skip("arrays without elements go by the public route")
    quick, public = routes.quick(view, 0), routes.public(view, 0)
    assert routes.same(quick, public)
    assert (quick.shape, quick.dtype) == (public.shape, public.dtype)
    assert str(quick.flags) == str(public.flags)
    check_layout(SEEN[library](quick), SEEN[library](public).values, view.ptr, strides=False)
    routes(view, 0)
    assert routes.chosen is routes.quick


@pytest.mark.parametrize("dtype", STANDARD)
def test_jaxs_quick_route_makes_what_the_public_one_makes(driver, dtype):
    needs("jax", "cupy")
    routes, view = _jax._routes(), to_dlpack(make("cupy", host_values(dtype)))
    quick, public = routes.quick(view, None), routes.public(view, None)
    assert routes.same(quick, public)
    assert same_bits(np.asarray(quick), np.asarray(public))
    assert quick.dtype.name != dtype or quick.unsafe_buffer_pointer() == view.ptr
    routes(view, None)
    assert routes.chosen is routes.quick is not routes.public


def seen_by(view: Any) -> tuple[Any, ...]:
    """What a view says of its array."""
    return (view.shape, view.strides, view.dtype, view.ptr, view.readonly, view.stream, view.device)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cupys_arrays_say_by_their_attributes_what_their_dict_says(driver, layout):
    array, _ = layouts("cupy")[layout]
    by_dict = from_cai(array.__cuda_array_interface__, owner=array, device=0)
    assert seen_by(from_cai(array)) == seen_by(by_dict)


def test_cupys_attributes_are_what_the_bridge_takes_them_for(driver, cupy, caplog):
    array = cupy.zeros((2, 3))
    caplog.set_level(logging.DEBUG, "cai_bridge")
    # What is known of a type is known to a thread.
    thread = threading.Thread(target=lambda: from_cai(array))
    thread.start()
    thread.join()
    assert not [record for record in caplog.records if "public route" in record.getMessage()]
