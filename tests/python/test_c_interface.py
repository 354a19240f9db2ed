"""`cai_bridge.h`: what extensions in C and C++ call, compiled by the system's compilers."""

import ctypes
import gc
import importlib.util
import runpy
import shutil
import subprocess
import sys
import sysconfig
import threading
import weakref
from pathlib import Path

import pytest
from fakes import OnlyCai

import cai_bridge
from cai_bridge import _core, to_cai
from cai_bridge.testing import RaceError

ROOT = Path(__file__).parents[2]
PYTHONS = sysconfig.get_path("include")
CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


# What both structures of an array begin with.
ARRAY = (
    ("data", ctypes.c_void_p),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("readonly", ctypes.c_int32),
)


class Description(ctypes.Structure):
    """`CaiBridgeDescription`."""

    _fields_ = (*ARRAY, ("contiguous", ctypes.c_int32))


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Export(ctypes.Structure):
    """`CaiBridgeExport`."""

    _fields_ = (
        *ARRAY,
        ("stream", ctypes.c_uint64),
        ("owner", ctypes.c_void_p),
        ("deleter", DELETER),
    )


# What each function of the table takes, after its answer: an array or a place (p), a stream (u).
TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint64,
    "n": ctypes.c_size_t,
    "-": None,
}
FUNCTIONS = {
    "import_object": "ipp",
    "describe": "-pp",
    "order": "ipu",
    "give_back": "ipu",
    "release": "-p",
    "export_object": "ipp",
    "device": "ip",
    "describe_sized": "ippn",
    "export_sized": "ipnp",
    "import_tensor": "ipiup",
    "ready_on": "ipp",
    "tensor": "ipp",
}


class Api(ctypes.Structure):
    """`CaiBridgeApi`."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        *(
            (name, ctypes.PYFUNCTYPE(*(TYPES[letter] for letter in letters)))
            for name, letters in FUNCTIONS.items()
        ),
    )


NULL = object()  # for an object


class Extension:
    """The functions of tests/c/interface.c, and the table."""

    def __init__(self, path):
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.api = ctypes.c_void_p(get(_core._c_api, b"cai_bridge._core._c_api"))
        self.table = Api.from_address(self.api.value)
        self.held, self.free = ctypes.PyDLL(path), ctypes.CDLL(path)
        for library in (self.held, self.free):
            library.end.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]

    def begin(self, x, stream):
        array, described = ctypes.c_void_p(), Description()
        places = (ctypes.byref(array), ctypes.byref(described))
        x = ctypes.py_object(x) if x is not NULL else None
        self.held.begin(self.api, x, ctypes.c_uint64(stream.handle), *places)
        return array, described

    def end(self, array, stream, *, locked=True):
        (self.held if locked else self.free).end(self.api, array, stream.handle)


def compile_with(compiler, language, source, *flags):
    if compiler is None or not (Path(PYTHONS) / "Python.h").exists():
        pytest.skip("no compiler, or no headers of Python's")
    strict = [f"-std={language}", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    folders = [f"-I{cai_bridge.get_include()}", "-isystem", PYTHONS]
    subprocess.run([compiler, *strict, *folders, str(source), *flags], check=True)


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "interface.so"
    source = ROOT / "tests" / "c" / "interface.c"
    compile_with(COMPILER, "c99", source, "-shared", "-fPIC", "-o", str(path))
    return Extension(str(path))


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The example in C++."""
    path = tmp_path_factory.mktemp("cpp") / "rows.so"
    source = ROOT / "examples" / "cpp_extension" / "rows.cpp"
    compile_with(CPP, "c++17", source, "-shared", "-fPIC", "-o", str(path))
    spec = importlib.util.spec_from_file_location("rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INCLUDES = (
    "#include <cai_bridge.h>\n#include <cai_bridge.h>\n",
    "#include <cai_bridge.h>\n#include <Python.h>\n",
    "#include <Python.h>\n#include <cai_bridge.h>\n",
)


@pytest.mark.parametrize("includes", INCLUDES)
@pytest.mark.parametrize("language", ["c99", "c11", "c17", "c++11", "c++17", "c++20"])
def test_the_header_is_one_of_each_language_with_and_without_pythons(tmp_path, language, includes):
    source = tmp_path / ("source.cpp" if "++" in language else "source.c")
    source.write_text("#define PY_SSIZE_T_CLEAN\n" + includes)
    compile_with(CPP if "++" in language else COMPILER, language, source, "-fsyntax-only")


@pytest.fixture
def rows(module):
    return module.rows


def unordered(x, first, last, stream):
    """What `rows` returns without `order` and `give_back`."""
    theirs = x.__cuda_array_interface__
    data = (theirs["data"][0] + 4 * first, False)
    return OnlyCai(theirs | {"data": data, "shape": (last - first,), "stream": stream}, keep=x)


