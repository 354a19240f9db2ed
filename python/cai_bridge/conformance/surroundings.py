"""What is so during a whole check, by the axis `around`: each requirement has its values."""

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
    """Call as the case's `around` says: as it is, or in another thread, stream or device.

    Raises
    ------
    NotApplicableError
        The library has no streams, or there is one device.
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
    """Call from another thread; return what it returns, and pass on what it raises.

    A lab's device is its current one, unless the thread is to be `bare`: then it has none, as any
    new thread on a GPU. Libraries may need one for all but deleters.
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
    """Call from another thread if the case has that part there."""
    return in_another_thread(call, lab) if case.thread == part else call()
