"""The arrays that consumers are handed: where their items lie, and what they and the rest hold."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cai_bridge.conformance.lab import CaiArray
from cai_bridge.conformance.lab.array import FILLER, GUARD, LabArray

SHAPE = (3, 4)
ITEMS = 12
# Where the first item is, the strides and how many there are, in items.
LAYOUTS = {
    "C": (0, (4, 1), ITEMS),
    "F": (0, (1, 3), ITEMS),
    "columns": (0, (8, 2), 2 * ITEMS),
    "reversed": (8, (-4, 1), ITEMS),
    "repeated": (0, (0, 1), ITEMS),
}
FLOATS_OF_8_BITS = [name for name in dir(ml_dtypes) if name.startswith("float8_")]


def made(lab: Any, dtype: str = "float32", layout: str = "C", value: Any = None) -> LabArray:
    return LabArray(lab, SHAPE, dtype, layout, value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_items_are_counted_by_where_they_lie_and_nothing_else_is_written(
    layout: str, lab: Any
) -> None:
    offset, strides, number = LAYOUTS[layout]
    x = made(lab, "int32", layout)
    assert x.region.ptr - x.memory.ptr == GUARD + 4 * offset
    assert x.region.strides == tuple(4 * step for step in strides)
    memory = x.contents()
    assert len(memory) == GUARD + 4 * number + GUARD
    filler = bytes([FILLER])
    assert memory[:GUARD] == memory[-GUARD:] == filler * GUARD
    inside = np.frombuffer(memory[GUARD:-GUARD], "int32")
    places = offset + np.add.outer(np.arange(3) * strides[0], np.arange(4) * strides[1])
    assert np.array_equal(inside[places], x.values)
    assert np.array_equal(x.values, places + 1)
    others = np.delete(inside, places.ravel())
    assert others.tobytes() == filler * others.nbytes


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", [True, False, True, False]),
        ("uint8", [1, 2, 3, 4]),
        ("float16", [1.0, 2.0, 3.0, 4.0]),
        ("bfloat16", [1.0, 2.0, 3.0, 4.0]),
        ("complex64", [1, 2 - 1j, 3 - 2j, 4 - 3j]),
    ],
)
def test_what_items_of_a_type_hold(dtype: str, values: list[Any], lab: Any) -> None:
    assert made(lab, dtype).values[0] == values
    assert made(lab, dtype, value=1).values == [[1] * 4] * 3


@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS)
def test_floats_of_8_bits_are_ones_and_twos_by_their_bits_or_numbers(dtype: str, lab: Any) -> None:
    x = made(lab, dtype)
    bits = np.array(x.values, np.uint8)
    numbers = bits.view(getattr(ml_dtypes, dtype)).astype(float)
    assert numbers.tolist() == [[1.0, 2.0] * 2] * 3
    assert x.holds(bits.tolist())
    assert x.holds(numbers.tolist())
    assert not x.holds(numbers[::-1, ::-1].tolist())
    assert not x.holds((bits + 1).tolist())


def test_items_in_the_other_byte_order(lab: Any) -> None:
    x = made(lab, "int16")
    x.swap_bytes()
    assert x.contents()[GUARD:-GUARD] == np.arange(1, 13, dtype=">i2").tobytes()


def test_a_layout_that_there_is_not_is_refused(lab: Any) -> None:
    with pytest.raises(ValueError, match=r"layout: got 'diagonal'; allowed: 'C', "):
        CaiArray(lab, layout="diagonal")
