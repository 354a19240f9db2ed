"""What stands between two libraries: the bridge, or (in the control) nothing."""

from __future__ import annotations

from typing import Any

import cai_bridge

from .. import doors
from ..bridging import Export, FromCai, ToCai
from ..calling import LIKE, CallLibrary

Libraries = tuple[Any, Any]


class Bridge(doors.Bridge):
    """The bridge between libraries.

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

    def adapted(self, function: Any, step: CallLibrary, source: Any, libraries: Libraries) -> Any:
        """Call a function by `adapt`; what it returns comes back as the step says.

        `libraries` are the adapters of the function's library, and of what it returns.
        """
        del libraries
        returns = {} if step.returns == LIKE else {"returns": step.returns}
        said = doors.given(readonly=step.readonly)
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
