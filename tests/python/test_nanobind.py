"""nanobind's arrays, compiled here: their ``__dlpack__`` ignores the stream."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from cai_bridge import HostSyncWarning, from_cai, to_cai

nanobind = pytest.importorskip("nanobind")
COMPILER = shutil.which("c++")
HEADERS = Path(sysconfig.get_path("include"))
pytestmark = pytest.mark.skipif(
    COMPILER is None or not (HEADERS / "Python.h").exists(), reason="needs a C++ compiler"
)

SOURCE = """
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
namespace nb = nanobind;
NB_MODULE(made_by_nanobind, m) {
    m.def("array", [](uintptr_t address, size_t length, nb::object owner) {
        using Array = nb::ndarray<nb::array_api, float, nb::ndim<1>, nb::device::cuda>;
        size_t shape[1] = {length};
        return Array((void *) address, 1, shape, owner, nullptr, nb::dtype<float>(), 2, 0);
    });
    m.def("capsule", [](uintptr_t address, size_t length, nb::object owner) {
        using Array = nb::ndarray<float, nb::ndim<1>, nb::device::cuda>;
        size_t shape[1] = {length};
        return Array((void *) address, 1, shape, owner, nullptr, nb::dtype<float>(), 2, 0);
    });
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> Any:
    """An extension whose functions return arrays over memory that they are given."""
    folder = tmp_path_factory.mktemp("nanobind")
    source = folder / "made_by_nanobind.cpp"
    source.write_text(SOURCE)
    target = folder / f"made_by_nanobind{sysconfig.get_config_var('EXT_SUFFIX')}"
    own = Path(nanobind.include_dir()).parent
    includes = [own / "include", own / "ext" / "robin_map" / "include", HEADERS]
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run(
        [
            COMPILER,
            *flags,
            *(f"-I{folder}" for folder in includes),
            str(source),
            str(own / "src" / "nb_combined.cpp"),
            "-o",
            str(target),
        ],
        check=True,
        timeout=300,
    )
    spec = importlib.util.spec_from_file_location("made_by_nanobind", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_pending_is_there_whichever_stream_it_was_on(made: Any, cuda: Any) -> None:
    x, theirs, mine = cuda.array([0.0] * 4, speaks=()), cuda.stream("theirs"), cuda.stream("mine")
    theirs.fill(x, 7.0)
    # Once for a type: it says how to do without the wait.
    with pytest.warns(HostSyncWarning, match=r"from_cai\(to_cai\(x, stream=-1\), stream=\.\.\.\)"):
        view = to_cai(made.array(x.ptr, 4, x), stream=mine)
    seen = mine.read(view)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_the_stream_of_the_producer_is_named_by_the_way_that_the_refusal_says(
    made: Any, cuda: Any
) -> None:
    x, theirs, mine = cuda.array([0.0] * 4, speaks=()), cuda.stream("theirs"), cuda.stream("mine")
    theirs.fill(x, 7.0)
    array = made.array(x.ptr, 4, x)
    with pytest.raises(TypeError, match=r"from_cai\(to_cai\(x, stream=-1\), stream=\.\.\.\)"):
        from_cai(array, stream=theirs)
    cuda.clear_calls()
    seen = cuda.consumer("dlpack", mine).read(from_cai(to_cai(array, stream=-1), stream=theirs))
    assert "cuModuleUnload" not in {call.call for call in cuda.calls}
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_a_capsule_of_nanobinds_keeps_the_owner_and_lets_it_go_once(made: Any, cuda: Any) -> None:
    x = cuda.array([1.0] * 4, speaks=())
    view = to_cai(made.capsule(x.ptr, 4, x))
    assert (view.shape, view.ptr) == ((4,), x.ptr)
    seen = cuda.legacy.read(view)
    cuda.synchronize()
    del view
    assert seen.value == [1.0] * 4
