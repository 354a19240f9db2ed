"""What foreign code does while the bridge asks it, or ends something: nothing may break.

Streams are given up between the question and the use, the bridge is called again, an interrupt
arrives, an object is destroyed.
"""

import logging
import sys
import threading
import types

import pytest
from children import assert_quiet
from stand_in import StandIn, made_on, no_libraries

from cai_bridge import Library, _core, register, to_cai
from cai_bridge.testing._stream import working_on

__all__ = ["no_libraries"]


class Answers(StandIn):
    """A library whose current stream is whatever the test says."""

    def __init__(self, answer):
        super().__init__({})
        self.answer = answer

    def current_stream(self, device):
        self.asked.append(device)
        return self.answer()


def test_a_stream_that_its_library_gives_up_during_an_end_lives_until_the_orders_are_made(
    cuda, no_libraries, caplog, monkeypatch
):
    producer, default = cuda.stream("producer"), cuda.stream("the library's default")
    current = [default]
    register(Answers(lambda: current[0]))
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == producer.handle
    current[:] = [cuda.stream("scoped")]
    # At the first record, as a handler that writes to a file lets others run.
    caplog.set_level(logging.DEBUG, "cai_bridge")
    monkeypatch.setattr(caplog.handler, "emit", lambda _: current.__setitem__(0, default))
    view.release()
    assert current == [default]


def test_a_stream_object_is_destroyed_where_no_view_is_locked(cuda, no_libraries):
    own, seen = cuda.stream("the library's"), list[int]()

    class Fresh:
        """An object that the library makes at each question."""

        def __cuda_stream__(self):
            return (0, own.handle)

        def __del__(self):
            seen.append(view.ndim)

    questions = iter(range(1000))

    def answer():
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
    cuda, first, ignores, imported, monkeypatch
):
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
def test_a_failed_question_about_a_capture_is_no_capture(cuda, call, nth, monkeypatch):
    monkeypatch.setitem(sys.modules, "pylibcudf", types.ModuleType("pylibcudf"))
    view = to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3"))
    cuda.fail(call, nth, "CUDA_ERROR_UNKNOWN")
    with pytest.raises(RuntimeError, match=call):
        view.__cuda_array_interface__  # noqa: B018 - it is read
    assert view.__cuda_array_interface__["data"][0] == view.ptr
    view.release()


def test_to_ask_a_registered_library_imports_nothing(cuda, no_libraries, monkeypatch, tmp_path):
    (tmp_path / "halfway").mkdir()
    (tmp_path / "halfway" / "__init__.py").write_text("")
    (tmp_path / "halfway" / "arrays.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "halfway", __import__("halfway"))
    named = {"name": "halfway", "arrays": ("halfway.arrays:Array",)}
    library = type("Halfway", (StandIn,), named)({0: cuda.stream("the library's")})
    table = type("Table", (Library,), {**named, "name": "table", "view": None})()
    for one in (library, table):
        register(one)
        assert to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3")).ptr
    assert 0 in library.asked
    assert "halfway.arrays" not in sys.modules


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("asked", ["at the device", "before the interrupt", "after the interrupt"])
@pytest.mark.parametrize("raises", ["a library", "the exporter"])
def test_an_end_that_is_interrupted_keeps_the_streams_of_its_moment(
    cuda, no_libraries, raises, asked, times
):
    producer, before, now = (cuda.stream(name) for name in ("producer", "before", "now"))
    current, interrupts = [before], dict.fromkeys(("a library", "the exporter"), 0)

    def interrupt(who):
        if interrupts[who]:
            interrupts[who] -= 1
            raise KeyboardInterrupt

    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer, name="x")

    class Exporter:
        @property
        def __cuda_array_interface__(self):
            interrupt("the exporter")
            return x.__cuda_array_interface__

    interrupted = Answers(lambda: interrupt("a library"))
    # It names a number, so who keeps the stream is asked as well: by the second interrupt, in vain.
    other = type("Other", (Answers,), {"name": "other"})(lambda: current[0].handle)
    for library in [interrupted, other] if asked == "after the interrupt" else [other, interrupted]:
        register(library)
    view = to_cai(Exporter())
    with cuda.current_stream(before):
        assert view.__cuda_array_interface__["stream"] == producer.handle
    with cuda.current_stream(now if asked == "at the device" else before):
        current[:] = [now]
        now.wait(producer.record())
        seen = now.read(x, name="the library's read, on its stream of now")
        interrupts[raises] = times
        del view
        interrupts[raises] = 0
        current[:] = [before]
        # Another thread tries again, with other current streams.
        thread = threading.Thread(target=_core._settle)
        thread.start()
        thread.join()
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert seen.value == [0.0] * 4


REPLACED = """
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
    looked = []
    def look():
        try: convert([1], "nothing of the kind")
        except TypeError: looked.append(True)
    register(Mine())
    register(Mine())
    assert looked == [True, True]
    os._exit(0)
"""


def test_what_register_replaces_may_call_the_bridge_at_its_end():
    assert_quiet(REPLACED)


@pytest.mark.parametrize("release", [True, False])
def test_an_exporter_that_makes_a_view_whenever_it_is_asked_is_not_asked_for_ever(cuda, release):
    array = cuda.array([1.0], speaks="cai3", stream=cuda.stream("producer"))
    read, inside = [], []

    def interface(self):
        read.append(True)
        assert len(read) < 10_000, "without an end"
        if not inside:
            inside.append(True)
            try:
                to_cai(self)
            finally:
                inside.clear()
        return array.__cuda_array_interface__

    view = to_cai(type("Remakes", (), {"__cuda_array_interface__": property(interface)})())
    if release:
        view.release()
    del view
    cuda.synchronize()
    assert len(read) < 1000


@pytest.mark.parametrize("how", ["dict", "address", "stream"])
def test_a_library_that_reads_a_view_whenever_it_is_asked_is_not_asked_for_ever(
    cuda, no_libraries, how
):
    x = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.stream("producer"))

    def answer():
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


def test_a_module_whose_import_is_blocked_is_no_library(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    view = to_cai(made_on(cuda, cuda.stream("producer"), 7.0, "cai3"))
    cuda.clear_calls()
    assert view.__cuda_array_interface__["version"] == 3
    assert all(record.call != "cuStreamWaitEvent" for record in cuda.calls)
    view.release()
