"""DLPack's requirements on a consumer of capsules: it must read what the tensor describes."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab
from ..refusals import attempt
from ..requirement import needs
from .arrays import expect_read, expect_read_or_refused, expect_refused, takes
from .dlpack_lifetime import expect_deleted
from .layouts import handed

_dlpack = takes("dlpack", forms=False)
UNVERSIONED = "it asks for legacy capsules, which have no version"


@_dlpack("legacy")
def takes_dlpack_legacy(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    case = case.but(form="legacy")
    return expect_read(c, lab, handed(DLPackArray, lab, case), case)


@_dlpack("newer-minor", form="1.9")
@_dlpack("older-minor", form="1.0")
def takes_dlpack_minor(c: ConsumerAdapter, lab: Lab, case: Case, form: str) -> str:
    case = case.but(form=form)
    x = handed(DLPackArray, lab, case)
    told = expect_read(c, lab, x, case)
    needs(form in x.forms, UNVERSIONED)
    return told


@_dlpack("other-major")
def takes_dlpack_other_major(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, form="2.0")
    needs("2.0" in forms_asked(c, lab), UNVERSIONED)
    return expect_refused(c, lab, x, case, "version 2.0")


def forms_asked(c: ConsumerAdapter, lab: Lab) -> list[str]:
    """Return the forms that a consumer gets from a producer that has version 2.0."""
    x = DLPackArray(lab, form="2.0")
    attempt(c.take, x)
    return x.forms


@_dlpack("byte-offset")
def takes_dlpack_byte_offset(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case)
    told = expect_read(c, lab, x, case)
    legacy = case.but(form="legacy")
    if case.flag == "writable":
        y = handed(DLPackArray, lab, legacy, byte_offset=16 if told != "[]" else 0)
        expect_read(c, lab, y, legacy)
    return told


@_dlpack("null-strides")
def takes_dlpack_null_strides(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    told = expect_read(c, lab, handed(DLPackArray, lab, case), case)
    if case.flag == "writable":
        legacy = case.but(form="legacy")
        x = handed(DLPackArray, lab, legacy, null=("strides",))
        expect_read(c, lab, x, legacy)
    return told


@_dlpack("lanes", rests_on=("renamed", "refused-deleted"))
def takes_dlpack_lanes(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, lanes=4)
    told = expect_read_or_refused(c, lab, x, case)
    expect_deleted(lab, x, "with 4 lanes ")
    return told
