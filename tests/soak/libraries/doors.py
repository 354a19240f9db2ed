"""What stands between two libraries: the bridge, or (in the control) nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

import cai_bridge

from ..bridging import FromCai, ToCai
from ..calling import LIKE, CallLibrary

Libraries = tuple[Any, Any]


class Asked:
    """A view whose consumer is made to ask with a stream object, or a capsule to be consumed."""

    def __init__(self, view: Any, stream: Any = None, capsule: Any = None) -> None:
        self._view, self._stream, self._capsule = view, stream, capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self._view is None else self._view.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> Any:
        del stream
        if self._capsule is not None:
            return self._capsule
        return self._view.__dlpack__(stream=self._stream, **wishes)


class OnHost:
    """A view as NumPy asks for it, which would not take memory of a GPU."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._view.__dlpack__(**{**wishes, "dl_device": (1, 0)})


class Bridge:
    """The two functions, as users call them.

    Attributes
    ----------
    native : bool
        Whether arrays are handed over as they are.
    shares_current : bool
        Whether all libraries have one current stream between them.
    converts : bool
        Whether `convert` knows the libraries, as it does no stand-ins over NumPy.
    keeps_cycles : bool
        Whether arrays survive the collector as long as somebody holds them.
    """

    native = False
    shares_current = False
    converts = True
    keeps_cycles = True

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        if step.by:
            version = {"max_version": (1, 0)} if step.by == "versioned" else {}
            source = source.__dlpack__(stream=1, **version)
        return cai_bridge.to_cai(source, **_given(stream=stream, readonly=step.readonly))

    def from_cai(self, source: Any, step: FromCai, stream: Any) -> Any:
        given = _given(stream=stream, readonly=step.readonly)
        if step.as_dict:
            return cai_bridge.from_cai(source.__cuda_array_interface__, owner=source, **given)
        return cai_bridge.from_cai(source, **given)

    def capsule(self, view: Any, stream: Any, *, versioned: bool) -> Any:
        version = {"max_version": (1, 0)} if versioned else {}
        return view.__dlpack__(stream=stream, **version)

    def to_host(self, view: Any) -> Any:
        return np.from_dlpack(OnHost(view))

    def adapted(self, function: Any, step: CallLibrary, source: Any, libraries: Libraries) -> Any:
        """Call a function by `adapt`; what it returns comes back as the step says.

        `libraries` are the adapters of the function's library, and of what it returns.
        """
        del libraries
        returns = {} if step.returns == LIKE else {"returns": step.returns}
        given = _given(readonly=step.readonly)
        return cai_bridge.adapt(function, step.library, **returns, **given)(source)

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        if block:
            with view:
                pass
        else:
            view.release(*(() if stream is None else (stream,)))


class Nothing(Bridge):
    """Arrays are handed over as they are; what goes back does so by itself."""

    native = True

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        return source

    def from_cai(self, source: Any, step: FromCai, stream: Any) -> Any:
        return source

    def capsule(self, view: Any, stream: Any, *, versioned: bool) -> Any:
        return view

    def adapted(self, function: Any, step: CallLibrary, source: Any, libraries: Libraries) -> Any:
        def taken(adapter: Any, array: Any) -> Any:
            return adapter.take_natively("from_dlpack", array, None)

        return called(function, source, libraries, taken)

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        return


def called(function: Any, source: Any, libraries: Libraries, taken: Any) -> Any:
    """Do what `adapt` does, by the libraries' own ways of taking arrays over."""
    there, back = libraries
    result = function(taken(there, source))
    if result is None or back is there:
        return result
    if isinstance(result, tuple):
        return tuple(taken(back, one) for one in result)
    return taken(back, result)


def _given(**arguments: Any) -> dict[str, Any]:
    """Leave out what nobody says."""
    return {name: value for name, value in arguments.items() if value is not None}
