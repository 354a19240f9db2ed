"""What foreign code does while the bridge asks it, or ends something: nothing may break.

Streams are given up between the question and the use, the bridge is called again, an interrupt
arrives, an object is destroyed.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from stand_in import StandIn, made_on, no_libraries

from cai_bridge import CaiView, Library, _core, adapt, convert, register, to_cai
from cai_bridge.testing._stream import working_on

__all__ = ["no_libraries"]


class Answers(StandIn):
    """A library whose current stream is whatever the test says."""

    def __init__(self, answer: Any) -> None:
        super().__init__({})
        self.answer = answer

    def current_stream(self, device: int) -> Any:
        self.asked.append(device)
        return self.answer()


class Records(logging.Handler):
    """Calls something at the first record, as a handler that writes to a file lets others run."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def emit(self, record: logging.LogRecord) -> None:
        call, self.call = self.call, lambda: None
        call()


def test_a_stream_that_its_library_gives_up_during_an_end_lives_until_the_orders_are_made(
    cuda: Any, no_libraries: None
) -> None:
    producer, default = cuda.stream("producer"), cuda.stream("the library's default")
    current = [default]
    register(Answers(lambda: current[0]))
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == producer.handle
    current[:] = [cuda.stream("scoped")]
    log, handler = logging.getLogger("cai_bridge"), Records(lambda: current.__setitem__(0, default))
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.DEBUG)
    try:
        view.release()
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
    assert current == [default]


def test_a_stream_object_is_destroyed_where_no_view_is_locked(
    cuda: Any, no_libraries: None
) -> None:
    own, seen = cuda.stream("the library's"), list[int]()

    class Fresh:
        """An object that the library makes at each question."""

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, own.handle)

        def __del__(self) -> None:
            seen.append(view.ndim)

    questions = iter(range(1000))

    def answer() -> Any:
        if next(questions) == 1:
            # Another reader, before this one has noted what it asked for.
            assert view.ptr
        return Fresh()

    register(Answers(answer))
    view = to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3"))
    assert view.ptr
    assert view.ptr
    view.release()
    assert set(seen) == {1}


