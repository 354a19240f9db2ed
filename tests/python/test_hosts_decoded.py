"""Arrays in the host's memory: the rows of `tests/data/hosts.toml`, by stand-ins and by libraries.

`make test-clients` installs the libraries.
"""

import ctypes
import gc
import sys
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from capsules import IS_COPIED, HandMade
from contract import ALLOWED, each
from fakes import Bits

from cai_bridge import convert

CODES = {"float32": (2, 32), "bfloat16": (4, 16), "float8_e4m3fn": (10, 8)}
CPU = 1, 0


class Host:
    """An array on the host: NumPy's `memory`, handed out as `hands_out` does."""

    def __init__(self, memory, hands_out=None, dtype=None):
        self.memory, self.hands_out = memory, hands_out
        if dtype is not None:
            self.dtype = dtype

    def __dlpack__(self, *, max_version=None):
        if self.hands_out is None:
            return self.memory.__dlpack__(max_version=max_version)
        return self.hands_out(self.memory)

    def __dlpack_device__(self):
        return CPU

    def __array__(self, *_, **__):
        raise AssertionError("an array that is decoded by no capsule")


class Tensor(Bits, Host):
    """The same of a library like PyTorch."""

    def detach(self):
        return Host(self.memory)


def tensor(**bits):
    made = Tensor(np.array([1, 2], "float32"))
    vars(made).update(bits)
    return made


def refuses(error):
    return mock.Mock(side_effect=error)


def by_hand(dtype="float32", **fields):
    """An array whose tensor is made by hand."""
    memory = np.array([1, 2], dtype=getattr(ml_dtypes, dtype, dtype))

    def hands_out(memory):
        said = {"shape": (2,), "dtype": (*CODES[dtype], 1), "device": CPU, **fields}
        return HandMade(memory.ctypes.data, owner=memory, **said).capsule()

    return Host(memory, hands_out)


def as_bits(dtype, bits):
    return Host(np.array([1, 2], getattr(ml_dtypes, dtype)).view(bits), dtype=f"paddle.{dtype}")


def read_only(memory):
    memory.flags.writeable = False
    return memory


class Immutable(Host):
    """An array of a library that never changes its arrays."""

    __module__ = "jaxlib"
    __dlpack__ = Host.__dlpack__


class Variable:
    """An object that has the methods of another's array, as flax's variables have."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


class NoNullsError(TypeError):
    """As pyarrow's."""


STAND_INS = {
    "float32": lambda: Host(np.array([1, 2], "float32")),
    "every second": lambda: Host(np.array([1, 9, 2], "float32")[::2]),
    "unused stride": lambda: by_hand(shape=(1,), strides=(-1,)),
    "unused strides": lambda: by_hand(shape=(0, 3), strides=(-4, -4)),
    "negative bit": lambda: tensor(_neg=True),
    "conjugate bit": lambda: tensor(_conj=True),
    "gradient": lambda: tensor(_grad=True),
    "sparse": lambda: tensor(layout="torch.sparse_coo", hands_out=refuses(RuntimeError("sparse"))),
    "NULL pointer": lambda: by_hand(null=["data"]),
    "bfloat16": lambda: by_hand("bfloat16"),
    "float8_e4m3fn": lambda: by_hand("float8_e4m3fn"),
    "bfloat16 as uint16": lambda: as_bits("bfloat16", "u2"),
    "float8_e4m3fn as int8": lambda: as_bits("float8_e4m3fn", "i1"),
    "legacy capsule": lambda: by_hand(form="legacy"),
    "NumPy's bfloat16": lambda: np.array([1, 2], ml_dtypes.bfloat16),
    "NumPy's float8_e5m2": lambda: np.array([1, 2], ml_dtypes.float8_e5m2),
    "NumPy's float8_e3m4": lambda: np.array([1, 2], ml_dtypes.float8_e3m4),
    "nulls": lambda: Host(None, refuses(NoNullsError(NULLS))),
    "read-only": lambda: Host(read_only(np.array([1, 2], "float32"))),
    "stands for a read-only array": lambda: Variable(Immutable(np.array([1, 2], "float32"))),
    "mask": lambda: np.ma.array([1.0, 2.0], mask=[False, True]),
    "a copy": lambda: by_hand(flags=IS_COPIED),
    "a GPU's memory": lambda: by_hand(device=(2, 0)),
    "a later DLPack": lambda: by_hand(form="2.0"),
    "no capsule": lambda: Host(None, lambda _: 0x5500),
}
NULLS = "Can only use DLPack on arrays with no nulls."


