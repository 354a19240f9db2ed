"""What the CUDA Array Interface requires of the stream that a dict names while work is pending."""

from __future__ import annotations

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from .arrays import cai_of, made
from .cai import cai
from .pending import RACE, by_dict, expect_ordered, expect_read_first, writes

SYNCHRONIZATION = "Synchronization: Interface Requirements: "
SUFFICIENT = SYNCHRONIZATION + "synchronization on the provided stream is sufficient"
READABLE = (
    "entries",
    "data",
    "typestr",
    "shape",
    "strides",
    "values",
    "offset",
    "stream",
    "version",
)
PENDING = (*READABLE, "pending")
EXPORTS = ("first", "again", "between writes")


@cai(
    "pending",
    SUFFICIENT,
    "while work on the array is pending on the library's current stream, the dict names a "
    "stream that is behind it",
    RACE,
    over=writes(("its own", "moved"), EXPORTS),
    rests_on=READABLE,
)
def cai_pending(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    cai_of(made(p, lab))
    return expect_ordered(p, lab, case, by_dict)


@cai(
    "pending-default",
    SUFFICIENT,
    "the same while the work is pending on a default stream: None and 0 say that there is none",
    RACE,
    over=writes(("default",), EXPORTS),
    rests_on=PENDING,
)
def cai_pending_default(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    cai_of(made(p, lab))
    return expect_ordered(p, lab, case, by_dict)


@cai(
    "pending-read",
    SUFFICIENT,
    "the same while the library still reads the array: a read is work, too",
    "the consumer writes before the read is done",
    over={"stream": ("its own", "default"), "export": ("first", "again")},
    rests_on=(*PENDING, "pending-default"),
)
def cai_pending_read(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    cai_of(made(p, lab))
    return expect_read_first(p, lab, case, by_dict)
