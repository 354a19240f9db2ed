"""The reports of the simulated device, its driver calls, and faults of the driver."""

from __future__ import annotations

from cai_bridge._core import _Session

from . import _checks
from ._errors import CallRecord, RaceError, Report


class Findings:
    """The part of `SimulatedCuda` that has reports and calls, and makes calls fail."""

    _session: _Session

    @property
    def reports(self) -> list[Report]:
        """The reports so far, in program order: the first 10,000."""
        return [Report._of(made, self._session) for made in self._session.reports()]

    @property
    def reports_left_out(self) -> int:
        """The number of reports beyond those in `reports`."""
        return self._session.reports_left_out()

    def clear_reports(self) -> None:
        """Forget the reports so far."""
        self._session.clear_reports()

    def check(self) -> None:
        """Raise `RaceError` if there are reports, as the end of the ``with`` block does."""
        reports = self.reports
        if reports:
            raise RaceError(reports, self.reports_left_out)

    def fail(self, call: str, nth: int = 1, error: str | int = "CUDA_ERROR_OUT_OF_MEMORY") -> None:
        """Make the `nth` next call of an entry point of the driver fail, without effect.

        Parameters
        ----------
        call : str
            The entry point, such as ``"cuEventRecord"``.
        nth : int, optional
            Counted from 1; calls by this device's arrays and consumers count.
        error : str or int, optional
            The error by CUDA's name, or its code.
        """
        self._session.fail(call, _nth(nth), error)

    def suppress(self, call: str, nth: int = 1) -> None:
        """Make the `nth` next call of an entry point report success and do nothing.

        A stream test must fail once its wait is suppressed.
        """
        self._session.suppress(call, _nth(nth))

    def clear_faults(self) -> int:
        """Cancel the faults that have not happened yet; return how many there were."""
        return self._session.clear_faults()

    @property
    def calls(self) -> list[CallRecord]:
        """The driver calls so far, in order: the last 65,536 of them."""
        return [CallRecord(*made) for made in self._session.calls()]

    def clear_calls(self) -> None:
        """Forget the driver calls so far."""
        self._session.clear_calls()


def _nth(nth: int) -> int:
    """Return the checked number of a call."""
    allowed = "1 for the next call, 2 for the one after, ..."
    if _checks.integer("nth", nth, 0, allowed) >= 1 << 32:
        _checks.refuse(ValueError, "nth", nth, allowed)
    return nth
