"""The result of a queued read."""

from __future__ import annotations

from typing import Any

from ._errors import SimulatedError


class Result:
    """Holds the values that queued work has read."""

    done: bool = False
    value: Any = None

    def set(self, value: Any) -> None:
        """Store the values. The work does this last."""
        self.value, self.done = value, True


class Pending:
    """The result of queued work, and the object that the consumer holds meanwhile.

    It holds what was imported (a managed tensor, a view) until `release`, or as long as it lives.
    The work itself holds nothing, as on a real device.
    """

    def __init__(self, name: str, result: Result, held: object = None) -> None:
        self._name = name
        self._result = result
        self._held = held

    @property
    def done(self) -> bool:
        """Whether the work has run."""
        return self._result.done

    @property
    def value(self) -> Any:
        """The values that the read saw, as nested lists; None for a write.

        Raises
        ------
        SimulatedError
            The work has not run. `SimulatedCuda.synchronize` or a sync of its stream runs it.
        """
        if not self._result.done:
            raise SimulatedError(f"{self._name!r} has not run; synchronize its stream first")
        return self._result.value

    def release(self) -> None:
        """Drop the imported object; the value stays."""
        self._held = None

    def __repr__(self) -> str:
        value = repr(self._result.value) if self._result.done else "not run"
        return f"<Pending {self._name!r}: {value}>"
