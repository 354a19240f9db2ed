"""Conditions that hold during a whole check: the values of the axis `around`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from .adapter import Streams
from .cases import Case
from .lab import Lab
from .missing import missing

T = TypeVar("T")


def surrounded(adapter: Streams, lab: Lab, case: Case, call: Callable[[], T]) -> T:
    """Call as the case's `around` says: normally, or in another thread, stream or device.

    Raises
    ------
    NotApplicableError
        The library has no streams, or the lab has only one device.
    """
    if case.around == "another thread":
        return in_another_thread(call, lab)
    if case.around == "another stream":
        stream = adapter.stream()
        if stream is None:
            raise missing(adapter, "stream()")
        with adapter.on(stream):
            return call()
    if case.around == "another device":
        with lab.on_device(1), adapter.on_device(1):
            return call()
    return call()


def in_another_thread(call: Callable[[], T], lab: Lab | None = None, *, bare: bool = False) -> T:
    """Call in another thread; return its result, or raise its exception.

    The lab's device is current there, unless the thread is `bare`: then it has no current device,
    like any new thread on a GPU. Libraries may need a current device for everything but deleters.
    """
    raised: list[BaseException] = []
    returned: list[T] = []

    def run() -> None:
        try:
            if lab is not None:
                lab.begin_thread()
            with contextlib.nullcontext() if bare or lab is None else lab.current():
                returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return returned.pop()


def elsewhere(lab: Lab, case: Case, part: str, call: Callable[[], T]) -> T:
    """Call from another thread, if the case puts `part` there."""
    return in_another_thread(call, lab) if case.thread == part else call()
