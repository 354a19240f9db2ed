"""What known libraries do that their protocols do not say: the table, and what is made of it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from cai_bridge import HostSyncWarning, _core, from_cai, to_cai

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("row", _core._habits(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_each_row_names_the_test_that_shows_it(row: tuple[str, str, str, str]) -> None:
    library, habit, version, test = row
    assert (TESTS / test).is_file(), f"{library}: {habit}, seen on {version}"
    assert version[0].isdigit()


def numbas(array: Any, named: Any, **members: Any) -> Any:
    """An array as Numba has it: its dict names no stream, or 0, for the default one."""
    interface = {**array.__cuda_array_interface__, "stream": named}
    members["__cuda_array_interface__"] = property(lambda _: interface)
    made = type("DeviceNDArray", (), {"__module__": "numba.cuda.cudadrv.devicearray", **members})()
    made.keep = array
    return made


@pytest.mark.parametrize("named", [None, 0])
@pytest.mark.parametrize("per_thread", [False, True])
def test_numbas_default_stream_is_the_one_that_its_setting_says(
    named: Any, per_thread: bool, cuda: Any, monkeypatch: Any
) -> None:
    module = types.ModuleType("numba.cuda")
    module.config = types.SimpleNamespace(CUDA_PER_THREAD_DEFAULT_STREAM=int(per_thread))
    monkeypatch.setitem(sys.modules, "numba.cuda", module)
    default = cuda.per_thread if per_thread else cuda.legacy
    mine = cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks="cai3")
    default.fill(x, 7.0)
    array = numbas(x, named)
    assert from_cai(array).stream == default.handle
    for view in (to_cai(array, stream=mine), from_cai(array)):
        seen = cuda.consumer("cai-trusting" if view.stream == mine.handle else "dlpack", mine)
        pending = seen.read(view)
        cuda.synchronize()
        assert pending.value == [7.0] * 4


def test_without_numba_its_arrays_are_on_the_legacy_default_stream(cuda: Any) -> None:
    assert from_cai(numbas(cuda.array([1.0], speaks="cai3"), 0)).stream == 1


def test_stream_0_of_anybody_else_is_refused(cuda: Any) -> None:
    array = numbas(cuda.array([1.0], speaks="cai3"), 0, __module__="somebody.else")
    with pytest.raises(ValueError, match=r"^stream: got 0; allowed: 1 for the legacy"):
        from_cai(array)


def test_numbas_stream_object_says_that_its_stream_lives(cuda: Any) -> None:
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=home)
    array = numbas(x, home.handle, stream=home)
    asked = []
    type(array).__cuda_array_interface__ = property(
        lambda _: asked.append(1) or {**x.__cuda_array_interface__, "stream": home.handle}
    )
    view = from_cai(array)
    seen = cuda.consumer("dlpack", mine).read(view)
    seen.release()
    view.release()
    assert asked == [1], "the dict is read once"
    cuda.synchronize()


def test_cupys_dict_is_preferred_to_its_capsules(cuda: Any) -> None:
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=("dlpack", "cai3"), stream=home)
    home.fill(x, 7.0)
    kind = type("ndarray", (type(x),), {"__module__": "cupy"})
    kind.__dlpack__ = lambda *_, **__: pytest.fail("asked for a capsule")
    x.__class__ = kind
    with cuda.current_stream(home):
        view = to_cai(x, stream=mine)
    seen = mine.read(view)
    del view
    home.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("library", ["pylibcudf", "cudf", "pylibraft", "somebody"])
@pytest.mark.parametrize("how", ["no stream", "None", "declared", "-1"])
def test_a_dict_of_version_3_that_never_names_a_stream_is_waited_for(
    library: str, how: str, cuda: Any
) -> None:
    home = cuda.stream("home")
    x = cuda.array([0.0] * 4, speaks="cai3", stream=home)
    home.fill(x, 7.0)
    interface = {**x.__cuda_array_interface__, "stream": None}
    if how != "None":
        del interface["stream"]
    made = type(f"Buffer{how}", (), {"__module__": f"{library}.core"})()
    made.__cuda_array_interface__, made.keep = interface, x
    waits = library != "somebody" and how == "no stream"
    said = {"declared": {"stream": home}, "-1": {"stream": -1}}.get(how, {})
    cuda.clear_calls()
    if waits:
        with pytest.warns(HostSyncWarning, match="never names a stream"):
            view = from_cai(made)
    else:
        view = from_cai(made, **said)
    assert ("cuModuleUnload" in {call.call for call in cuda.calls}) == waits
    stranger = waits is False and not said
    assert view.stream == (home.handle if how == "declared" else 1 if stranger else None)
    assert made.keep is x
    if waits:
        assert cuda.read(view) == [7.0] * 4
    cuda.synchronize()
