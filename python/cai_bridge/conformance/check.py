"""Judges a library by every requirement of its role."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from .judging import judge
from .lab import Lab, open_lab
from .named import as_consumer, as_producer
from .place import judged_on
from .report import Report
from .requirement import Role, chosen


def check_producer(
    make: Any,
    *,
    name: str | None = None,
    only: str | Iterable[str] | None = None,
    lab: Lab | None = None,
) -> Report:
    """Judge a library by the requirements on a producer.

    Parameters
    ----------
    make : ProducerAdapter, subclass of it, or callable
        The code that makes the library's arrays. A plain function is called with a shape, a tuple
        of item counts, and the name of an element type; requirements about streams are then
        skipped.
    name : str, optional
        The library's name in the report.
    only : str or iterable of str, optional
        The names of the requirements to judge; by default all.
    lab : Lab, optional
        The lab to judge in; see `open_lab`.

    Returns
    -------
    Report
        One verdict for each requirement of the CUDA Array Interface (Version 3), of DLPack 1.3 and
        of the array API standard's ``__dlpack__``, each with its section.

    Raises
    ------
    TypeError
        `make` is none of the above.
    ValueError
        `only` names an unknown requirement.
    """
    return _check("producer", as_producer(make, name), only, lab)


def check_consumer(
    consume: Any,
    *,
    name: str | None = None,
    only: str | Iterable[str] | None = None,
    lab: Lab | None = None,
) -> Report:
    """Judge a library by the requirements on a consumer.

    Parameters
    ----------
    consume : ConsumerAdapter, subclass of it, or callable
        The code that imports arrays. A plain function is called with an object that speaks one
        protocol, and returns the library's array, which should have ``copy()`` and ``tolist()``.
    name, only, lab
        As for `check_producer`.

    Returns
    -------
    Report
        One verdict for each requirement, with its specification's section.

    Raises
    ------
    TypeError, ValueError
        As for `check_producer`.
    """
    return _check("consumer", as_consumer(consume, name), only, lab)


def _check(role: Role, adapter: Any, only: Any, lab: Lab | None) -> Report:
    wanted = chosen(role, only)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(open_lab()) if lab is None else lab
        place = judged_on(role, adapter, place)
        verdicts = tuple(judge(one, adapter, place) for one in wanted)
        return Report(adapter.name, role, place.name, verdicts)
