"""What DLPack's C exchange API requires of the stream that a table names."""

from __future__ import annotations

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from .arrays import made, table_of
from .exchange import TENSOR, exchange
from .pending import ELSEWHERE, RACE, by_table, expect_ordered, expect_read_first, writes

STREAM = "current_work_stream"
READABLE = ("exchange-table", "exchange-values", "exchange-two-exports", *TENSOR)
PENDING = (*READABLE, "exchange-stream")
EXPORTS = ("first", "again", "between writes", "after an end")


@exchange(
    "stream",
    STREAM,
    "the array is ready on the stream that the table names",
    RACE,
    over=writes(("its own", "moved"), EXPORTS),
    rests_on=READABLE,
)
def exchange_stream(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    return expect_ordered(p, lab, case, by_table)


@exchange(
    "pending-default",
    STREAM,
    "the same while the work is pending on a default stream",
    RACE,
    over=writes(("default",), EXPORTS),
    rests_on=PENDING,
)
def exchange_pending_default(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    return expect_ordered(p, lab, case, by_table)


@exchange(
    "pending-elsewhere",
    STREAM,
    "the same when another stream is the library's current one",
    RACE,
    level="should",
    over=ELSEWHERE,
    rests_on=PENDING,
)
def exchange_pending_elsewhere(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    return expect_ordered(p, lab, case, by_table, elsewhere=True)


@exchange(
    "pending-read",
    STREAM,
    "the same while the library still reads the array",
    "the consumer writes before the read is done",
    level="should",
    over={"export": ("first", "again"), "stream": ("its own", "default")},
    rests_on=(*PENDING, "exchange-pending-default"),
)
def exchange_pending_read(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    return expect_read_first(p, lab, case, by_table, elsewhere=True)


@exchange(
    "pending-on-two",
    STREAM,
    "the same when work on the array is pending on two streams",
    RACE,
    rests_on=PENDING,
)
def exchange_pending_on_two(p: ProducerAdapter, lab: Lab) -> str:
    table = table_of(made(p, lab))
    for value in lab.values():
        late = p.late_on_two(lab, value)
        with p.on(late.stream):
            fields = table.export(late.array).fields
            stream = table.work_stream(*fields.device) or 1
        mine = lab.stream()
        lab.order(stream, mine.handle)
        named = f"the table names {lab.called(stream)}"
        seen = lab.expect_read(mine.handle, lab.tensor_region(fields), late, named)
    return seen
