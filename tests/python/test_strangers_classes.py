"""Classes of strangers: what a type says of its objects, and what becomes of that."""

import sys
import types

import capsules
import pytest
import tables
from contract import each
from fakes import interface

from cai_bridge import convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import describe


def descriptor(name, answer):
    """What answers, of a type with the name of one of CPython's own."""
    get = lambda self, one, kind: self if one is None else answer  # noqa: E731
    return type(name, (), {"__get__": get})()


def torchs(cuda, *bases, **members):
    """An object of a type that answers as torch's tensors do, by its exchange API."""
    x = cuda.array([1.0] * 4, speaks=())
    table = tables.table(lambda _: capsules.HandMade(x.ptr, owner=x, dtype=(5, 64, 1), shape=(2,)))
    members = {"requires_grad": False, "is_neg": lambda _: False, **members}
    return tables.speaker(table, *bases, **members)()


@each("strangers", "question")
def test_a_method_that_is_not_the_types_own_is_asked_as_python_does(row, cuda):
    x = eval(row["made"], {**globals(), "cuda": cuda})
    if "own" in row:
        x.is_conj = eval(row["own"])
    if row["answer"] == "yes":
        with pytest.raises(BufferError, match=r"^(conj|requires_grad): got"):
            to_cai(x)
    else:
        assert to_cai(x).shape == (2,)


class Questions:
    """torch, as far as it lets a class of tensors refuse every question, or not."""

    refuse = True

    def __enter__(self):
        type(self).refuse = False

    def __exit__(self, *_):
        type(self).refuse = True

    def __call__(self):
        return self


def wrapper(cuda, negated):
    x = cuda.array([1.0] * 4, speaks=())

    def refusing(answer):
        def ask(_):
            if Questions.refuse:
                raise TypeError("a ReadOnlyTensorWrapper is for export only")
            return answer

        return ask

    table = tables.table(lambda _: capsules.HandMade(x.ptr, owner=x, flags=capsules.READ_ONLY))
    members = {"requires_grad": property(refusing(False)), "is_conj": refusing(False)}
    members["is_neg"] = refusing(negated)
    return tables.speaker(table, __module__="torch.utils.dlpack", **members)()


def jaxs(cuda, **fields):
    x = cuda.array([1.0] * 4, speaks=())
    asked = {
        "__dlpack__": lambda _, **__: capsules.HandMade(x.ptr, owner=x, **fields).capsule(),
        "__dlpack_device__": lambda _: (2, 0),
    }
    return type("ArrayImpl", (), {"__module__": "jaxlib._jax", **asked})()


@each("strangers", "known")
def test_a_class_of_a_known_library_that_does_something_new(row, cuda, monkeypatch):
    torch = types.ModuleType("torch._C")
    torch.DisableTorchFunctionSubclass = Questions()
    monkeypatch.setitem(sys.modules, "torch._C", torch)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    x = eval(row["made"], {**globals(), "cuda": cuda})
    if "refused" in row:
        with pytest.raises(BufferError, match=f"^{row['refused']}: got"):
            to_cai(x)
    else:
        assert to_cai(x).readonly == row["readonly"]
    assert Questions.refuse, "as it was"


def ways(x, said):
    """What a class has for each way to speak; which one is asked is added to `said`."""

    def made(way):
        said.append(way)
        return capsules.HandMade(x.ptr, owner=x)

    def table(way):
        own = tables.speaker(tables.table(lambda _: made(way)))
        return {"__dlpack_c_exchange_api__": own.__dlpack_c_exchange_api__}

    cai = {"__cuda_array_interface__": property(lambda _: said.append("dict") or interface(x))}
    return {
        **{way: table(way) for way in ("exchange API", "another exchange API")},
        "__dlpack__": {"__dlpack__": lambda _, **__: made("__dlpack__").capsule()},
        "dict": cai,
    }


@each("strangers", "changed")
def test_a_class_that_is_changed_is_looked_at_again(row, cuda):
    x, said = cuda.array([1.0] * 4, speaks=()), list[str]()
    speaks = ways(x, said)
    kind = type("Changes", (), {})
    first, then = (
        {name: value for way in row[when] for name, value in speaks[way].items()}
        for when in ("first", "then")
    )
    for name, value in first.items():
        setattr(kind, name, value)
    one = kind()
    if first:
        assert to_cai(one).shape == (4,)
    else:
        with pytest.raises(TypeError, match="without a known"):
            to_cai(one)
    for name in first:
        delattr(kind, name)
    for name, value in then.items():
        setattr(kind, name, value)
    said.clear()
    if "refused" in row:
        with pytest.raises(TypeError, match=r"^object: got .* without a known"):
            to_cai(one)
    else:
        assert to_cai(one).shape == (4,)
        assert said == [row["by"]]


@pytest.mark.parametrize("speaks", ["cai", "dlpack"])
def test_an_array_that_is_a_dict_as_well_is_an_array(speaks, cuda):
    """As a record of a data frame may be."""
    x = cuda.array(shape=4, speaks=speaks)
    members = {
        "cai": {"__cuda_array_interface__": property(lambda _: interface(x))},
        "dlpack": {
            "__dlpack__": lambda _, **wishes: x.__dlpack__(**wishes),
            "__dlpack_device__": lambda _: (2, 0),
        },
    }
    named = type("Named", (dict,), members[speaks])(n=1)
    calls = [to_cai, to_dlpack, lambda x: convert([x], "cai")[0]]
    for call in [*calls, from_cai] if speaks == "cai" else calls:
        assert call(named).shape == (4,)
    (said,) = describe(named)
    assert (said.shape, said.error) == ((4,), None)


def test_a_dict_whose_class_has_none_of_it_is_a_dict(cuda):
    kind = type("Entries", (dict,), {"__dlpack__": None})
    (said,) = describe(kind(interface(x := cuda.array(shape=4))))
    assert (said.door, said.ptr) == ("CAI", x.ptr)
