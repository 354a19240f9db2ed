"""The result of a read that is queued."""

from __future__ import annotations

from typing import Any

from ._errors import SimulatedError


class Result:
    """Where queued work leaves what it saw."""

    done: bool = False
    value: Any = None

    def set(self, value: Any) -> None:
        """Keep what the work saw, last."""
        self.value, self.done = value, True


class Pending:
    """The result of work that is queued, and what the consumer holds meanwhile.

    What was imported (a managed tensor, a view) is held until `release`, or until this object goes.
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
        """What the read saw, as nested lists; None for a write.

        Raises
        ------
        SimulatedError
            The work has not run. `SimulatedCuda.synchronize` or a sync of its stream runs it.
        """
        if not self._result.done:
            raise SimulatedError(f"{self._name!r} has not run; synchronize its stream first")
        return self._result.value

    def release(self) -> None:
        """Let go of what was imported; the value stays."""
        self._held = None

    def __repr__(self) -> str:
        value = repr(self._result.value) if self._result.done else "not run"
        return f"<Pending {self._name!r}: {value}>"