def test_the_test_that_the_page_shows_passes_and_notices_a_missing_wait(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "rows", module)
    path = ROOT / "docs" / "programs" / "test_my_extension.py"
    test = runpy.run_path(str(path))["test_rows_are_ready_and_given_back_in_order"]
    test()
    monkeypatch.setattr(module, "rows", unordered)
    with pytest.raises(RaceError):
        test()


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
@pytest.mark.parametrize("kind", ["cai-waits", "dlpack", "dlpack-none", "dlpack-exchange"])
def test_an_array_that_cpp_returns_is_ready_for_every_consumer(cuda, rows, speaks, kind):
    theirs, work, mine = (cuda.stream(name) for name in ("theirs", "the extension's", "mine"))
    with cuda.current_stream(theirs):
        x = cuda.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], speaks=speaks, stream=theirs)
        out = rows(x, 1, 3, work.handle)
    assert (out.shape, out.dtype.name, out.owner is None) == ((2, 2), "float32", True)
    with cuda.current_stream(mine):
        seen = cuda.consumer(kind, mine).read(out)
        mine.synchronize()
        cuda.synchronize()
        assert seen.value == [[3.0, 4.0], [5.0, 6.0]]
        seen.release()
        del seen, out  # the extension's stream has to outlive them
        _core._settle()


@pytest.mark.parametrize(
    ("memory", "device", "by_handle"),
    [
        *((memory, 1, by) for memory in ("device", "managed", "pinned") for by in (False, True)),
        *((memory, 0, True) for memory in ("managed", "pinned")),
    ],
)
def test_memory_goes_through_a_stream_of_a_gpu_that_reaches_it(
    cuda, rows, memory, device, by_handle
):
    """A default stream is that of the GPU where the memory is worked on."""
    theirs, mine = cuda.stream("theirs", device=device), cuda.stream("mine", device=device)
    work = cuda.stream("the extension's", device=1)
    x = cuda.array([0.0] * 3, speaks="cai", memory=memory, stream=theirs, device=device)
    theirs.fill(x, 7.0)
    out = rows(x, 1, 3, work.handle if by_handle else 1)
    view = to_cai(out, stream=mine)
    seen = mine.read(view)
    cuda.synchronize()
    assert seen.value == [7.0, 7.0]
    view.release()
    del view, out
    _core._settle()


def test_memory_that_cpp_exports_is_given_back_in_order_and_once(cuda, rows):
    theirs, work, mine = (cuda.stream(name) for name in ("theirs", "the extension's", "mine"))
    seen = []
    for i in range(10):
        with cuda.current_stream(theirs):
            x = cuda.array([float(i)] * 4, speaks="exchange", stream=theirs, memory="pool")
            out = rows(x, 0, 4, work.handle)
        gone = weakref.ref(x)
        del x
        view = to_cai(out, stream=mine)
        seen.append(mine.read(view))
        view.release()
        del view, out
        gc.collect()
        cuda.synchronize()
        _core._settle()
        assert gone() is None
    assert [one.value for one in seen] == [[float(i)] * 4 for i in range(10)]


def test_what_cpp_exports_and_is_refused_stays_with_it(cuda, rows):
    x, other = cuda.array([1.0, 2.0], speaks="exchange"), cuda.stream("other", device=1)
    with pytest.raises(IndexError):
        rows(x, 0, 3, 1)
    with pytest.raises(ValueError, match="stream"):
        rows(x, 0, 1, other.handle)
    gone = weakref.ref(x)
    del x
    cuda.synchronize()
    gc.collect()
    assert gone() is None


def test_work_that_is_queued_before_a_refused_export_is_given_back(cuda, rows):
    theirs, work = cuda.stream("theirs"), cuda.stream("the extension's")
    with cuda.current_stream(theirs):
        x = cuda.array([1.0] * 4, speaks="exchange", stream=theirs)
        cuda.synchronize()
        seen = work.read(x)  # in place of the kernel
        cuda.fail("cuPointerGetAttributes")  # of the export: this import asks for none
        with pytest.raises(cai_bridge.DriverError, match="cuPointerGetAttributes"):
            rows(x, 1, 3, work.handle)
    theirs.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_what_fails_in_a_deleter_is_told_with_its_name(cuda, rows, monkeypatch):
    theirs, work = cuda.stream("theirs"), cuda.stream("the extension's")
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    x = cuda.array([1.0] * 4, speaks="cai", stream=theirs)
    out = rows(x, 1, 3, work.handle)
    cuda.fail("cuStreamWaitEvent")
    del out
    _core._settle()
    (said,) = told
    assert (said.object, said.exc_type) == ("the deleter of an export", cai_bridge.DriverError)
    told.clear()


