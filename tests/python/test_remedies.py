"""Messages that name a remedy that works: the rows of `tests/data/remedies.toml`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import capsules
import pytest
import tables
from contract import CLASSES, each
from fakes import OnlyCai, interface

from cai_bridge import convert, from_cai, to_cai, to_dlpack


def torchs(name: str, make: Any, **members: Any) -> Any:
    """An object as torch has it, by its exchange API."""
    said = {"requires_grad": False, "is_neg": lambda _: False, "is_conj": lambda _: False}
    kind = tables.speaker(tables.table(make), **{**said, "layout": "torch.strided", **members})
    kind.__name__ = kind.__qualname__ = name
    return kind()


def refused(_: Any) -> int:
    """Torch's table fails for what has no strides."""
    return 0


def nothing(_: Any) -> Any:
    return capsules.HandMade(0, null=("data",))


def one(name: str, **members: Any) -> Any:
    return type(name, (), members)()


class Masked(OnlyCai):
    def __init__(self, cuda: Any) -> None:
        self.values, self.mask = (cuda.array([1.0] * 4, speaks="cai3") for _ in range(2))
        super().__init__(interface(self.values, mask=self.mask), keep=self)


def objects(cuda: Any) -> dict[str, Any]:
    x = cuda.array([1.0, 2.0])

    def part(*_: Any) -> Any:
        return x

    parts = {"values": part, "offsets": part}
    sparse = {"to_dense": part, "values": part}
    return {
        "a jagged tensor": torchs("NestedTensor", refused, layout="torch.jagged", **parts),
        "a nested tensor": torchs("Tensor", refused, is_nested=True, **parts),
        "a COO tensor": torchs(
            *("Tensor", refused), layout="torch.sparse_coo", coalesce=lambda x: x, **sparse
        ),
        "a CSR tensor": torchs("Tensor", refused, layout="torch.sparse_csr", **sparse),
        "a sparse matrix": one("csr_matrix", todense=part, data=x, indices=x),
        "a masked array": Masked(cuda),
        "a distributed tensor": torchs("DTensor", nothing, to_local=part),
        "a wrapper": torchs("TwoTensor", nothing, inner=x),
        "a wrapper without a table": one(
            "Sharded",
            __dlpack__=lambda _, **__: nothing(_).capsule(),
            __dlpack_device__=lambda _: (2, 0),
            to_local=lambda _: None,
            inner=x,
        ),
        "a stream on the legacy default one": one(
            "Stream", cuda_stream=0, __cuda_stream__=lambda _: (0, 0)
        ),
        "a tensor that autograd follows": tables.speaker(
            tables.table(lambda _: capsules.HandMade(x.ptr, owner=x)),
            stop_gradient=False,
            detach=part,
        )(),
    }


@each("remedies", "remedies")
def test_a_message_names_a_remedy_that_works(row, cuda):
    names = {
        "x": objects(cuda)[row["kind"]],
        "a": cuda.array([1.0], speaks=("dlpack", "cai3")),
        **{door.__name__: door for door in (to_cai, from_cai, to_dlpack, convert)},
    }
    with pytest.raises(CLASSES[row["class"]]) as refused:
        eval(row["call"], names)
    assert row["says"] in str(refused.value)
    assert row.get("without", "no such word") not in str(refused.value)
    assert eval(row["remedy"], names)


@each("remedies", "hidden")
def test_what_hides_a_library_is_named_by_its_path(row, tmp_path):
    made = tmp_path / row["made"]
    (made if row["made"].endswith("/") else made.parent).mkdir(exist_ok=True, parents=True)
    if not row["made"].endswith("/"):
        made.write_text("")
    program = f"from cai_bridge import convert; convert([], {row['to']!r})"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    place = str(tmp_path / row["path"])
    assert f"to: got the module {row['to']!r} of {place}, which is not the library" in ran.stderr
    assert "rename what hides it there, or run the program elsewhere" in ran.stderr
