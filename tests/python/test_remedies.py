"""Messages that name a remedy that works: the rows of `tests/data/remedies.toml`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
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


def refusing(_: Any) -> int:
    """Fail, as torch's table does for what has no strides."""
    return 0


def part(cuda: Any) -> Any:
    return lambda *_: cuda.array([1.0, 2.0])


def nothing(_: Any) -> Any:
    return capsules.HandMade(0, null=("data",))


def without_a_table(cuda: Any) -> Any:
    members = {
        "__dlpack__": lambda _, **__: nothing(_).capsule(),
        "__dlpack_device__": lambda _: (2, 0),
        "to_local": lambda _: None,
        "inner": cuda.array([1.0]),
    }
    return type("Sharded", (), members)()


class Masked(OnlyCai):
    def __init__(self, cuda: Any) -> None:
        self.values, self.mask = (
            cuda.array([1.0] * 4, speaks="cai3"),
            cuda.array(shape=4, speaks="cai3"),
        )
        super().__init__(interface(self.values, mask=self.mask), keep=self)


class Stream:
    """A library's stream, on the legacy default one."""

    cuda_stream = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


def followed(cuda: Any) -> Any:
    x = cuda.array([1.0] * 4)
    table = tables.table(lambda _: capsules.HandMade(x.ptr, owner=x))
    return tables.speaker(table, stop_gradient=False, detach=lambda _: x)()


OBJECTS: dict[str, Any] = {
    "a jagged tensor": lambda cuda: torchs(
        "NestedTensor", refusing, layout="torch.jagged", values=part(cuda), offsets=part(cuda)
    ),
    "a nested tensor": lambda cuda: torchs(
        "Tensor", refusing, is_nested=True, values=part(cuda), offsets=part(cuda)
    ),
    "a COO tensor": lambda cuda: torchs(
        *("Tensor", refusing),
        layout="torch.sparse_coo",
        to_dense=part(cuda),
        coalesce=lambda x: x,
        values=part(cuda),
    ),
    "a CSR tensor": lambda cuda: torchs(
        "Tensor", refusing, layout="torch.sparse_csr", to_dense=part(cuda), values=part(cuda)
    ),
    "a sparse matrix": lambda cuda: type(
        "csr_matrix",
        (),
        {"todense": part(cuda), "data": cuda.array([1.0]), "indices": cuda.array([1.0])},
    )(),
    "a masked array": Masked,
    "a distributed tensor": lambda cuda: torchs("DTensor", nothing, to_local=part(cuda)),
    "a wrapper": lambda cuda: torchs("TwoTensor", nothing, inner=cuda.array([1.0])),
    "a wrapper without a table": without_a_table,
    "a stream on the legacy default one": lambda cuda: Stream(),
    "a tensor that autograd follows": followed,
}


@each("remedies", "remedies")
def test_a_message_names_a_remedy_that_works(row: Any, cuda: Any) -> None:
    names = {
        "x": OBJECTS[row["kind"]](cuda),
        "a": cuda.array([1.0], speaks=("dlpack", "cai3")),
        **{door.__name__: door for door in (to_cai, from_cai, to_dlpack, convert)},
    }
    with pytest.raises(CLASSES[row["class"]]) as refused:
        eval(row["call"], names)
    assert row["says"] in str(refused.value)
    assert row.get("without", "no such word") not in str(refused.value)
    assert eval(row["remedy"], names)


@each("remedies", "hidden")
def test_what_hides_a_library_is_named_by_its_path(row: Any, tmp_path: Path) -> None:
    made = tmp_path / row["made"]
    (made if row["made"].endswith("/") else made.parent).mkdir(exist_ok=True, parents=True)
    if not row["made"].endswith("/"):
        made.write_text("")
    program = f"""
        from cai_bridge import convert
        from cai_bridge.testing import simulated_cuda
        with simulated_cuda() as cuda:
            x = cuda.array([1.0])
            try:
                convert(x, {row["to"]!r})
            except ImportError as error:
                print(error)
    """
    text = "\n".join(line[8:] for line in program.splitlines())
    ran = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place = str(tmp_path / row["path"])
    assert f"to: got the module {row['to']!r} of {place}, which is not the library" in ran.stdout
    assert "rename what hides it there, or run the program elsewhere" in ran.stdout
