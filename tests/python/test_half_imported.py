"""A library that another thread is importing: until it is whole, nobody asks it."""

import importlib
import sys
import threading
from pathlib import Path

import pytest

from cai_bridge import _core, convert, from_cai, to_cai

HALF = """
import _half_imported
_half_imported.begun.set()
assert _half_imported.go_on.wait(60)
SUPPORTED_NODES = {}
tree_flatten = lambda x, is_leaf: ([x], None)
treedef_is_leaf = lambda shape: True
"""
# The modules that the bridge asks once they are imported. The rest of their packages is empty.
MODULES = [
    "cupy",
    "cupy_backends.cuda.stream",
    "jax",
    "jax.tree_util",
    "jaxlib._jax",
    "numba.cuda.cudadrv.driver",
    "torch",
    "torch.utils._pytree",
    "tvm_ffi",
    "warp",
    "warp._src.context",
]


class NotKnown:
    """No container that the bridge knows by itself."""


@pytest.fixture(params=MODULES)
def half(request, tmp_path, monkeypatch):
    """A library whose import by another thread has begun, and does not go on."""
    name = request.param
    package = name.partition(".")[0]
    for known in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, known)
    folder = tmp_path
    *around, last = name.split(".")
    for part in around:
        folder /= part
        folder.mkdir()
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(HALF)
    monkeypatch.syspath_prepend(tmp_path)
    control = type(sys)("_half_imported")
    vars(control).update(begun=threading.Event(), go_on=threading.Event())
    monkeypatch.setitem(sys.modules, "_half_imported", control)
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    try:
        assert control.begun.wait(60)
        yield name
    finally:
        control.go_on.set()
        thread.join()
        for known in [one for one in sys.modules if one.partition(".")[0] == package]:
            del sys.modules[known]


def test_a_half_made_module_is_not_there(half):
    assert half in sys.modules
    assert _core._imported(half) is None
    sys.modules["_half_imported"].go_on.set()
    module = importlib.import_module(half)
    assert _core._imported(half) is module


@pytest.mark.usefixtures("half")
def test_trees_are_converted_and_arrays_end_meanwhile(cuda):
    x = cuda.array([1.0], speaks=("dlpack", "cai"))
    made = convert({"a": [x], "b": NotKnown()}, "dlpack")
    assert made["a"][0].ptr == x.ptr
    with to_cai(x, stream=cuda.stream("named")) as view:
        assert view.__cuda_array_interface__["data"][0] == x.ptr
    from_cai(x).__dlpack__(stream=cuda.stream("other"))


def test_no_other_module_is_asked_for():
    package = Path(_core.__file__).parent
    ours = ["_cli", "testing", "conformance"]
    for file in package.rglob("*.py"):
        if file.relative_to(package).parts[0] not in ours and file.name != "_events.py":
            assert "sys.modules" not in file.read_text(), f"{file}: by _imported alone"
