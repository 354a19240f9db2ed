"""What known libraries do that their protocols do not say: the table, and what is made of it."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from moving import host_waits

from cai_bridge import HostSyncWarning, _core, from_cai, to_cai

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("row", _core._habits(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_each_row_names_the_test_that_shows_it(row):
    library, habit, version, test = row
    assert (TESTS / test).is_file(), f"{library}: {habit}, seen on {version}"
    assert version[0].isdigit()


def test_cupys_dict_is_preferred_to_its_capsules(cuda):
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
def test_a_dict_of_version_3_that_never_names_a_stream_is_waited_for(library, how, cuda):
    home = cuda.stream("home")
    x = cuda.array([0.0] * 4, speaks="cai3", stream=home)
    home.fill(x, 7.0)
    interface = {**x.__cuda_array_interface__, "stream": None}
    if how != "None":
        del interface["stream"]
    members = {"__module__": f"{library}.core", "__cuda_array_interface__": interface, "keep": x}
    made = type(f"Buffer{how}", (), members)()
    waits = library != "somebody" and how == "no stream"
    said = {"declared": {"stream": home}, "-1": {"stream": -1}}.get(how, {})
    warned = pytest.warns(HostSyncWarning, match="never names a stream") if waits else nullcontext()
    with warned:
        view = from_cai(made, **said)
    assert bool(host_waits(cuda)) is waits
    assert view.stream == (home.handle if how == "declared" else None if waits or said else 1)
    if waits:
        assert cuda.read(view) == [7.0] * 4
    cuda.synchronize()


def test_numbas_stream_object_says_that_its_stream_lives(cuda):
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x, asked = cuda.array([1.0] * 4, speaks="cai3", stream=home), []
    interface = {**x.__cuda_array_interface__, "stream": home.handle}
    members = {
        "__module__": "numba.cuda.cudadrv.devicearray",
        "stream": home,
        "__cuda_array_interface__": property(lambda _: asked.append(1) or interface),
    }
    view = from_cai(type("DeviceNDArray", (), members)())
    seen = cuda.consumer("dlpack", mine).read(view)
    seen.release()
    view.release()
    assert asked == [1], "the dict is read once"
    cuda.synchronize()
