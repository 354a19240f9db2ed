"""A call that XLA makes: its buffers as arrays of the function's library during the call.

A buffer has no owner, and its ``__dlpack__`` orders nothing. So the bridge imports it by its dict,
as ready on XLA's stream. XLA's stream gets the buffer back in order at the end of the call. A
function that keeps a buffer is refused.
"""

from __future__ import annotations

import gc
import time
import weakref

from ._core import _shown, convert, from_cai

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled import Wanted

__all__ = ["Call"]

CUDA = 2
"""DLPack's number for memory on a GPU."""
PATIENCE = 1.0
"""How many seconds to wait for arrays that another thread still holds at a call's end."""


class _Stream:
    """XLA's stream, which lives as long as the call. A bare handle could not say so."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class _Held:
    """A buffer on a GPU and its keeper: everything made of the buffer holds this object."""

    def __init__(self, buffer: Any) -> None:
        self.dtype = buffer.dtype
        self.__cuda_array_interface__ = buffer.__cuda_array_interface__


class Call:
    """A function's call in a compiled program, with buffers for its arguments and results."""

    def __init__(self, wanted: Wanted, around: Callable[[Any], list[Any]], inputs: int) -> None:
        self.wanted, self.around, self.inputs = wanted, around, inputs
        self.name = getattr(wanted.function, "__name__", "function")
        self.work = wanted.adapt(self._work)

    def run(self, context: Any, inputs: tuple[Any, ...], outputs: list[Any]) -> None:
        """Call the function, and refuse it if it keeps a buffer."""
        kind, _ = (*inputs, *outputs)[0].__dlpack_device__()
        stream = _Stream(context.stream) if kind == CUDA else None
        held: list[weakref.ref[Any]] = []
        self.work(*(self._taken(one, stream, held) for one in (*inputs, *outputs)))
        if (kept := _kept(held)) is not None:
            named = f"result {kept - self.inputs}" if kept >= self.inputs else f"array {kept}"
            raise BufferError(
                f"{self.name}: got one that kept its {named}; allowed: a function that keeps no "
                "array that it is given, since XLA uses the memory for something else: keep a copy"
            )

    def _taken(self, buffer: Any, stream: _Stream | None, held: list[weakref.ref[Any]]) -> Any:
        if stream is not None:
            of_gpu = _Held(buffer)
            held.append(weakref.ref(of_gpu))
            return from_cai(of_gpu, stream=stream)
        # Everything made of the buffer, by a slice or by DLPack, holds this array.
        array = convert(buffer, "numpy")
        held.append(weakref.ref(array))
        library = self.wanted.library
        return array if library.name == "numpy" else convert(array, library, readonly=False)

    def _work(self, *arrays: Any) -> None:
        args, outputs = self.around(arrays[: self.inputs]), arrays[self.inputs :]
        if self.wanted.into:
            if (made := self.wanted.function(*args, *outputs)) is not None:
                raise TypeError(
                    f"{self.name}: got a result, {_shown(made):.80}; allowed: None, with into=True"
                )
            return
        made = self.wanted.function(*args)
        several = made if isinstance(made, tuple | list) else (made,)
        if len(several) != len(outputs):
            raise ValueError(
                f"{self.name}: got {len(several)} results; allowed: {len(outputs)}, as like= says"
            )
        for number, (one, output) in enumerate(zip(several, outputs, strict=True)):
            self._copy(number, one, output)

    def _copy(self, number: int, result: Any, output: Any) -> None:
        if result is None and self.wanted.is_gradient:
            output[...] = 0
            return
        if (got := _like(result)) != (allowed := _like(output)):
            hint = "; or into=True, if the function writes its results" if result is None else ""
            raise ValueError(
                f"{self.name}: result {number}: got {got}; allowed: {allowed}, as like= says, for "
                f"which programs are compiled{hint}"
            )
        output[...] = result


def _kept(held: list[weakref.ref[Any]]) -> int | None:
    """Return the number of an array that somebody still holds after the call."""
    until = None
    while kept := [number for number, one in enumerate(held) if one() is not None]:
        if until is None:
            gc.collect()
            until = time.monotonic() + PATIENCE
        elif time.monotonic() > until:
            return kept[0]
        else:
            time.sleep(0.001)
    return None


def _like(x: Any) -> str:
    if not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return f"{_shown(x):.80}"
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
