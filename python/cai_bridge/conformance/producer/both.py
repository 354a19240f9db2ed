"""The requirements on arrays that speak both protocols."""

from __future__ import annotations

from cai_bridge.testing import assert_equivalent, describe
from cai_bridge.testing._kit.description import Description

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import Door, needs
from ..stand_in import speaks
from .arrays import has_table, made
from .values import Reads, by_cai, by_dlpack, by_exchange, laid_out, said_or_refused

RESTS_ON = tuple(
    [f"cai-{name}" for name in ("entries", "shape", "typestr", "data", "strides", "values")]
    + ["cai-offset", "cai-reversed", "cai-zero-size", "cai-readonly", "cai-lazy"]
    + [f"dlpack-{name}" for name in ("dtype", "shape", "strides", "values", "offset", "reversed")]
    + ["dlpack-zero-size", "dlpack-readonly", "dlpack-lazy", "exchange-values", "exchange-readonly"]
)


@Door("producer", "both")("agree", rests_on=RESTS_ON)
def both_agree(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = made(p, lab)
    spoken = (hasattr(x, name) for name in ("__cuda_array_interface__", "__dlpack__"))
    needs(has_table(x) or any(spoken), f"{type(x).__name__} speaks no protocol")
    needs(len(describe(x).said) > 1, "the arrays speak one protocol only")
    y = laid_out(p, lab, case)
    doors: list[Reads] = [by_exchange] if has_table(y) else []
    doors += [by_cai] if speaks(y, "__cuda_array_interface__") else []
    doors += [by_dlpack] if speaks(y, "__dlpack__") else []
    said = [said_or_refused(door, y, case) for door in doors]
    assert_equivalent(Description(type(y).__name__, tuple(said)), ignore=("stream", "malformed"))
    return " and ".join(one.door for one in said)
