"""What DLPack's C exchange API requires of the table on a producer's type."""

from __future__ import annotations

from cai_bridge.testing._kit.dlpack_abi import exchange_table

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..layouts import EVERY, KEPT
from ..requirement import expect, needs
from .arrays import (
    expect_gone,
    expect_independent,
    expect_kept,
    expect_unwritten,
    has_table,
    made,
    reference_to,
    table_of,
)
from .doors import TENSOR, exchange
from .values import (
    by_exchange,
    by_loan,
    is_copy,
    laid_out,
    lazy_values,
    said_or_refused,
    taken_of,
    whole_of,
)


@exchange("table")
def exchange_table_entries(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(has_table(x), f"{type(x).__name__} has no __dlpack_c_exchange_api__")
    expect(exchange_table(type(x)), "it is not a capsule with a table of major version 1")
    table = table_of(x)
    expect(not table.missing, f"NULL: {', '.join(table.missing)}")
    return f"version {table.version[0]}.{table.version[1]}"


@exchange(
    "readonly",
    over={"layout": ("whole", "rows", "columns", "transposed")},
    rests_on=("dlpack-readonly",),
)
def exchange_readonly(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    table = table_of(x)
    base = table.export(x).fields
    expect_unwritten(p, lab, x, lab.region(by_exchange(x)), readonly=bool(base.readonly))
    frozen, before = p.readonly(x), base.readonly
    y = taken_of(p, lab, frozen, case)[0]
    try:
        fields = table.export(y).fields
    except Exception as refused:
        return f"refused: {refused}"
    if is_copy(case, fields.ptr, base.ptr):
        return "a copy"
    expect(fields.readonly, f"flags are {fields.flags}")
    after = table.export(x).fields.readonly
    expect(frozen is x or after == before, "then the array itself is told as read-only")
    return f"flags are {fields.flags}"


@exchange(
    "lazy",
    over={"layout": ("whole", "part"), "export": ("first", "borrowed")},
    rests_on=("values",),
)
def exchange_lazy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table = table_of(made(p, lab))
    needs(case.export == "first" or table.can_borrow, "the table lends no tensors")
    return lazy_values(p, lab, case, by_exchange if case.export == "first" else by_loan)


@exchange("borrowed", over={"layout": EVERY, "dtype": ()}, rests_on=("table", "values"))
def exchange_borrowed(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    x = laid_out(p, lab, case)
    table = table_of(x)
    needs(table.can_borrow, "the table has no such entry, which is optional")
    # A borrowed tensor has no place for the flag.
    needs(not table.export(x).fields.readonly, "the arrays are read-only")
    mine, theirs = table.borrow(x), said_or_refused(lambda x: table.export(x).fields, x, case)
    for field in ("data", "byte_offset", "shape", "strides", "dtype", "device"):
        one, other = getattr(mine, field), getattr(theirs, field)
        expect(one == other, f"{field}: borrowed {one}, managed {other}")
    return "the same"


@exchange(
    "owner",
    over={
        "layout": KEPT,
        "export": ("first", "again"),
    },
    rests_on=("values", "dlpack-deleter", *TENSOR),
)
def exchange_owner(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    x = laid_out(p, lab, case)
    alive, table = reference_to(x), table_of(x)
    if case.export == "again":
        table.export(x).delete()
    taken = table.export(x)
    region = lab.tensor_region(taken.fields)
    lab.put(region, 5.0)
    del x
    expect_kept(
        *(p, lab, region),
        lambda other: lab.tensor_region(table.export(other).fields),
        "the array",
    )
    taken.delete()
    expect_gone(alive, " after the deleter")
    return "kept, and let go of"


@exchange("two-exports", rests_on=("table",))
def exchange_two_exports(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    table = table_of(x)
    first, second = table.export(x), table.export(x)
    expect_independent(first, second, lambda: table.export(made(p, lab, (2, 1, 5))))
    return "the other is as it was"