@pytest.mark.parametrize("first", ["legacy", "per_thread"])
@pytest.mark.parametrize("ignores", [True, False])
@pytest.mark.parametrize("imported", [True, False])
def test_no_reader_is_drawn_into_the_capture_that_an_exporter_has_moved_into(
    cuda: Any, first: str, ignores: bool, imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if imported:
        monkeypatch.setitem(sys.modules, "pylibcudf", types.ModuleType("pylibcudf"))
    reader, graphs = cuda.stream("reader"), cuda.stream("graph's")
    x = cuda.array([0.0] * 4, speaks="cai3", stream=getattr(cuda, first), name="x")
    view = to_cai(x)
    with cuda.capture(graphs):
        x._set_pending(graphs)
        with working_on(reader, ignores_dicts=ignores):
            assert view.__cuda_array_interface__["stream"] == graphs.handle
    view.release(-1)
    cuda.synchronize()


@pytest.mark.parametrize("call", ["cuStreamIsCapturing", "cuCtxGetCurrent"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_question_about_a_capture_is_no_capture(
    cuda: Any, call: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", types.ModuleType("pylibcudf"))
    view = to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3"))
    cuda.fail(call, nth, "CUDA_ERROR_UNKNOWN")
    with pytest.raises(RuntimeError, match=call):
        view.__cuda_array_interface__  # noqa: B018 - it is read
    assert view.__cuda_array_interface__["data"][0] == view.ptr
    view.release()


def test_to_ask_a_registered_library_imports_nothing(
    cuda: Any, no_libraries: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "halfway").mkdir()
    (tmp_path / "halfway" / "__init__.py").write_text("")
    (tmp_path / "halfway" / "arrays.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = __import__("halfway")
    monkeypatch.setitem(sys.modules, "halfway", module)
    stream = cuda.stream("the library's")
    named = {"name": "halfway", "arrays": ("halfway.arrays:Array",)}
    library = type("Halfway", (StandIn,), named)({0: stream})
    register(library)
    assert to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3")).ptr
    assert 0 in library.asked
    table = type("Table", (Library,), {**named, "name": "table", "view": None})()
    register(table)
    assert to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3")).ptr
    assert "halfway.arrays" not in sys.modules


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_end_that_is_interrupted_keeps_the_streams_of_its_moment(
    cuda: Any, no_libraries: None
) -> None:
    interrupts: list[type[BaseException]] = []

    def answer() -> None:
        if interrupts:
            raise interrupts.pop()

    register(Answers(answer))
    producer, before, now = (cuda.stream(name) for name in ("producer", "before", "now"))
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer, name="x")
    view = to_cai(x)
    with cuda.current_stream(before):
        assert view.__cuda_array_interface__["stream"] == producer.handle
    with cuda.current_stream(now):
        now.wait(producer.record())
        seen = now.read(x, name="the library's read, on its stream of now")
        interrupts.append(KeyboardInterrupt)
        del view
        # Another thread tries again, with other current streams.
        thread = threading.Thread(target=_core._settle)
        thread.start()
        thread.join()
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen.value == [0.0] * 4


def test_what_register_replaces_may_call_the_bridge_at_its_end() -> None:
    program = """
import sys, threading
from cai_bridge import CaiView, Library, convert, register
class Array: pass
class Mine(Library):
    name, arrays, view = "mine", ("__main__:Array",), CaiView
    def make(self, view, stream): return Array()
    def __del__(self):
        # In another thread, too: it would wait for a lock that is held here.
        other = threading.Thread(target=look)
        other.start()
        other.join()
        look()
def look():
    try: convert([1], "nothing of the kind")
    except TypeError: print("looked", flush=True)
register(Mine())
register(Mine())
sys.stdout.flush()
import os; os._exit(0)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["looked", "looked"], done.stderr


class Remakes:
    """An exporter that makes a view of itself whenever its dict is read, but not in between."""

    def __init__(self, array: Any) -> None:
        self.array, self.inside, self.read = array, False, 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.read += 1
        assert self.read < 10_000, "without an end"
        if not self.inside:
            self.inside = True
            try:
                to_cai(self)
            finally:
                self.inside = False
        return self.array.__cuda_array_interface__  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["dropped", "released", "with"])
def test_an_exporter_that_makes_a_view_whenever_it_is_asked_is_not_asked_for_ever(
    cuda: Any, how: str
) -> None:
    x = Remakes(cuda.array([1.0], speaks="cai3", stream=cuda.stream("producer")))
    view = to_cai(x)
    if how == "released":
        view.release()
    elif how == "with":
        with view:
            pass
    del view
    cuda.synchronize()
    assert x.read < 1000


@pytest.mark.parametrize("how", ["dict", "address", "stream"])
def test_a_library_that_reads_a_view_whenever_it_is_asked_is_not_asked_for_ever(
    cuda: Any, no_libraries: None, how: str
) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.stream("producer"))

    def answer() -> Any:
        assert len(library.asked) < 10_000, "without an end"
        view = to_cai(x)
        if how == "dict":
            return view.__cuda_array_interface__["stream"]
        return view.stream if how == "stream" else (view.ptr, None)[1]

    library = Answers(answer)
    register(library)
    view = to_cai(x)
    assert view.__cuda_array_interface__["version"] == 3
    del view
    assert 1 <= len(library.asked) < 1000


# --- the end of a call ----------------------------------------------------------------------------


class Fails(Exception):
    """What a function raises."""


class Moving:
    """An exporter whose dict cannot be read once."""

    def __init__(self, array: Any) -> None:
        self.array, self.fails = array, False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.fails:
            self.fails = False
            raise KeyboardInterrupt
        return self.array.__cuda_array_interface__  # type: ignore[no-any-return]


@pytest.mark.parametrize("first", [True, False])
def test_an_argument_whose_end_fails_leaves_the_others_in_order(cuda: Any, first: bool) -> None:
    own, one, two = (cuda.stream(name) for name in ("own", "one", "two"))
    arrays = [cuda.array([1.0] * 4, speaks="cai3", stream=stream) for stream in (one, two)]
    moving, kept = [Moving(array) for array in arrays], list[Any]()

    def function(*views: Any) -> None:
        kept.extend([*views, *(own.read(view) for view in views)])
        moving[not first].fails = True

    with pytest.raises(KeyboardInterrupt):
        adapt(function, "cai", stream=own)(*moving)
    other, stream = (arrays[1], two) if first else (arrays[0], one)
    stream.fill(other, 9.0, name="its producer's next write")
    cuda.synchronize()
    assert kept[3 if first else 2].value == [1.0] * 4


def test_what_the_function_raised_goes_before_an_end_that_fails(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    own, stream = cuda.stream("own"), cuda.stream("producer's")
    x, kept = cuda.array([1.0] * 4, speaks="cai3", stream=stream), list[Any]()

    def function(x: Any) -> None:
        kept.extend([x, own.read(x)])
        cuda.fail("cuEventRecord", 1, "CUDA_ERROR_OUT_OF_MEMORY")
        raise Fails

    with pytest.raises(Fails):
        adapt(function, "cai", stream=own)(x)
    assert ["cuEventRecord" in str(one) for one in unraisable] == [True]
    kept.clear()


# --- capsules -------------------------------------------------------------------------------------


class Refuses(StandIn):
    """A library that refuses what is not of one dimension when it makes its array."""

    view = CaiView

    def make(self, view: Any, stream: Any) -> Any:
        if view.ndim != 1:
            raise BufferError("ndim: got 2; allowed: 1")
        return super().make(view, stream)


def capsule(cuda: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    x = cuda.array(fill=1.0, shape=shape, speaks="dlpack", stream=cuda.stream("producer"))
    return x, x.__dlpack__(stream=1, max_version=(1, 3))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("how", ["make", "copy", "numpy", "adapt"])
def test_a_capsule_that_is_refused_at_last_is_as_it_was(
    cuda: Any, no_libraries: None, how: str, tree: bool
) -> None:
    own = cuda.stream("own")
    register(Refuses({0: own}))
    (x, good), (y, bad) = capsule(cuda, (4,)), capsule(cuda, (2, 2))
    given = [good, bad] if tree else bad
    if how == "make":
        with pytest.raises(BufferError, match="ndim: got 2"):
            convert(given, "stand_in")
    elif how == "adapt":
        with pytest.raises(BufferError, match="ndim: got 2"):
            adapt(lambda _: None, "stand_in")(given)
    else:
        copy, to = (True, "cai") if how == "copy" else (None, "numpy")
        with cuda.capture(own), pytest.raises(RuntimeError, match="graph capture: got a copy"):
            convert(given, to, stream=own, copy=copy)
    assert (x.exports, y.exports) == (1, 1)
    made = convert([good, bad], "cai")
    assert [view.ptr for view in made] == [x.ptr, y.ptr]
    del good, bad, given
    assert (x.exports, y.exports) == (1, 1)
    cuda.synchronize()
    del made
    assert (x.exports, y.exports) == (0, 0)


@pytest.mark.parametrize("to", ["stand_in", "numpy", "tvm_ffi", "cai"])
@pytest.mark.parametrize("copy", [None, True])
def test_a_capsule_that_is_converted_is_consumed(
    cuda: Any, no_libraries: None, to: str, copy: Any
) -> None:
    if to == "tvm_ffi":
        pytest.importorskip("tvm_ffi")
    register(Refuses({0: cuda.stream("own")}))
    x, made_of = capsule(cuda, (4,))
    made = convert(made_of, to, copy=copy)
    assert "used_dltensor" in repr(made_of)
    cuda.synchronize()
    assert x.exports == (0 if copy or to == "numpy" else 1)
    with pytest.raises(ValueError, match="capsule: got a consumed one"):
        convert(made_of, to)
    del made
    cuda.synchronize()
    assert x.exports == 0


def test_a_view_of_a_capsule_that_was_refused_is_a_released_one(
    cuda: Any, no_libraries: None
) -> None:
    kept = []

    class Keeps(Refuses):
        def make(self, view: Any, stream: Any) -> Any:
            kept.append(view)
            return super().make(view, stream)

    register(Keeps({0: cuda.stream("own")}))
    (x, good), (_, bad) = capsule(cuda, (4,)), capsule(cuda, (2, 2))
    with pytest.raises(BufferError, match="ndim: got 2"):
        convert([good, bad], "stand_in")
    # The capsules have the memory again, for whoever is next.
    for view in kept:
        with pytest.raises(BufferError, match="released"):
            view.__cuda_array_interface__  # noqa: B018 - it is read
        with pytest.raises(BufferError, match="released"):
            convert(view, "dlpack")
    assert convert(good, "cai").ptr == x.ptr


def test_a_capsule_that_is_consumed_meanwhile_costs_no_other(cuda: Any, no_libraries: None) -> None:
    class Takes(Refuses):
        def make(self, view: Any, stream: Any) -> Any:
            if "used" not in repr(second):
                to_cai(second)
            return super().make(view, stream)

    register(Takes({0: cuda.stream("own")}))
    (x, first), (_, second) = capsule(cuda, (4,)), capsule(cuda, (4,))
    with pytest.raises(ValueError, match=r"x\[1\]: capsule: got "):
        convert([first, second], "stand_in")
    assert convert(first, "cai").ptr == x.ptr
    cuda.synchronize()


@pytest.mark.parametrize("copy", [None, True])
def test_an_error_about_one_capsule_has_nothing_of_ours(cuda: Any, copy: Any) -> None:
    _, used = capsule(cuda, (4,))
    assert convert(used, "cai").ndim == 1
    with pytest.raises(ValueError, match="capsule: got a consumed one") as caught:
        convert(used, "cai", copy=copy)
    assert vars(caught.value) == {}
    cuda.synchronize()


@pytest.mark.parametrize("shape", ["one", "list"])
def test_a_result_whose_device_cannot_be_asked_is_named(
    cuda: Any, no_libraries: None, shape: str
) -> None:
    class Array:
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("nobody asks")

        def __dlpack_device__(self) -> Any:
            raise Fails("no device")

    result = Array() if shape == "one" else [Array()]
    x = cuda.array([1.0], speaks="cai")
    register(StandIn({0: cuda.legacy}))
    for _ in range(2):
        with pytest.raises(Fails, match=r"^the result(\[0\])?: no device"):
            adapt(lambda _: result, "cai", returns="stand_in")(x)
    cuda.synchronize()


def test_a_module_whose_import_is_blocked_is_no_library(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    view = to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3"))
    cuda.clear_calls()
    assert view.__cuda_array_interface__["version"] == 3
    assert all(record.call != "cuStreamWaitEvent" for record in cuda.calls)
    view.release()