def export(extension, **fields):
    """Export four items, or what these fields say."""
    right = {"shape": (ctypes.c_int64 * 1)(4), "ndim": 1, "code": 2, "bits": 32, "lanes": 1}
    right |= {"data": 0x1000, "device_type": 2, "stream": 1}
    said, out = Export(**(right | fields)), ctypes.py_object()
    extension.held.hand_out(extension.api, ctypes.byref(said), ctypes.byref(out))
    array = out.value
    ctypes.pythonapi.Py_DecRef(out)  # the reference that the caller owns
    return array


ELSEWHERE = "device 1 for an array on device 0"
MISSING = "device_id: got 9, which this machine does not have; allowed: a GPU of this machine"
REFUSED = [
    ({"data": "memory", "stream": "of GPU 1"}, ValueError, ELSEWHERE),
    ({"data": "memory of GPU 1"}, ValueError, r"got \(2, 0\) for memory of \(2, 1\)"),
    ({"data": "memory", "device_id": 9}, ValueError, MISSING),
    ({"device_type": 13, "data": "memory", "device_id": 9}, ValueError, MISSING),
    ({"data": 0x1000}, ValueError, "data: got 0x1000, which CUDA does not know"),
    ({"ndim": -1}, ValueError, "ndim: got -1"),
    ({"ndim": 65}, ValueError, "ndim: got 65"),
    ({"shape": None}, ValueError, "shape: got NULL for 1 dim.*; allowed: a pointer to"),
    ({"shape": (ctypes.c_int64 * 1)(-2)}, ValueError, r"shape\[0\]: got -2"),
    ({"code": 2, "bits": 33}, BufferError, "dtype"),
    ({"device_type": 1}, BufferError, "CPU memory"),
    ({"device_type": 77}, BufferError, "77"),
    ({"device_id": -1}, ValueError, "-1"),
    ({"data": None}, ValueError, "data"),
]


@pytest.mark.parametrize(("wrong", "error", "said"), REFUSED)
def test_an_export_that_cannot_be_is_refused_and_its_deleter_not_called(
    cuda, extension, wrong, error, said
):
    calls, stream = [], cuda.stream("theirs", device=1)
    arrays = [cuda.array([0.0] * 4, device=device) for device in range(2)]
    words = {"memory": arrays[0].ptr, "memory of GPU 1": arrays[1].ptr, "of GPU 1": stream.handle}
    wrong = {name: words[value] if type(value) is str else value for name, value in wrong.items()}
    with pytest.raises(error, match=said):
        export(extension, **wrong, deleter=DELETER(calls.append))
    gc.collect()
    assert calls == []


# Exports memory; when its last user goes, here or with the interpreter, the deleter tells.
ENDING = """
import sys, test_c_interface as tests
from cai_bridge.testing import simulated_cuda
with simulated_cuda() as cuda:
    tell = tests.DELETER(lambda owner: print("deleted", owner, flush=True))
    x = cuda.array([1.0] * 4)
    extension = tests.Extension(sys.argv[1])
    array = tests.export(extension, data=x.ptr, owner=77, deleter=tell)
    if sys.argv[2] == "now":
        del array
"""


@pytest.mark.parametrize(("when", "said"), [("now", "deleted 77\n"), ("at exit", "")])
def test_what_is_alive_at_the_interpreters_end_is_left_to_the_processs(extension, when, said):
    command = [sys.executable, "-c", ENDING, extension.held._name, when]
    how = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, check=False, **how)
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)


def test_an_array_is_described(cuda, extension):
    x = cuda.array(shape=(2, 3), fill=1.0, speaks="cai3", strides="F", readonly=True)
    mine = cuda.stream("mine")
    array, it = extension.begin(x, mine)
    assert (it.data, it.ndim, it.shape[:2], it.strides[:2]) == (x.ptr, 2, [2, 3], [1, 2])
    assert (it.code, it.bits, it.lanes, it.device_type, it.device_id) == (2, 32, 1, 2, 0)
    assert (it.readonly, it.contiguous) == (1, 0)
    extension.end(array, mine)


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_work_on_the_stream_comes_after_the_producers_and_before_its_next(cuda, extension, speaks):
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    seen = []
    with cuda.current_stream(theirs):
        for i in range(5):
            x = cuda.array([float(i)] * 4, speaks=speaks, stream=theirs, memory="pool")
            gone, (array, _) = weakref.ref(x), extension.begin(x, mine)
            seen.append(mine.read(x))
            del x
            gc.collect()
            assert gone() is not None
            extension.end(array, mine)
            gc.collect()
    cuda.synchronize()
    _core._settle()
    assert gone() is None
    assert [one.value for one in seen] == [[float(i)] * 4 for i in range(5)]


