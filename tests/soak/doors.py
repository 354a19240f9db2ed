"""What stands between producers and consumers: the bridge, or (in the control) nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cai_bridge

from ..another_thread import in_another_thread
from .steps import LIKE, CallLibrary, Copy, Export, FromCai, ToCai

VERSIONED = {"max_version": (1, 0)}


class Asked:
    """A view that is asked in another way than its consumer does, or a capsule to be consumed."""

    def __init__(self, view: Any, **asked: Any) -> None:
        self._view, self._asked = view, asked

    def __dlpack_device__(self) -> tuple[int, int]:
        asked: tuple[int, int] | None = self._asked.get("dl_device")
        is_capsule = not hasattr(self._view, "__dlpack__")
        return asked or ((2, 0) if is_capsule else self._view.__dlpack_device__())

    def __dlpack__(self, **wishes: Any) -> Any:
        if not hasattr(self._view, "__dlpack__"):
            return self._view
        return self._view.__dlpack__(**{**wishes, **self._asked})


Libraries = tuple[Any, Any]


class Bridge:
    """What is called for a step: `stream` is what the step names, an object or a handle."""

    # Whether arrays are handed over as they are.
    native = False
    # Whether all libraries have one current stream between them.
    shares_current = False
    # Whether arrays survive the collector as long as somebody holds them.
    keeps_cycles = True

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        if step.by:
            source = source.__dlpack__(stream=1, **(VERSIONED if step.by == "versioned" else {}))
        said = given(stream=stream, readonly=step.readonly)
        if step.converts:
            return cai_bridge.convert(source, "cai", **said)
        return cai_bridge.to_cai(source, **said)

    def from_cai(self, source: Any, step: FromCai, stream: Any, **more: Any) -> Any:
        device = None if step.device is None else (2, step.device)
        said = given(stream=stream, readonly=step.readonly, device=device, **more)
        if step.as_dict:
            return cai_bridge.from_cai(source.__cuda_array_interface__, owner=source, **said)
        return cai_bridge.from_cai(source, **said)

    def export(self, source: Any, step: Export, stream: Any) -> Any:
        device = None if step.device is None else (2, step.device)
        said = given(dl_device=device, copy=isinstance(step, Copy) or None)
        return source.__dlpack__(stream=stream, **said, **(VERSIONED if step.versioned else {}))

    def to_host(self, view: Any) -> Any:
        """Ask for memory of the CPU as NumPy would, which takes no other."""
        return np.from_dlpack(Asked(view, dl_device=(1, 0)))

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        if block:
            with view:
                pass
        else:
            view.release(*(() if stream is None else (stream,)))

    def adapted(self, function: Any, step: CallLibrary, source: Any, libraries: Libraries) -> Any:
        """Call a function by `adapt`; what it returns comes back as the step says.

        `libraries` are the adapters of the function's library, and of what it returns.
        """
        returns = {} if step.returns == LIKE else {"returns": step.returns}
        said = given(readonly=step.readonly)
        return cai_bridge.adapt(function, step.library, **returns, **said)(source)


class Nothing(Bridge):
    """Arrays are handed over as they are; what goes back does so by itself."""

    native = True

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        return source

    def from_cai(self, source: Any, step: FromCai, stream: Any, **more: Any) -> Any:
        return source

    def export(self, source: Any, step: Export, stream: Any) -> Any:
        return source

    def adapted(self, function: Any, step: CallLibrary, source: Any, libraries: Libraries) -> Any:
        """Do what `adapt` does, by the libraries' own ways of taking arrays over."""
        there, back = libraries

        def taken(adapter: Any, array: Any) -> Any:
            return adapter.take_natively("from_dlpack", array, None)

        result = function(taken(there, source))
        if result is None or back is there:
            return result
        if isinstance(result, tuple):
            return tuple(taken(back, one) for one in result)
        return taken(back, result)

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        return


def given(**arguments: Any) -> dict[str, Any]:
    """Leave out what nobody says."""
    return {name: value for name, value in arguments.items() if value is not None}


def in_thread(thread: bool, call: Callable[[], object]) -> None:
    if thread:
        in_another_thread(call)
    else:
        call()
