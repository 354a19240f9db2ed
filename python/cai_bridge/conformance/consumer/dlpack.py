"""What DLPack requires of who takes a capsule: what its tensor says is what is read."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab
from ..requirement import expect, needs
from .arrays import Refusal, attempt, expect_read, expect_read_or_refused, takes

_dlpack = takes("dlpack")


@_dlpack("legacy")
def takes_dlpack_legacy(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (2, 3, 4), form="legacy")
    return expect_read(c, x)


@_dlpack("newer-minor", form="1.9")
@_dlpack("older-minor", form="1.0")
def takes_dlpack_minor(c: ConsumerAdapter, lab: Lab, form: str) -> str:
    x = DLPackArray(lab, form=form)
    seen = c.values(c.copy(c.take(x)))
    needs(form in x.forms, "it asks for legacy capsules, which have no version")
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack("other-major")
def takes_dlpack_other_major(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, form="2.0")
    y = attempt(c.take, x)
    needs("2.0" in x.forms, "it asks for legacy capsules, which have no version")
    expect(isinstance(y, Refusal), "version 2.0 is taken")
    return f"{y}"


@_dlpack("byte-offset")
def takes_dlpack_byte_offset(c: ConsumerAdapter, lab: Lab) -> str:
    for form in (None, "legacy"):
        x = DLPackArray(lab, form=form, byte_offset=16)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} in the form {form or x.forms} is read as {seen}")
        y = DLPackArray(lab, form=form, byte_offset=16, layout="columns")
        seen = attempt(lambda: c.values(c.copy(c.take(y))))  # noqa: B023 - it is called at once
        told = isinstance(seen, Refusal) or y.holds(seen)
        expect(told, f"{y.values} of columns, in the form {form or y.forms}, is read as {seen}")
    return "read"


@_dlpack("null-strides")
def takes_dlpack_null_strides(c: ConsumerAdapter, lab: Lab) -> str:
    for form in ("legacy", "1.1"):
        x = DLPackArray(lab, form=form, null=("strides",))
        seen = expect_read(c, x, f"{x.values} in the form {form}")
    return seen


@_dlpack("lanes")
def takes_dlpack_lanes(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (3, 2), lanes=2)
    return expect_read_or_refused(c, x)
