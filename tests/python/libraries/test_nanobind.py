"""Extensions by nanobind and pybind11, compiled here.

nanobind's own arrays ignore the stream of ``__dlpack__``.
"""

from __future__ import annotations

import gc
import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import cai_bridge
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


PROGRAMS = Path(__file__).parents[3] / "docs" / "programs"


def compiled(target: Path, sources: list[Path], includes: list[Path]) -> Path:
    """Build an extension of the sources."""
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-fvisibility=hidden"]
    folders = [f"-I{folder}" for folder in (*includes, HEADERS, cai_bridge.get_include())]
    built = target.with_name(target.name + str(sysconfig.get_config_var("EXT_SUFFIX")))
    command = [str(COMPILER), *flags, *folders, *map(str, sources), "-o", str(built)]
    subprocess.run(command, check=True, timeout=300)
    return built


def module_of(name: str, target: Path) -> Any:
    """Import the module `name` of a library."""
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def by_nanobind(tmp_path_factory: Any) -> Path:
    """A library of two modules: the one below, and the page's."""
    folder = tmp_path_factory.mktemp("nanobind")
    (folder / "made.cpp").write_text(SOURCE)
    own = Path(nanobind.include_dir()).parent
    sources = [folder / "made.cpp", PROGRAMS / "with_nanobind.cpp", own / "src" / "nb_combined.cpp"]
    return compiled(folder / "both", sources, [own / "include", own / "ext/robin_map/include"])


@pytest.fixture(scope="module")
def made(by_nanobind: Path) -> Any:
    """An extension whose functions return arrays over memory that they are given."""
    return module_of("made_by_nanobind", by_nanobind)


@pytest.fixture(params=["nanobind", "pybind11"])
def page(request: Any, tmp_path_factory: Any) -> Any:
    """The extension that the page shows."""
    if request.param == "nanobind":
        return module_of("with_nanobind", request.getfixturevalue("by_nanobind"))
    pybind11 = pytest.importorskip("pybind11")
    folder = tmp_path_factory.mktemp("pybind11")
    source, includes = PROGRAMS / "with_pybind11.cpp", [Path(pybind11.get_include())]
    return module_of("with_pybind11", compiled(folder / "with_pybind11", [source], includes))


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_an_extension_by_the_table_is_in_order_and_raises(
    page: Any, cuda: Any, speaks: str
) -> None:
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    seen = []
    with cuda.current_stream(theirs):
        for value in range(3):
            x = cuda.array([0.0] * 4, speaks=speaks, stream=theirs, memory="pool")
            theirs.fill(x, float(value))
            page.apply(x, mine.handle, lambda _, x=x: seen.append(mine.read(x)))
            del x
            gc.collect()
        with pytest.raises(TypeError, match="object"):
            page.apply(3, mine.handle, seen.append)
        x = cuda.array([0.0], speaks=speaks, stream=theirs)
        with pytest.raises(ZeroDivisionError):
            page.apply(x, mine.handle, lambda _: 1 / 0)
    cuda.synchronize()
    assert [one.value for one in seen] == [[float(value)] * 4 for value in range(3)]


def test_new_memory_of_an_extension_is_ready_and_freed_in_order(
    by_nanobind: Any, cuda: Any
) -> None:
    page = module_of("with_nanobind", by_nanobind)
    theirs, work, mine = (cuda.stream(name) for name in ("theirs", "the extension's", "mine"))
    with cuda.current_stream(theirs):
        x = cuda.array([0.0] * 4, speaks="exchange", stream=theirs, memory="pool")
        theirs.fill(x, 3.0)
        allocate = lambda: cuda.array(shape=4, speaks=(), stream=work, memory="pool")  # noqa: E731
        read = []

        def launch(_: int, out: Any) -> None:
            read.append(work.read(x))
            work.fill(out, 6.0)

        view = to_cai(page.doubled(x, work.handle, allocate, launch), stream=mine)
        seen = mine.read(view)
        with pytest.raises(ZeroDivisionError):
            page.doubled(x, work.handle, lambda: 1 / 0, launch)
        with pytest.raises(AttributeError):
            page.doubled(x, work.handle, list, lambda *_: None)
        theirs.fill(x, 9.0)
        view.release()
        del view
        gc.collect()
        again = allocate()
        work.fill(again, 1.0)
        cuda.synchronize()
    assert ([one.value for one in read], seen.value) == ([[3.0] * 4], [6.0] * 4)


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
