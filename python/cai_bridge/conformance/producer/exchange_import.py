"""The requirements of DLPack's C exchange API on a table's imports, and on its errors."""

from __future__ import annotations

import contextlib
from typing import Any

from cai_bridge.testing._kit.dlpack_abi import SilentError

from ..adapter import ProducerAdapter
from ..cases import Case
from ..consumer.shapes import SHAPES
from ..lab import DLPackArray, Lab, flat
from ..refusals import ACCIDENTS
from ..requirement import NotApplicableError, UnmetError, expect, needs
from .arrays import collect, expect_freed, made, table_of
from .doors import exchange
from .values import PLAIN

FAILURES = (SilentError, NotImplementedError, BufferError, RuntimeError, TypeError, ValueError)


@exchange("to-object", rests_on=("table", "values"))
def exchange_to_object(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    with first_device(lab, case):
        table = table_of(made(p, lab))
    for form in IMPORTED:
        expect_imported(p, lab, table, case.but(form=form))
    if case == PLAIN:
        expect_lanes_imported(lab, table)
    return "its items, its memory, and deleted once"


IMPORTED = ("newest", "shifted", "copied", "1.9")
"""The forms of the tensors that a table must import."""


def expect_imported(p: ProducerAdapter, lab: Lab, table: Any, case: Case) -> None:
    """Give a tensor to a table, and judge the array that the table makes.

    Raises
    ------
    UnmetError
        The array has other items, or the tensor is deleted too early, too often or never.
    """
    shape, layout = SHAPES[case.layout]
    x = DLPackArray(lab, shape, case.dtype, layout=layout, form=case.form)
    tensor = x.tensor(case.form if case.form == "1.9" else "1.3")
    try:
        with first_device(lab, case):
            y = table.to_object(tensor.hand_out())
    except ACCIDENTS:
        raise
    except Exception as refused:
        raise NotApplicableError(f"refused: {type(refused).__name__}: {refused}") from refused
    fields = table.export(y).fields
    device = lab.device
    expect(fields.device == device, f"a tensor on {device} becomes an array on {fields.device}")
    lab.synchronize()
    collect()
    if fields.ptr == x.region.ptr:
        expect(tensor.deleted == 0, "the tensor is deleted while its array is there")
    seen = lab.get(lab.tensor_region(fields))
    expect(x.holds(seen), f"a tensor of {x.values} becomes an array of {seen}")
    part = part_of(p, y)
    shared = part is not None and is_inside(lab, table.export(part).fields.ptr, x)
    del y
    lab.synchronize()
    collect()
    if shared:
        expect(tensor.deleted == 0, "the tensor is deleted while a slice of its array is there")
        again = table.export(part)
        del part
        collect()
        expect(tensor.deleted == 0, "the tensor is deleted while its array is handed on")
        again.delete()
    part = None
    lab.synchronize()
    collect()
    if not tensor.deleted:
        made(p, lab)  # the library may call the deleter at the next allocation
    lab.soon(lambda: tensor.deleted > 0)
    expect(tensor.deleted == 1, f"the tensor was deleted {tensor.deleted} times")


def first_device(lab: Lab, case: Case) -> contextlib.AbstractContextManager[None]:
    """Make the first device current, if the case's current device is another one."""
    return lab.on_device(0) if case.around == "another device" else contextlib.nullcontext()


def expect_lanes_imported(lab: Lab, table: Any) -> None:
    """Give a table a tensor of four-item vectors, and judge the array that it makes, if any.

    Raises
    ------
    UnmetError
        The array has other items.
    """
    x = DLPackArray(lab, (2, 4), lanes=4)
    try:
        fields = table.export(table.to_object(x.tensor("1.3").hand_out())).fields
    except Exception:
        return  # refused, or the array cannot be read
    shape, strides, lanes = fields.shape or (), fields.strides, fields.dtype[2]
    if lanes > 1:
        right = (shape, lanes, fields.ptr) == ((2,), 4, x.region.ptr)
        expect(right, f"two vectors of four items become {shape} of {lanes}")
        return
    seen = [*flat(lab.get(lab.tensor_region(fields)))]
    expect(seen == [*flat(x.values)], f"two vectors of {x.values} become {seen}, of {strides}")


def is_inside(lab: Lab, ptr: int, x: DLPackArray) -> bool:
    """Return whether an address is in an array's memory: a slice may be a copy."""
    del lab
    return x.memory.ptr <= ptr < x.memory.ptr + len(x.contents())


def part_of(p: ProducerAdapter, y: Any) -> Any:
    """Take a slice of an imported array; None if the library cannot."""
    try:
        return p.taken(y, ("index", (slice(1, None),)))
    except Exception:
        return None


@exchange("allocator", rests_on=("table",))
def exchange_allocator(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    del case
    x = made(p, lab)
    table = table_of(x)
    prototype = table.export(x)
    told = []
    for shape in ((3, 4), (5,), (), (2, 1, 3, 2)):
        taken = _allocated(table, made(p, lab, shape))
        fields = taken.fields
        expect((fields.shape or ()) == shape, f"for {shape} it makes {fields.shape}")
        wanted = prototype.fields
        expect(fields.dtype == wanted.dtype, f"for {wanted.dtype} it makes {fields.dtype}")
        expect(fields.device == wanted.device, f"for {wanted.device} it makes {fields.device}")
        other = _allocated(table, made(p, lab, shape))
        regions = [lab.tensor_region(one.fields) for one in (taken, other)]
        for value, region in zip((1.0, 2.0), regions, strict=True):
            lab.put(region, value)
        expect(regions[0].ptr != regions[1].ptr, "two tensors are in the same memory")
        told.append(f"{shape}")
        other.delete()
        taken.delete()
    for device in {CPU_DEVICE, (63, 0)} - {prototype.fields.device}:
        told += [f"on {device} {_odd(lab, table, prototype, device=device)}"]
    if has_two(lab):
        told += [f"on another GPU {_odd(lab, table, prototype, device=(2, 1))}"]
    expect_freed(lab, lambda: _allocated(table, x), "to allocate")
    told += [f"of an unknown type {_odd(lab, table, prototype, code=99)}"]
    return f"made {', '.join(told)}"


CPU_DEVICE = (1, 0)


def has_two(lab: Lab) -> bool:
    """Return whether a lab has two devices."""
    try:
        with lab.on_device(1):
            return True
    except NotApplicableError:
        return False


def _odd(lab: Lab, table: Any, like: Any, **wishes: Any) -> str:
    """Have a table allocate a tensor that it may refuse, by `SetError`."""
    try:
        taken = table.allocate(like, **wishes)
        fields = taken.fields
    except SilentError as silent:
        raise UnmetError(f"for {wishes} the allocator fails without an error: {silent}") from None
    except FAILURES as refused:
        return f"refused: {refused}"
    asked, made_of = wishes.get("device", fields.device), fields.device
    expect(made_of == asked, f"for {wishes} it makes a tensor of {made_of}")
    found = lab.device_of(fields.ptr)
    expect(found in (None, made_of), f"for {wishes} it makes memory of {found}")
    code = wishes.get("code", fields.dtype[0])
    expect(fields.dtype[0] == code, f"for {wishes} it makes a tensor of {fields.dtype}")
    return "made"


def _allocated(table: Any, like: Any) -> Any:
    try:
        return table.allocate(table.export(like))
    except FAILURES as refused:
        raise NotApplicableError(f"refused: {type(refused).__name__}: {refused}") from refused


@exchange("errors", rests_on=("table",))
def exchange_errors(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    del case
    x = made(p, lab)
    table = table_of(x)
    # A device and a type that no library has.
    odd = DLPackArray(lab, device=(63, 0)), DLPackArray(lab, code=99)
    tried: list[tuple[str, Any]] = [
        ("the allocator", lambda: table.allocate(table.export(x), device=(63, 0))),
        *(("to_py_object", lambda one=one: _refused_tensor(table, one)) for one in odd),
        *((f"from_py_object of a {name}", lambda y=y: table.export(y)) for name, y, _ in lazy(p)),
    ]
    if not lab.timed:
        # A table in C may take any object for its own.
        tried.append(("from_py_object of an int", lambda: table.export_any(3)))
    told = []
    for name, call in tried:
        try:
            call()
        except SilentError as silent:
            expect(False, f"{name} {silent}")
        except Exception as error:
            told.append(f"{name}: {type(error).__name__}")
    needs(told, "none of its functions failed")
    return ", ".join(told)


def _refused_tensor(table: Any, x: DLPackArray) -> Any:
    tensor = x.tensor("1.3")
    return table.to_object(tensor.hand_out())


def lazy(p: ProducerAdapter) -> list[tuple[str, Any, Any]]:
    """List the adapter's lazy arrays, if it has any."""
    try:
        return [one for one in p.lazy() if not isinstance(one[1], Exception)]
    except NotApplicableError:
        return []
