"""The requirements of DLPack's C exchange API on a type's table."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing._kit.dlpack_abi import NullError, exchange_table
from cai_bridge.testing._kit.dlpack_fields import fields_of

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..refusals import Refusal, attempt
from ..requirement import NotApplicableError, expect, needs
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
from .doors import TENSOR, exchange, tensor_of
from .values import (
    PLAIN,
    by_exchange,
    by_loan,
    earlier,
    is_copy,
    laid_out,
    lazy_values,
    said_or_refused,
    taken_of,
    whole_of,
)


@exchange("table")
def exchange_table_entries(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    del case
    x = made(p, lab)
    needs(has_table(x), f"{type(x).__name__} has no __dlpack_c_exchange_api__")
    expect(exchange_table(type(x)), "it is not a capsule with a table of major version 1")
    table = table_of(x)
    expect(not table.missing, f"NULL: {', '.join(table.missing)}")
    return f"version {table.version[0]}.{table.version[1]}"


@exchange("readonly", rests_on=("dlpack-readonly",))
def exchange_readonly(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    table = table_of(x)
    base = table.export(x).fields
    if case == PLAIN:
        expect_unwritten(p, lab, x, lab.region(by_exchange(x)), readonly=bool(base.readonly))
        held = [table.export(x) for _ in range(2)]
        first, second = (one.fields for one in held)
        odd = (first.flags or 0) & ~1 if first.ptr == second.ptr else 0
        expect(not odd, f"flags are {first.flags:#b} in the array's own memory")
    frozen, before = p.readonly(x), base.readonly
    y = taken_of(p, lab, frozen, case)[0]
    kept = earlier(case, y, tensor_of)
    try:
        fields = table.export(y).fields
    except Exception as refused:
        return f"refused: {refused}"
    if is_copy(case, fields.ptr, base.ptr):
        return "a copy"
    expect(fields.readonly, f"flags are {fields.flags}")
    after = table.export(x).fields.readonly
    expect(frozen is x or after == before, "then the array itself is told as read-only")
    del kept
    return f"flags are {fields.flags}"


@exchange("lazy", rests_on=("values",))
def exchange_lazy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table = table_of(made(p, lab))
    arrays = [*p.lazy()]
    while arrays:
        # The last array first: it may be a view of the arrays before it.
        name, x, _ = arrays.pop()
        exported = None if isinstance(x, Exception) else attempt(_exported_or_null, table, x)
        expect(exported is not NullError, f"the {name} is refused by NULL, as if it were none")
        if isinstance(exported, Refusal):
            alive = reference_to(x)
            lab.synchronize()
            del x
            expect_gone(p, lab, alive, " after its export was refused")
    told = lazy_values(p, lab, case, by_exchange)
    return lazy_values(p, lab, case, by_loan) if table.can_borrow else told


def _exported_or_null(table: Any, x: Any) -> Any:
    try:
        return table.export(x)
    except NullError:
        return NullError


@exchange("borrowed", rests_on=("table", "values"))
def exchange_borrowed(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    table_of(made(p, lab))
    whole = whole_of(p, lab, case)
    table = table_of(whole)
    needs(table.can_borrow, "the table has no such entry, which is optional")
    lent = said_or_refused(lambda x, _: table.lend(x), whole, case)
    x = taken_of(p, lab, whole, case)[0]
    kept = earlier(case, x, tensor_of)
    theirs = said_or_refused(lambda x, _: table.export(x).fields, x, case)
    try:
        mine = said_or_refused(lambda x, _: table.borrow(x), x, case)
    except BufferError as refused:
        # A borrowed tensor has no read-only flag.
        needs(not theirs.readonly, f"read-only memory is not lent: {refused}")
        raise
    for field in ("data", "byte_offset", "shape", "strides", "dtype", "device"):
        one, other = getattr(mine, field), getattr(theirs, field)
        expect(one == other, f"{field}: borrowed {one}, managed {other}")
    y = made(p, lab, (2, 1, 5))
    first, second = table.lend(x), table.lend(y)
    again = fields_of(first)
    expect(again.shape == mine.shape, f"with another array lent, too, the shape is {again.shape}")
    expect(again.strides == mine.strides, f"with another array lent, too: {again.strides}")
    try:
        alive = reference_to(x)
    except NotApplicableError:
        return "the same"
    del kept, whole, lent, x, y, first, second
    lab.synchronize()
    expect_gone(p, lab, alive, " after it was lent")
    return "the same, and it keeps nothing"


@exchange("owner", rests_on=("values", "dlpack-deleter", *TENSOR))
def exchange_owner(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    whole = whole_of(p, lab, case)
    table_of(whole)
    lab.put(lab.region(by_exchange(whole)), 5.0)
    x = taken_of(p, lab, whole, case)[0]
    del whole
    alive, table = reference_to(x), table_of(x)
    kept = earlier(case, x, tensor_of)
    taken = table.export(x)
    region = lab.tensor_region(taken.fields)
    del x, kept
    lab.synchronize()
    expect_kept(
        *(p, lab, region),
        lambda other: lab.tensor_region(table.export(other).fields),
        "the array",
    )
    taken.delete()
    expect_gone(p, lab, alive, " after the deleter")
    return "kept, and let go of"


@exchange("two-exports", rests_on=("table",))
def exchange_two_exports(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    table = table_of(x)
    kept = earlier(case, x, tensor_of)
    first, second = table.export(x), table.export(x)
    expect_independent(first, second, lambda: table.export(made(p, lab, (2, 1, 5))))
    del kept
    return "the other is as it was"
