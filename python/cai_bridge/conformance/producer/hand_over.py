"""How a consumer takes an array in order: by the dict, by a capsule, or by the table."""

from __future__ import annotations

from typing import Any, Protocol

from cai_bridge.testing import describe
from cai_bridge.testing._region import Region

from ..cases import Case
from ..lab import Lab
from ..requirement import NotApplicableError, UnmetError, expect
from .arrays import cai_of, export, is_int, table_of


class HandOver(Protocol):
    """Takes an array in order on one of the kit's streams, as a protocol prescribes."""

    def __call__(self, lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
        """Return the region, how the stream was ordered, and objects to keep alive meanwhile."""


def by_dict(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Read the dict, and wait for its stream."""
    del case
    said = describe(cai_of(x))["CAI"]
    expect(said.stream != 0 and said.stream is not False, f"the dict names {said.stream!r}")
    if is_int(said.stream):
        lab.order(said.stream, mine)
    return lab.region(said), f"the dict names {lab.called(said.stream)}", None


def by_capsule(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Ask for a capsule on the stream; if no stream is accepted, on the default stream."""
    asked = f"asked for {lab.called(mine)}"
    stream = None if case.asked == "None" else mine
    try:
        capsule = export(x, case, stream=stream)
    except (NotApplicableError, UnmetError):
        raise
    except Exception as refused:
        # Producers need not accept any stream except None.
        try:
            capsule = export(x, case, stream=None)
        except (BufferError, TypeError) as also:
            raise NotApplicableError(f"refused: {also}") from refused
        lab.order(1, mine)
        asked = f"asked for None, as {lab.called(mine)} is refused"
    return lab.region(describe(capsule)["capsule"]), asked, capsule


def by_bare_call(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Ask for a capsule without a stream, which means the default stream."""
    try:
        capsule = export(x, case)
    except BufferError as refused:
        raise NotApplicableError(f"refused: {refused}") from refused
    lab.order(1, mine)
    return lab.region(describe(capsule)["capsule"]), "asked without stream=", capsule


def by_table(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Export by the table, and wait for the stream that it names."""
    del case
    table = table_of(x)
    taken = table.export(x)
    stream = table.work_stream(*taken.fields.device) or 1
    lab.order(stream, mine)
    return lab.tensor_region(taken.fields), f"the table names {lab.called(stream)}", taken