@pytest.mark.parametrize("locked", [True, False])
def test_an_array_ends_on_any_thread_with_and_without_the_interpreters_lock(
    cuda, extension, locked
):
    x, mine = cuda.array([1.0], speaks="exchange"), cuda.stream("mine")
    array, _ = extension.begin(x, mine)
    thread = threading.Thread(target=extension.end, args=(array, mine), kwargs={"locked": locked})
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("x", "error", "said"),
    [
        (None, TypeError, "object"),
        (3, TypeError, "object"),
        (NULL, TypeError, "object: got NULL"),
        ("an array", ValueError, "stream: got .* device 1"),
    ],
)
def test_a_refusal_is_an_exception(cuda, extension, x, error, said):
    x = cuda.array([1.0], device=0) if x == "an array" else x
    with pytest.raises(error, match=said):
        extension.begin(x, cuda.stream("other", device=1))


# Places that calls write to: they live as long as the rows that name their addresses.
PLACE, NOWHERE, DESCRIBED = ctypes.c_void_p(), Export(), Description()
NO_ARRAY = "array: got NULL; allowed: an array that was imported"
NO_PLACE = "out: got NULL; allowed: the address of a place for the answer"
NO_EXPORT = "export: got NULL; allowed: the address of a CaiBridgeExport"
NO_TENSOR = "tensor: got NULL; allowed: the address of a DLManagedTensorVersioned"


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        ("order", (None, 1), NO_ARRAY),
        ("give_back", (None, 1), NO_ARRAY),
        ("device", (None,), NO_ARRAY),
        ("import_object", (id(object), None), NO_PLACE),
        ("export_object", (None, ctypes.addressof(PLACE)), NO_EXPORT),
        ("export_object", (ctypes.addressof(NOWHERE), None), NO_PLACE),
        ("export_sized", (None, 72, ctypes.addressof(PLACE)), NO_EXPORT),
        ("describe_sized", (None, ctypes.addressof(DESCRIBED), 48), NO_ARRAY),
        ("ready_on", (None, None), NO_ARRAY),
        ("tensor", (None, None), NO_ARRAY),
        ("import_tensor", (None, 0, 1, None), NO_PLACE),
        ("import_tensor", (None, 0, 1, ctypes.addressof(PLACE)), NO_TENSOR),
    ],
)
def test_null_is_an_exception(extension, call, arguments, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        getattr(extension.table, call)(*arguments)


def test_null_is_described_as_nothing_and_released_as_nothing(extension):
    described = Description(ndim=7, device_id=7)
    extension.table.describe(None, ctypes.addressof(described))
    assert bytes(described) == bytes(ctypes.sizeof(described))
    extension.table.describe(None, None)
    extension.table.release(None)


@pytest.mark.parametrize("memory", ["device", "managed", "pinned"])
@pytest.mark.parametrize("device", [0, 1])
def test_the_table_tells_whose_default_streams_are_meant(cuda, extension, memory, device):
    own = cuda.stream("own", device=device)
    x = cuda.array([1.0], speaks="cai", memory=memory, stream=own, device=device)
    array, it = extension.begin(x, own)
    shown = device if memory == "device" else 0
    assert (it.device_id, extension.table.device(array)) == (shown, device)
    extension.end(array, own)
    cuda.synchronize()


@pytest.mark.parametrize("call", ["cuEventRecord", "cuStreamWaitEvent"])
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_memory_that_could_not_be_given_back_is_kept_until_the_wait_is_made(
    cuda, extension, call, blocking, again
):
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine", blocking=blocking)
    x = cuda.array([1.0] * 3, speaks="cai", stream=theirs, memory="pool")
    array, _ = extension.begin(x, mine)
    seen = mine.read(x)
    del x
    for _ in range(2):
        cuda.fail(call)
        with pytest.raises(cai_bridge.DriverError, match=call):
            extension.table.give_back(array, mine.handle)
    if again:
        extension.table.give_back(array, mine.handle)
    else:
        cuda.fail(call)
    extension.table.release(array)
    _core._settle()
    y = cuda.array(shape=3, speaks="cai", stream=theirs, memory="pool")
    theirs.fill(y, 9.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 3


def test_a_call_that_could_not_give_back_is_waited_for_at_the_end_of_the_adapted_call(
    cuda, extension
):
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    x = cuda.array([1.0] * 3, speaks="cai", stream=theirs)
    kept = []

    def function(x):
        array, _ = extension.begin(x, mine)
        seen = mine.read(x)
        cuda.fail("cuStreamWaitEvent")
        with pytest.raises(cai_bridge.DriverError):
            extension.table.give_back(array, mine.handle)
        kept.extend((array, seen))

    cai_bridge.adapt(function, "cai")(x)
    theirs.fill(x, 9.0)
    cuda.synchronize()
    array, seen = kept
    assert seen.value == [1.0] * 3
    extension.table.release(array)
