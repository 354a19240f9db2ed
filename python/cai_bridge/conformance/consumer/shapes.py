"""Shapes and layouts of the kit's own arrays, by the values of the axis `layout`."""

from __future__ import annotations

SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "whole": ((3, 4), "C"),
    "1-D": ((6,), "C"),
    "3-D": ((2, 3, 4), "C"),
    "0-d": ((), "C"),
    "4-D": ((2, 3, 2, 2), "C"),
    "5-D": ((2, 1, 2, 3, 2), "C"),
    "size-1 axes": ((3, 1, 4), "C"),
    "one item": ((1,), "C"),
    "empty": ((0, 3), "C"),
    "empty in the last axis": ((3, 0), "C"),
    "empty 1-D": ((0,), "C"),
    "Fortran's order": ((3, 4), "F"),
    "Fortran's order of three axes": ((2, 3, 4), "F"),
    "Fortran's order of four axes": ((2, 3, 2, 2), "F"),
    "permuted": ((2, 3, 4), "rotated"),
    "columns": ((3, 4), "columns"),
    "every second of 1-D": ((5,), "columns"),
    "every second of three axes": ((2, 3, 4), "columns"),
    "every second of four axes": ((2, 3, 2, 2), "columns"),
    "every second row": ((3, 4), "rows"),
    "every second column": ((3, 4), "last"),
    "odd strides of one item": ((3, 1, 4), "odd"),
    "rows reversed": ((3, 4), "reversed"),
    "columns reversed": ((3, 4), "last reversed"),
    "both reversed": ((3, 4), "all reversed"),
    "1-D reversed": ((5,), "reversed"),
    "three axes reversed": ((2, 3, 4), "all reversed"),
    "rows repeated": ((3, 4), "repeated"),
    "columns repeated": ((3, 4), "last repeated"),
    "1-D repeated": ((5,), "repeated"),
    "three axes, the first repeated": ((2, 3, 4), "repeated"),
}
"""Each layout: the shape, and where the items lie."""
