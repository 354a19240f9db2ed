"""`cai_bridge.h`: what extensions in C call, compiled by the system's compiler."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
import threading
import weakref
from pathlib import Path

import pytest

import cai_bridge
from cai_bridge import _core

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Description(ctypes.Structure):
    """`CaiBridgeDescription`."""

    _fields_ = (
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
        ("contiguous", ctypes.c_int32),
    )


class Extension:
    """The functions of tests/c/interface.c."""

    def __init__(self, path):
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.api = ctypes.c_void_p(get(_core._c_api, b"cai_bridge._core._c_api"))
        self.held, self.free = ctypes.PyDLL(path), ctypes.CDLL(path)
        for library in (self.held, self.free):
            library.end.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]

    def begin(self, x, stream):
        array, described = ctypes.c_void_p(), Description()
        self.held.begin(
            self.api,
            ctypes.py_object(x),
            ctypes.c_uint64(stream.handle),
            ctypes.byref(array),
            ctypes.byref(described),
        )
        return array, described

    def end(self, array, stream, *, locked=True):
        (self.held if locked else self.free).end(self.api, array, stream.handle)


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("c") / "interface.so"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    source = ROOT / "tests" / "c" / "interface.c"
    subprocess.run(
        [COMPILER, *flags, f"-I{cai_bridge.get_include()}", str(source), "-o", str(path)],
        check=True,
    )
    return Extension(str(path))


def test_the_header_is_one_of_cpp_too(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = tmp_path / "empty.cpp"
    source.write_text('#include "cai_bridge.h"\n')
    subprocess.run(
        [
            compiler,
            "-Wall",
            "-Werror",
            "-fsyntax-only",
            f"-I{cai_bridge.get_include()}",
            str(source),
        ],
        check=True,
    )


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
            array, _ = extension.begin(x, mine)
            seen.append(mine.read(x))
            del x
            extension.end(array, mine)
            gc.collect()
    cuda.synchronize()
    assert [one.value for one in seen] == [[float(i)] * 4 for i in range(5)]


def test_an_array_is_kept_until_it_is_released_and_not_longer(cuda, extension):
    x, mine = cuda.array([1.0], speaks="dlpack"), cuda.stream("mine")
    gone = weakref.ref(x)
    array, _ = extension.begin(x, mine)
    del x
    gc.collect()
    assert gone() is not None
    extension.end(array, mine)
    cuda.synchronize()
    _core._settle()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("locked", [True, False])
def test_an_array_ends_on_any_thread_with_and_without_the_interpreters_lock(
    cuda, extension, locked
):
    x, mine = cuda.array([1.0], speaks="exchange"), cuda.stream("mine")
    array, _ = extension.begin(x, mine)
    thread = threading.Thread(target=extension.end, args=(array, mine), kwargs={"locked": locked})
    thread.start()
    thread.join()


@pytest.mark.parametrize("nothing", [None, 3, object()])
def test_a_refusal_is_an_exception(cuda, extension, nothing):
    with pytest.raises(TypeError, match="object"):
        extension.begin(nothing, cuda.stream("mine"))


def test_null_for_an_object_is_an_exception(extension):
    array, described = ctypes.c_void_p(), Description()
    arguments = (ctypes.c_uint64(1), ctypes.byref(array), ctypes.byref(described))
    with pytest.raises(TypeError, match="object: got NULL"):
        extension.held.begin(extension.api, None, *arguments)


def test_a_stream_of_another_device_is_refused(cuda, extension):
    with pytest.raises(ValueError, match="stream"):
        extension.begin(cuda.array([1.0], device=0), cuda.stream("other", device=1))