def fake_tensor(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def dtensor(torch):
    from torch import distributed
    from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor

    if not distributed.is_initialized():
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return distribute_tensor(torch.ones(2), DeviceMesh("cpu", [0]), [Replicate()])


@pytest.fixture(params=["stand-in", "library"])
def made(request, row):
    """What makes the array of a row."""
    if request.param == "stand-in":
        return STAND_INS[row["kind"]]
    if "real" not in row:
        pytest.skip("a stand-in alone")
    pytest.importorskip(row["library"], exc_type=ImportError)
    name = row["library"].partition(".")[0]
    names = {"np": np, name: sys.modules[name], "dtensor": dtensor, "fake_tensor": fake_tensor}
    return lambda: eval(row["real"], {**names, "read_only": read_only})


@pytest.fixture(params=["numpy", "torch", "jax", "tvm_ffi"])
def to(request):
    """The library that makes its array of it."""
    pytest.importorskip(request.param, exc_type=ImportError)
    return request.param


pytestmark = [
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def is_own(x, to):
    """Whether it is an array of that library itself, which comes back as it is."""
    return isinstance(x, np.ndarray) if to == "numpy" else type(x).__module__.split(".")[0] in to


def memory_of(array, to):
    """The type, values and address of a library's array, read without the bridge."""
    if to == "jax":
        array = np.asarray(array)
    if to == "numpy" or isinstance(array, np.ndarray):
        return array.dtype.name, array.astype("float32").tolist(), array.ctypes.data
    name = str(array.dtype).removeprefix("torch.")
    if to == "torch":
        return name, array.float().tolist(), array.data_ptr()
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if not array.shape[0]:
        return name, [], 0
    count = (array.shape[0] - 1) * array.strides[0] + 1
    read = np.frombuffer(ctypes.string_at(array.data_ptr(), count * dtype.itemsize), dtype)
    return name, read[:: array.strides[0]].astype("float32").tolist(), array.data_ptr()


def ways(x, to, **wishes):
    """The ways that an array goes: alone, and as a part of a tree."""
    return {
        "": lambda: convert(x, to, **wishes),
        'x["a"][1]: ': lambda: convert({"a": (0, x)}, to, **wishes)["a"][1],
    }


@each("hosts", "array")
def test_an_array_on_the_host_has_its_values_or_is_refused(row, to, made):
    x = made()
    for copy in (None, True):
        if is_own(x, to) and not (copy and to != "numpy"):
            continue
        for where, go in ways(x, to, copy=copy).items():
            if "raises" in row:
                with pytest.raises(Exception, match=row["raises"]) as raised:
                    go()
                assert isinstance(raised.value, TypeError)
            elif kind := refusal(row, to, copy):
                with pytest.raises((BufferError, ValueError)) as refused:
                    go()
                assert str(refused.value).startswith(where)
                allowed = {ALLOWED[kind], ALLOWED[row.get("of_library", kind)]}
                assert str(refused.value).rpartition("allowed: ")[2] in allowed
            else:
                name, values, _ = memory_of(go(), to)
                assert (name, values) == (row["dtype"], row["values"])
    if row.get("readonly") and not is_own(x, to):
        for go in ways(x, to, readonly=False).values():
            assert memory_of(go(), to)[1] == row["values"]
    for copy in (True,) if is_own(x, to) else (None, True):
        for go in ways(x, to, detach=True, copy=copy).values() if "detached" in row else ():
            assert memory_of(go(), to)[:2] == (row["dtype"], row["detached"])


def refusal(row, to, copy):
    """The kind of the refusal, if there is one."""
    if "refused" in row:
        return str(row["refused"])
    if row.get("lacking") == to:
        return "DtypeConverted"
    if row.get("gaps") and to == "jax" and not copy:
        return "StridesNotCompact"
    writes = to in {"torch", "tvm_ffi"}
    return "ReadOnlyConverted" if row.get("readonly") and writes and not copy else None


@each("hosts", "array", dtype="float32")
def test_no_copy_is_made_but_where_it_is_asked_for(row, to, made):
    x = made()
    if not row.get("values") or is_own(x, to) or refusal(row, to, None):
        return
    first, again, copied = convert(x, to), convert([x], to)[0], convert(x, to, copy=True)
    same = memory_of(first, to)[2] == memory_of(again, to)[2]
    # JAX copies what is not aligned as it wants it.
    assert same or to == "jax"
    assert memory_of(copied, to)[2] != memory_of(first, to)[2]
    if to == "numpy":
        may_not_say = row.get("readonly", False) or row.get("silent", False)
        assert first.flags.writeable is not may_not_say
        assert copied.flags.writeable
        assert convert(x, to, readonly=False).flags.writeable


@each("hosts", "numpys")
def test_what_numpys_dlpack_has_no_word_for_is_refused_in_our_words(row, to):
    if to == "numpy":
        pytest.skip("NumPy's own")
    x = eval(row["array"], {"np": np})
    for copy in (None, True, False):
        if copy and "copied" in row:
            assert memory_of(convert(x, to, copy=True), to)[1] == row["copied"]
            continue
        with pytest.raises(BufferError, match=r": got .+; allowed: ") as refused:
            convert(x, to, copy=copy)
        assert str(refused.value).endswith(f"allowed: {ALLOWED[row['refused']]}")
        assert refused.value.__cause__ is not None


def test_a_capsule_of_the_hosts_memory_is_taken_alone(to):
    for copy in (None, True):
        capsule = np.array([1, 2], "float32").__dlpack__(max_version=(1, 0))
        assert memory_of(convert(capsule, to, copy=copy), to)[1] == [1.0, 2.0]
        with pytest.raises(ValueError, match="capsule: got a consumed one"):
            convert(capsule, to)
    capsule = np.array([1, 2], "float32").__dlpack__()
    with pytest.raises(BufferError, match=r"^x\[0\]: device: got CPU memory .+ in a capsule"):
        convert([capsule], to)
    assert memory_of(convert(capsule, to, readonly=False), to)[1] == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["a copy", "NULL pointer", "a later DLPack", "negative extent"])
def test_a_refused_capsule_of_the_hosts_memory_is_not_consumed(kind, to):
    stand_in = STAND_INS.get(kind) or (lambda: by_hand(shape=(-2,)))
    capsule = stand_in().__dlpack__()
    name = repr(capsule).split()[2]
    with pytest.raises((BufferError, ValueError)):
        convert(capsule, to, copy=True)
    assert repr(capsule).split()[2] == name == '"dltensor_versioned"'


def test_the_memory_is_kept_as_long_as_the_librarys_array(to):
    given = []

    def hands_out(memory):
        fields = {"shape": (16,), "device": CPU, "owner": memory}
        given.append(HandMade(memory.ctypes.data, **fields))
        return given[0].capsule()

    # On a boundary of 64 bytes, or JAX copies.
    block = np.zeros(128, "u1")
    start = -block.ctypes.data % 64
    arrays = [convert(Host(block[start : start + 64].view("float32"), hands_out), to)]
    gc.collect()
    assert given[0].deleted == 0
    arrays.clear()
    gc.collect()
    assert given[0].deleted == 1
