"""What DLPack's C exchange API requires of the table on a producer's type."""

from __future__ import annotations

from collections.abc import Callable

from cai_bridge.testing import assert_equivalent, describe
from cai_bridge.testing._kit.dlpack_abi import exchange_table

from ..adapter import ProducerAdapter
from ..lab import Lab, flat
from ..requirement import DLPACK, Check, Level, NotApplicableError, expect, needs, requires
from .arrays import (
    collect,
    has_table,
    host_values,
    items,
    made,
    numbered,
    reference_to,
    slices,
    table_of,
)

TABLE = "C API: DLPackExchangeAPI: "


def _exchange(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    return requires(
        "producer", f"exchange-{name}", DLPACK, TABLE + section, rule=rule, why=why, level=level
    )


@_exchange(
    "table",
    "header and required entries",
    "the table has major version 1 and all required entries",
    "consumers call through NULL",
)
def exchange_table_entries(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    needs(has_table(x), f"{type(x).__name__} has no __dlpack_c_exchange_api__")
    expect(exchange_table(type(x)), "it is not a capsule with a table of major version 1")
    table = table_of(x)
    expect(not table.missing, f"NULL: {', '.join(table.missing)}")
    return f"version {table.version[0]}.{table.version[1]}"


@_exchange(
    "values",
    "managed_tensor_from_py_object_no_sync",
    "the tensor says where the array's items are",
    "a consumer computes with other numbers",
)
def exchange_values(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    table = table_of(x)
    rows = numbered()
    base = lab.tensor_region(table.export(x).fields)
    lab.put(base, rows)
    own = host_values(x)
    expect(own in (None, [*flat(rows)]), f"the library itself reads {own}, the tensor says {rows}")
    told = []
    for what, take, wanted in slices(p, lab, x, rows):
        try:
            y = take()
        except NotApplicableError as reason:
            told.append(f"{what}: {reason}")
            continue
        try:
            taken = table.export(y)
        except Exception as refused:
            # Only negative strides may be refused.
            expect(wanted == rows[::-1], f"{what} of {rows}: refused: {refused}")
            told.append(f"{what}: refused: {refused}")
            continue
        seen = items(lab, lab.tensor_region(taken.fields), base)
        expect(seen == wanted, f"{what} of {rows}: {seen} is read")
        told.append(f"{what}: {seen}")
    return "; ".join(told)


@_exchange(
    "borrowed",
    "dltensor_from_py_object_no_sync",
    "the borrowed tensor has the same fields as the managed one",
    "kernels that borrow the tensor compute with other numbers",
)
def exchange_borrowed(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    table = table_of(x)
    needs(table.can_borrow, "the table has no such entry, which is optional")
    # A borrowed tensor has no place for the flag.
    needs(not table.export(x).fields.readonly, "the arrays are read-only")
    mine, theirs = table.borrow(x), table.export(x).fields
    for field in ("data", "byte_offset", "shape", "strides", "dtype", "device"):
        one, other = getattr(mine, field), getattr(theirs, field)
        expect(one == other, f"{field}: borrowed {one}, managed {other}")
    return "the same"


@_exchange(
    "stream",
    "current_work_stream",
    "the array is ready on the stream that the table names",
    "the consumer reads before the write is done",
)
def exchange_stream(p: ProducerAdapter, lab: Lab) -> str:
    for value in lab.values():
        late = p.late(lab, value)
        table = table_of(late.array)
        with p.on(late.stream):
            fields = table.export(late.array).fields
            stream = table.work_stream(*fields.device) or 1
        mine = lab.stream()
        lab.order(stream, mine.handle)
        named = f"the table names {lab.called(stream)}"
        seen = lab.expect_read(mine.handle, lab.tensor_region(fields), late, named)
    return seen


@_exchange(
    "pending-on-two",
    "current_work_stream",
    "the same when work on the array is pending on two streams",
    "the consumer reads before the write is done",
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


@_exchange(
    "owner",
    "managed_tensor_from_py_object_no_sync",
    "the managed tensor keeps the memory until its deleter is called, and then frees it",
    "memory is never freed, or freed while the consumer uses it",
)
def exchange_owner(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    alive, table = reference_to(x), table_of(x)
    taken = table.export(x)
    region = lab.tensor_region(taken.fields)
    lab.put(region, 5.0)
    del x
    for other in [made(p, lab) for _ in range(4)]:
        lab.put(lab.tensor_region(table.export(other).fields), 6.0)
    del other
    seen = lab.read(1, region)
    lab.wait(1)
    expect(set(flat(seen.value)) == {5.0}, f"with the array gone it holds {seen.value}")
    taken.delete()
    collect()
    expect(alive() is None, "the array is still there after the deleter")
    return "kept, and let go of"


@requires(
    "producer",
    "both-agree",
    DLPACK,
    "and CUDA Array Interface (Version 3): two descriptions of one array",
    rule="all protocols give the same pointer, shape, strides, type, device and read-only flag",
    why="two consumers compute with different arrays, or write to read-only memory",
)
def both_agree(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    spoken = (hasattr(x, name) for name in ("__cuda_array_interface__", "__dlpack__"))
    needs(has_table(x) or any(spoken), f"{type(x).__name__} speaks no protocol")
    needs(len(describe(x).said) > 1, "the arrays speak one protocol only")
    assert_equivalent(x, ignore=("stream", "malformed"))
    told = [" and ".join(describe(x).doors)]
    for what, take, _ in slices(p, lab, x, numbered()):
        try:
            y = take()
        except NotApplicableError as reason:
            told.append(f"{what}: {reason}")
            continue
        said = describe(y)
        if all(one.error is None for one in said):
            assert_equivalent(said, ignore=("stream", "malformed"))
            told.append(what)
    return "; ".join(told)
